"""Give every buffer of a kernel a place in the table of pointers that its functions receive.

    [operands..., results..., scratch]

Lanes that share code find their buffers at `first + lane * stride`: their operands are listed lane by lane
(an argument that all lanes read in the same place once, one that some of them read once for each), their
results and scratch likewise. XLA gives an argument that is listed twice two buffers when a result takes the
place of one, so it is the result's pointer that leads to what is overwritten.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from jstitch.codegen.kernel_ir import Buffer, Kernel, Space

RESULT, SCRATCH = "@result", "@scratch@"  # places behind the operands, known when all lanes are emitted


@dataclass(eq=False)
class Slots:
    """operands and results: kernel argument and result numbers in slot order; they grow while emitting.

    aliases: results written in place of an argument.
    """

    kernel: Kernel
    operands: list[int] = field(default_factory=list)
    results: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.single: dict[Buffer, int] = {}
        self.runs: dict[tuple[Buffer, ...], int] = {}
        self.result_slot: dict[Buffer, int] = {}
        pairs = self.kernel.aliases.items()
        self.aliases: Mapping[Buffer, Buffer] = {
            self.kernel.results[r]: self.kernel.args[a] for r, a in pairs
        }

    def places(self, buffers: Sequence[Buffer]) -> list[int]:
        """Where a lane's buffers stand, as far as is settled: lanes in this order are easiest to pack."""
        scratch = [b.offset for b in buffers if b.space is Space.SCRATCH]
        return scratch + [self.result_slot[b] for b in buffers if b in self.result_slot]

    def can_pack(self, members: Sequence[Sequence[Buffer]]) -> bool:
        """Whether the lanes' results and scratch stand at even strides (operands always can)."""
        return all(self._is_even([m[k] for m in members]) for k in range(len(members[0])))

    def _is_even(self, members: Sequence[Buffer]) -> bool:
        """Whether one buffer of every lane stands at even strides, or still can."""
        match members[0].space:
            case Space.SCRATCH:
                return _is_even([b.offset for b in members])
            case Space.RESULT if any(b in self.result_slot for b in members):
                placed = [self.result_slot[b] for b in members if b in self.result_slot]
                return len(placed) == len(members) and _is_even(placed)
            case Space.RESULT:
                return len(set(members)) == len(members)
        return True

    def pointer(self, members: Sequence[Buffer], name: str) -> str:
        """The line that loads the pointer of one buffer of a lane, given that buffer of every lane."""
        first = members[0]
        match first.space:
            case Space.ARENA:
                return f"{name} = arena + {first.offset}"
            case Space.SCRATCH:
                stride = members[1].offset - first.offset if len(members) > 1 else 0
                return f"{name} = load_s64(bufs, {SCRATCH}, 0) + {first.offset}{_times(stride)}"
            case Space.ARG:
                several = any(b is not first for b in members)
                slot = self._operand_slots(members) if several else self._one_operand(first)
                return f"{name} = load_s64(bufs, {slot}{_times(several)}, 0)"
            case Space.RESULT:
                slots = self._result_slots(members)
                stride = slots[1] - slots[0] if len(slots) > 1 else 0
                return f"{name} = load_s64(bufs, {RESULT}{slots[0]}@{_times(stride)}, 0)"

    def _operand_slots(self, members: Sequence[Buffer]) -> int:
        known = self.runs.get(tuple(members))
        if known is None:
            known = self.runs[tuple(members)] = len(self.operands)
            self.operands += [b.number for b in members]
        return known

    def _one_operand(self, b: Buffer) -> int:
        if b not in self.single:
            self.single[b] = len(self.operands)
            self.operands.append(b.number)
        return self.single[b]

    def _result_slots(self, members: Sequence[Buffer]) -> list[int]:
        for b in members:
            if b not in self.result_slot:
                self.result_slot[b] = len(self.results)
                self.results.append(b.number)
        return [self.result_slot[b] for b in members]

    def resolve(self, line: str) -> str:
        """Put in the numbers that were not known when the line was written."""
        count = len(self.operands)
        before, found, rest = line.partition(RESULT)
        if found:
            number, _, rest = rest.partition("@")
            return f"{before}{count + int(number)}{rest}"
        return line.replace(SCRATCH, str(count + len(self.results)))


def _is_even(numbers: Sequence[int]) -> bool:
    return len({b - a for a, b in itertools.pairwise(numbers)}) <= 1


def _times(stride: int) -> str:
    """The lane's share of a slot number or an offset."""
    match int(stride):
        case 0:
            return ""
        case 1:
            return " + lane"
        case k:
            return f" + lane * {k}"
