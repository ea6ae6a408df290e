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
from jstitch.codegen.launch_ir import Address
from jstitch.codegen.launch_places import FAR
from jstitch.ir.index import Index, Var, add, const, mul, var

LANE = var(Var("lane", FAR))
"""The number of a lane among those that share its code."""


@dataclass(frozen=True)
class Place:
    """Where a buffer of a lane is found: number `number` of its space's pointers, `offset` bytes on."""

    space: Space
    number: Index
    offset: Index


@dataclass(eq=False)
class Slots:
    """operands and results: kernel argument and result numbers in slot order; they grow with every place.

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

    def place(self, members: Sequence[Buffer]) -> Place:
        """Of one buffer of a lane, given that buffer of every lane that shares its code."""
        first, here = members[0], const(0)
        match first.space:
            case Space.ARENA:
                return Place(Space.ARENA, here, const(first.offset))
            case Space.SCRATCH:
                stride = members[1].offset - first.offset if len(members) > 1 else 0
                return Place(Space.SCRATCH, here, _of_lane(first.offset, stride))
            case Space.ARG:
                several = any(b is not first for b in members)
                slot = self._operand_slots(members) if several else self._one_operand(first)
                return Place(Space.ARG, _of_lane(slot, int(several)), here)
            case Space.RESULT:
                slots = self._result_slots(members)
                stride = slots[1] - slots[0] if len(slots) > 1 else 0
                return Place(Space.RESULT, _of_lane(slots[0], stride), here)

    def address(self, name: str, place: Place, buffer: Buffer) -> Address:
        """The statement that finds the buffer; when every lane's buffers have their places."""
        results = len(self.operands)
        first = {Space.ARG: 0, Space.RESULT: results, Space.SCRATCH: results + len(self.results)}
        inside = place.space is Space.ARENA
        number = None if inside else add(place.number, const(first[place.space]))
        return Address(name, number, place.offset, buffer.type.nbytes, str(buffer.type))

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


def _is_even(numbers: Sequence[int]) -> bool:
    return len({b - a for a, b in itertools.pairwise(numbers)}) <= 1


def _of_lane(first: int, stride: int) -> Index:
    """A number or an offset that grows with the lane's."""
    return add(const(first), mul(LANE, stride))
