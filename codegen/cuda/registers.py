"""Estimate the registers that a thread of a kernel needs, from its PTX, by the life time of every value (C3).

    ld.global.nc.v4.f32 {%f1, %f2, %f3, %f4}, [%rd3];   4 more are live
    add.f32 %f5, %f1, %f2;                              1 more, and 2 fewer if this was their last use

The assembler works on values, not on PTX's registers: copies, addresses that differ by a constant, constants,
parameters and what all threads of a CTA share are free; they sit in other files or inside other instructions.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import networkx as nx

from jstitch.codegen.cuda.ptx.flatten import Flat, Instruction, Label, flatten
from jstitch.codegen.cuda.ptx.parse import parse

FIXED = 7
"""Registers that every kernel takes: the stack pointer, temporaries of addresses and of the schedule."""

_FILE = 65536  # registers of an SM
_MOST = 255  # of a thread
_LEAST = 10  # the assembler's smallest kernels have at least as many
_UNROLLED = 4  # turns of a short loop that the assembler lays side by side
_SHORT = 128  # instructions
_NAME = re.compile(r"[%$A-Za-z_][\w$]*#\d+")
_NO_RESULT = re.compile(r"(?:st|red|bar|barrier|bra|ret|exit|membar|fence|prefetch|cp|trap|griddepcontrol)\b")
_COPIES = re.compile(r"(?:mov|cvta\.to\.\w+|cvta)\.[bsuf]\d+")
_POINTERS = re.compile(r"ld\.param\.u64|(?:mov|selp|cvta)\S*64$")
_ENDS = re.compile(r"(?:bra|ret|exit)\b")
_EFFECT = "effect"
_ORDERED = ("ld.shared", "shfl", "atom", "vote")
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
    least, ahead = pressure(flat)
    wanted = FIXED + max(least, min(ahead, _free(FIXED + least, block, threads_per_sm) - FIXED))
    return min(_MOST, max(_LEAST, wanted))


def _free(registers: int, block: int, threads_per_sm: int) -> int:
    """Registers that a thread may have without an SM holding fewer CTAs of `block` threads."""
    ctas = max(1, min(threads_per_sm // block, _FILE // (-(-registers // 8) * 8 * block)))
    return _FILE // (ctas * block) // 8 * 8


def pressure(flat: Flat) -> tuple[int, int]:
    """Most 32-bit registers that hold values at once: with loads as late, and as early as can be."""
    values = _Values.of(flat)
    blocks = _blocks(flat)
    live_in = _solve(blocks, values)
    turns = _turns(blocks)
    least = ahead = 0
    for position, block in enumerate(blocks):
        after = _after(block, live_in)
        in_order, late = (_peak(order, values, after) for order in (block, _late(block)))
        least = max(least, min(in_order, late))
        ahead = max(ahead, in_order, _ahead(block, values, live_in[position], turns[position]))
    return least, ahead


def _ahead(block: _Block, values: _Values, live: set[str], turns: int) -> int:
    """With all loads of the block in flight, of some turns of its loop.

    Turns side by side are not all at their peak at once: half of them are, as a rule.
    """
    loads = [step for step in block.code if _is_load(step)]
    loaded = sum(values.size(results(step)) for step in loads)
    addresses = set().union(*(values.sources(step) for step in loads))
    side_by_side = 0
    if turns > 1 and loads:
        side_by_side = values.size(live) + _peak(_late(block), values, set()) * turns // 2
    return max(values.size(live | addresses) + loaded * turns, side_by_side)


def _is_load(step: Instruction) -> bool:
    return step.opcode.startswith("ld.global")


def _late(block: _Block) -> _Block:
    """The block in an order that needs few registers.

    What became ready last goes first, so that one result is finished before the next is begun; loads go only
    when nothing else can.
    """
    missing, users = _dependences(block.code)
    now = [n for n, step in enumerate(block.code) if not missing[n] and not _is_load(step)][::-1]
    later = [n for n, step in enumerate(block.code) if not missing[n] and _is_load(step)]
    code: list[Instruction] = []
    while now or later:
        number = now.pop() if now else heapq.heappop(later)
        code.append(block.code[number])
        for user in reversed(users[number]):
            missing[user] -= 1
            if missing[user]:
                continue
            if _is_load(block.code[user]):
                heapq.heappush(later, user)
            else:
                now.append(user)
    return _Block(tuple(code), block.successors)


def _dependences(code: tuple[Instruction, ...]) -> tuple[list[int], list[list[int]]]:
    """How many instructions each one waits for, and which ones wait for it.

    An instruction waits for its sources; one with an effect (a store, a barrier) for the effect before it.
    """
    missing = [0] * len(code)
    users: list[list[int]] = [[] for _ in code]
    made: dict[str, int] = {}
    for number, step in enumerate(code):
        effect = [_EFFECT] if not results(step) or step.opcode.startswith(_ORDERED) else []
        for before in {made[name] for name in (*sources(step), *effect) if name in made}:
            users[before].append(number)
            missing[number] += 1
        made |= dict.fromkeys((*results(step), *effect), number)
    return missing, users


def _turns(blocks: list[_Block]) -> list[int]:
    """For each block, how many of its turns run side by side: more than one in short innermost loops."""
    turns = [1] * len(blocks)
    flow = nx.DiGraph((n, successor) for n, block in enumerate(blocks) for successor in block.successors)
    for loop in _innermost_loops(flow):
        if sum(len(blocks[n].code) for n in loop) <= _SHORT:
            for n in loop:
                turns[n] = _UNROLLED
    return turns


def _innermost_loops(flow: nx.DiGraph[int]) -> Iterator[set[int]]:
    """The blocks of each loop that holds no other; its first block is where it is entered."""
    for blocks in nx.strongly_connected_components(flow):
        if len(blocks) > 1 or flow.has_edge(*(2 * tuple(blocks))):
            inner = list(_innermost_loops(flow.subgraph(blocks - {min(blocks)})))
            yield from inner or [blocks]


@dataclass(frozen=True)
class _Block:
    """Instructions that run one after the other. successors: numbers of the blocks that may come next."""

    code: tuple[Instruction, ...]
    successors: tuple[int, ...]


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
                    weight[name] = weight[source]
                elif _is_shared(step, weight):
                    weight[name] = 0
        return _Values(home, weight)

    def sources(self, step: Instruction) -> set[str]:
        return {self.home.get(name, name) for name in sources(step)}

    def results(self, step: Instruction) -> set[str]:
        return {self.home.get(name, name) for name in results(step)} - self.sources(step)

    def size(self, names: Iterable[str]) -> int:
        return sum(self.weight.get(name, 0) for name in names)


def results(step: Instruction) -> list[str]:
    """The registers that an instruction writes."""
    if _NO_RESULT.match(step.opcode) or not step.operands:
        return []
    return _NAME.findall(step.operands[0])


def sources(step: Instruction) -> list[str]:
    """The registers that an instruction reads. Where a guard may skip it, the old result is one."""
    read = step.operands if _NO_RESULT.match(step.opcode) else step.operands[1:]
    guard = [] if step.guard is None else [step.guard, *results(step)]
    return [name for operand in read for name in _NAME.findall(operand)] + guard


def _copied(step: Instruction, counts: Counter[str], weight: dict[str, int]) -> str | None:
    """The register that the result is a copy of, or an address at a constant or shared distance from."""
    read = sources(step)
    if _COPIES.fullmatch(step.opcode) and len(read) == 1 and counts[read[0]] == 1:
        return read[0]
    own = [name for name in read if weight[name]]
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
    return {name for operand in operands for name in _NAME.findall(operand)}


def _is_shared(step: Instruction, weight: dict[str, int]) -> bool:
    """Whether the result is a constant, or the same for all threads of a CTA: no register of a thread's."""
    if step.opcode.startswith("ld.param"):
        return True
    if step.opcode.startswith(("ld", "shfl", "atom", "vote", "activemask", "redux")):
        return False
    text = " ".join(step.operands[1:])
    return not any(special in text for special in _THREAD) and not any(weight[n] for n in sources(step))


def _blocks(flat: Flat) -> list[_Block]:
    """Cut at labels and after branches."""
    runs: list[list[Instruction]] = [[]]
    starts: dict[str, int] = {}
    for step in flat.code:
        if isinstance(step, Label):
            if runs[-1]:
                runs.append([])
            starts[step.name] = len(runs) - 1
        else:
            runs[-1].append(step)
            if _ENDS.match(step.opcode):
                runs.append([])
    return [_Block(tuple(run), tuple(_next(run, i, len(runs), starts))) for i, run in enumerate(runs)]


def _next(run: list[Instruction], position: int, count: int, starts: dict[str, int]) -> Iterator[int]:
    last = run[-1] if run else None
    ends = last is not None and _ENDS.match(last.opcode)
    if last is not None and last.opcode.startswith("bra"):
        yield starts[last.operands[0]]
    if (not ends or (last is not None and last.guard is not None)) and position + 1 < count:
        yield position + 1


def _solve(blocks: list[_Block], values: _Values) -> list[set[str]]:
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


def _after(block: _Block, live_in: list[set[str]]) -> set[str]:
    return set().union(*(live_in[successor] for successor in block.successors))


def _before(block: _Block, values: _Values, live: set[str]) -> set[str]:
    for step in reversed(block.code):
        live = (live - values.results(step)) | values.sources(step)
    return live


def _peak(block: _Block, values: _Values, live: set[str]) -> int:
    peak = values.size(live)
    for step in reversed(block.code):
        peak = max(peak, values.size(live | values.results(step)))
        live = (live - values.results(step)) | values.sources(step)
        peak = max(peak, values.size(live))
    return peak
