"""Estimate the registers that a thread of a kernel needs, from its PTX, by the life time of every value (C3).

    ld.global.nc.v4.f32 {%f1, %f2, %f3, %f4}, [%rd3];   4 more are live
    add.f32 %f5, %f1, %f2;                              1 more, and 2 fewer if this was their last use

The assembler works on values, not on PTX's registers: copies, addresses that differ by a constant, constants,
parameters and what all threads of a CTA share are free; they sit in other files or inside other instructions.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass

from jstitch.codegen.cuda.instruction_order import (
    Block,
    blocks_of,
    early,
    is_load,
    late,
    names,
    results,
    sources,
)
from jstitch.codegen.cuda.ptx.flatten import Flat, Instruction, flatten
from jstitch.codegen.cuda.ptx.parse import parse
from jstitch.ir.node_graph import strong_parts

FIXED = 6
"""Registers that every kernel takes: the stack pointer, temporaries of addresses and of the schedule."""

IN_FLIGHT = 0.65
"""Of the registers for all loads that could be in flight, those that the assembler spends on them."""

_FILE = 65536  # registers of an SM
_MOST = 255  # of a thread
_LEAST = 12  # the assembler's smallest kernels have at least as many
_UNROLLED = 4  # turns of a short loop that the assembler lays side by side
_SHORT = 128  # instructions
_COPIES = re.compile(r"(?:mov|cvta\.to\.\w+|cvta)\.[bsuf]\d+")
_POINTERS = re.compile(r"ld\.param\.u64|(?:mov|selp|cvta)\S*64$")
_THREAD = ("%tid", "%laneid", "%warpid")


def estimate_registers(ptx: str, threads_per_sm: int = 2048) -> int:
    """Registers of one thread of the only kernel in `ptx`, as ptxas would report them.

    threads_per_sm: how many an SM of the device holds. As long as they cost no occupancy, registers are spent
    on loading far ahead. Raises PtxError for text that cannot be read.
    """
    module = parse(ptx)
    entry = next(function for function in module.functions.values() if function.entry)
    flat = flatten(module, entry.name)
    block = entry.limits.get("reqntid") or entry.limits.get("maxntid") or threads_per_sm
    least, most = pressure(flat)
    wanted = FIXED + max(least, min(most, _free(FIXED + least, block, threads_per_sm) - FIXED))
    return min(_MOST, max(_LEAST, wanted))


def needed_registers(ptx: str) -> int:
    """Of one thread of the only kernel in `ptx`, at least. Raises PtxError for text that cannot be read."""
    module = parse(ptx)
    entry = next(function for function in module.functions.values() if function.entry)
    return FIXED + pressure(flatten(module, entry.name))[0]


def _free(registers: int, block: int, threads_per_sm: int) -> int:
    """Registers that a thread may have without an SM holding fewer CTAs of `block` threads."""
    ctas = max(1, min(threads_per_sm // block, _FILE // (-(-registers // 8) * 8 * block)))
    return _FILE // (ctas * block) // 8 * 8


def pressure(flat: Flat) -> tuple[int, int]:
    """32-bit registers that hold values at once: as few as will do, and with much side by side."""
    values = _Values.of(flat)
    blocks = blocks_of(flat)
    live_in = _solve(blocks, values)
    turns = _turns(blocks)
    least = eager = ahead = 0
    for position, block in enumerate(blocks):
        after = _after(block, live_in)
        in_order, lean, wide = (_peak(order, values, after) for order in (block, late(block), early(block)))
        least = max(least, min(in_order, lean))
        eager = max(eager, in_order, wide)
        ahead = max(ahead, _ahead(block, values, live_in[position], turns[position]))
    return least, max(eager, least + int(IN_FLIGHT * (ahead - least)))


def _ahead(block: Block, values: _Values, live: set[str], turns: int) -> int:
    """With all loads of the block in flight, of some turns of its loop.

    Turns side by side are not all at their peak at once: half of them are, as a rule.
    """
    loads = [step for step in block.code if is_load(step)]
    loaded = sum(values.size(results(step)) for step in loads)
    addresses = set().union(*(values.sources(step) for step in loads))
    side_by_side = 0
    if turns > 1 and loads:
        side_by_side = values.size(live) + _peak(late(block), values, set()) * turns // 2
    return max(values.size(live | addresses) + loaded * turns, side_by_side)


def _turns(blocks: list[Block]) -> list[int]:
    """For each block, how many of its turns run side by side: more than one in short innermost loops."""
    turns = [1] * len(blocks)
    flow = {(n, successor) for n, block in enumerate(blocks) for successor in block.successors}
    for loop in _innermost_loops(flow):
        if sum(len(blocks[n].code) for n in loop) <= _SHORT:
            for n in loop:
                turns[n] = _UNROLLED
    return turns


def _innermost_loops(flow: Set[tuple[int, int]]) -> Iterator[set[int]]:
    """The blocks of each loop that holds no other; its first block is where it is entered."""
    for blocks in strong_parts(flow):
        first = min(blocks)
        if len(blocks) > 1 or (first, first) in flow:
            rest = blocks - {first}
            inner = {(a, b) for a, b in flow if a in rest and b in rest}
            yield from list(_innermost_loops(inner)) or [blocks]


@dataclass(frozen=True)
class _Values:
    """home: the value whose register each name shares. weight: 32-bit registers of a value."""

    home: dict[str, str]
    weight: dict[str, int]

    @staticmethod
    def of(flat: Flat) -> _Values:
        code = [step for step in flat.code if isinstance(step, Instruction)]
        counts = Counter(name for step in code for name in results(step))
        home: dict[str, str] = {}
        weight = {name: bits // 32 if bits >= 32 else int(bits > 1) for name, bits in flat.registers.items()}
        weight.update(dict.fromkeys(_chosen_pointers(code), 0))
        for step in code:
            for name in results(step):
                if counts[name] > 1 or step.guard is not None:
                    continue
                if (source := _copied(step, counts, weight)) is not None:
                    home[name] = home.get(source, source)
                    weight[name] = weight.get(source, 0)
                elif _is_shared(step, weight):
                    weight[name] = 0
        return _Values(home, weight)

    def sources(self, step: Instruction) -> set[str]:
        return {self.home.get(name, name) for name in sources(step)}

    def results(self, step: Instruction) -> set[str]:
        return {self.home.get(name, name) for name in results(step)} - self.sources(step)

    def size(self, names: Iterable[str]) -> int:
        return sum(self.weight.get(name, 0) for name in names)


def _copied(step: Instruction, counts: Counter[str], weight: dict[str, int]) -> str | None:
    """The register that the result is a copy of, or an address at a constant or shared distance from."""
    read = sources(step)
    if _COPIES.fullmatch(step.opcode) and len(read) == 1 and counts[read[0]] == 1:
        return read[0]
    own = [name for name in read if weight.get(name)]
    return own[0] if step.opcode == "add.s64" and len(own) == 1 else None


def _chosen_pointers(code: Iterable[Instruction]) -> set[str]:
    """Parameters, and what is one of several parameters, as the lane's number says: all threads' alike."""
    made: dict[str, list[Instruction]] = {}
    for step in code:
        for name in results(step):
            made.setdefault(name, []).append(step)
    found = {name for name, steps in made.items() if all(_POINTERS.match(s.opcode) for s in steps)}
    while True:
        other = {n for n in found if any(_others(step) - found for step in made[n])}
        if not other:
            return found
        found -= other


def _others(step: Instruction) -> set[str]:
    """The registers of which the result is one: the last operand of a choice says which."""
    operands = step.operands[1:-1] if step.opcode.startswith("selp") else step.operands[1:]
    return set(names(operands))


def _is_shared(step: Instruction, weight: dict[str, int]) -> bool:
    """Whether the result is a constant, or the same for all threads of a CTA: no register of a thread's."""
    if step.opcode.startswith("ld.param"):
        return True
    if step.opcode.startswith(("ld", "shfl", "atom", "vote", "activemask", "redux")):
        return False
    text = " ".join(step.operands[1:])
    return not any(special in text for special in _THREAD) and not any(weight.get(n) for n in sources(step))


def _solve(blocks: list[Block], values: _Values) -> list[set[str]]:
    """What is live before each block: backwards until nothing changes."""
    live_in: list[set[str]] = [set() for _ in blocks]
    changed = True
    while changed:
        changed = False
        for position in reversed(range(len(blocks))):
            live = _before(blocks[position], values, _after(blocks[position], live_in))
            if live != live_in[position]:
                live_in[position], changed = live, True
    return live_in


def _after(block: Block, live_in: list[set[str]]) -> set[str]:
    return set().union(*(live_in[successor] for successor in block.successors))


def _before(block: Block, values: _Values, live: set[str]) -> set[str]:
    for step in reversed(block.code):
        live = (live - values.results(step)) | values.sources(step)
    return live


def _peak(block: Block, values: _Values, live: set[str]) -> int:
    peak = values.size(live)
    for step in reversed(block.code):
        peak = max(peak, values.size(live | values.results(step)))
        live = (live - values.results(step)) | values.sources(step)
        peak = max(peak, values.size(live))
    return peak
