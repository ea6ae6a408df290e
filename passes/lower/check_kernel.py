"""Check that a Kernel means something: names, bounds, memory, and who writes what before whom.

    for i in [0, 8): acc = acc + x[i + 1]        x: tensor<8xf32>
    ->  "phase 0, lane 0, stage 0: a0[i + 1] reaches 8 of 8 elements"
        "phase 0, lane 0, stage 0: 'acc' is used before it is defined"

Offsets are bounded symbolically, or enumerated where that proves too little. Small kernels are also followed
element by element (`check_flow`): reads of what nobody wrote, writes that race, results left unwritten.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from jstitch.codegen.kernel_ir import (
    FLAT_ALIGN,
    PROGRAM,
    ROW,
    STEP,
    STRIP,
    Buffer,
    Kernel,
    Lane,
    Let,
    Load,
    Nest,
    Space,
    Stage,
    Store,
    Streamed,
    StripLane,
)
from jstitch.codegen.print_index import print_index
from jstitch.codegen.tile_lives import lane_lives
from jstitch.errors import VerifyError
from jstitch.ir.index import Index
from jstitch.passes.lower.check_bounds import check_bounds
from jstitch.passes.lower.check_flow import check_flow
from jstitch.passes.lower.check_names import check_names


def check_kernel(kernel: Kernel) -> tuple[str, ...]:
    """What is wrong with a kernel, one line each; empty when nothing is."""
    wrong = *_memory(kernel), *_written_twice(kernel), *_aliases(kernel), *_instructions(kernel)
    found = list(dict.fromkeys(wrong))
    return tuple(found or dict.fromkeys(check_flow(kernel)))


def verify_kernel(kernel: Kernel, where: str) -> None:
    """Raise VerifyError when the kernel could read or write where or when it must not."""
    if problems := check_kernel(kernel):
        raise VerifyError("a kernel that keeps its bounds and its order", "; ".join(problems), where=where)


# -- memory ----------------------------------------------------------------------------------------------


def _memory(kernel: Kernel) -> Iterator[str]:
    for space, declared in ((Space.SCRATCH, kernel.scratch), (Space.ARENA, kernel.arena)):
        size = kernel.scratch_bytes if space is Space.SCRATCH else kernel.arena_bytes
        for b in declared:
            if b.offset < 0 or b.offset % b.type.dtype.itemsize:
                yield f"{b.name} stands at byte {b.offset}, not a multiple of its element's size"
            if b.offset + b.type.nbytes > size:
                end = b.offset + b.type.nbytes
                yield f"{b.name} ends at byte {end}, the {space.value} has {size}"
    known = {*kernel.args, *kernel.results, *kernel.scratch, *kernel.arena}
    for *_, instr in kernel.instructions():
        if not isinstance(instr, Let) and instr.buffer not in known:
            yield f"{instr.buffer.name} is used and not declared"
    for stage in (s for p in kernel.phases for lane in p.lanes for s in lane.stages):
        yield from (
            f"{p.buffer.name} is asked for and not declared"
            for p in stage.prefetches
            if p.buffer not in known
        )
    yield from _streams(kernel)
    yield from _overlaps("phases", _live_scratch(kernel))
    for phase in kernel.phases:
        for lane in phase.lanes:
            yield from _overlaps("stages", _live_tiles(lane))


def _streams(kernel: Kernel) -> Iterator[str]:
    """Tiles of streamed results: in the arena behind everything else, those of one nest apart."""
    used = max((b.offset + b.type.nbytes for b in kernel.arena), default=0)
    for nest in (n for p in kernel.phases for lane in p.lanes for s in lane.stages for n in s.nests):
        end = used
        for tile in sorted((i.tile for i in nest.body if isinstance(i, Streamed)), key=lambda b: b.offset):
            if tile.offset < end:
                yield f"{tile.name} shares bytes with what else a program keeps"
            end = tile.offset + tile.type.nbytes
        if end > max(used, kernel.arena_bytes):
            yield f"streamed results end at byte {end}, the arena has {kernel.arena_bytes}"


def _written_twice(kernel: Kernel) -> Iterator[str]:
    """Lanes of one phase that store at one offset: what two of them make twice is in no order."""
    for p, phase in enumerate(kernel.phases):
        writers: dict[tuple[Buffer, Index], int] = {}
        for q, lane in enumerate(phase.lanes):
            nests = (nest for stage in lane.stages for nest in stage.nests)
            for i in (i for nest in nests for i in nest.instructions):
                if not isinstance(i, Store) or i.buffer.space is Space.ARENA:
                    continue
                first = writers.setdefault((i.buffer, i.offset), q)
                if first != q:
                    yield f"phase {p}: lanes {first} and {q} store the same elements of {i.buffer.name}"


def _live_scratch(kernel: Kernel) -> list[tuple[Buffer, list[int]]]:
    """Scratch memory with the phases that touch it."""
    phases: dict[Buffer, list[int]] = {b: [] for b in kernel.scratch}
    for p, _, _, i in kernel.instructions():
        if not isinstance(i, Let) and i.buffer in phases:
            phases[i.buffer].append(p)
    return [*phases.items()]


def _live_tiles(lane: Lane) -> list[tuple[Buffer, list[int]]]:
    """Tiles of a lane with the stages that need them."""
    return [(b, [*life]) for b, life in lane_lives(lane).items()]


def _overlaps(what: str, live: Sequence[tuple[Buffer, list[int]]]) -> Iterator[str]:
    """Buffers that share bytes while both are alive."""
    lives = [(b, b.offset, b.offset + b.type.nbytes, min(at), max(at)) for b, at in live if at]
    for (a, low, high, first, last), (b, start, end, begin, until) in combinations(lives, 2):
        if low < end and start < high and first <= until and begin <= last:
            yield f"{a.name} and {b.name} share bytes in the same {what}"


class _Nests:
    """A kernel's nests with their phases: those that store a buffer, those that load it."""

    def __init__(self, kernel: Kernel) -> None:
        self.storing: dict[Buffer, list[tuple[int, Nest]]] = {}
        self.loading: dict[Buffer, list[tuple[int, Nest]]] = {}
        for number, nest in _nests(kernel):
            for instr in nest.instructions:
                if isinstance(instr, Load | Store):
                    touching = self.storing if isinstance(instr, Store) else self.loading
                    found = touching.setdefault(instr.buffer, [])
                    if not found or found[-1][1] is not nest:
                        found.append((number, nest))


def _nests(kernel: Kernel) -> Iterator[tuple[int, Nest]]:
    for number, phase in enumerate(kernel.phases):
        for lane in phase.lanes:
            for stage in lane.stages:
                yield from ((number, nest) for nest in stage.nests)


def _aliases(kernel: Kernel) -> Iterator[str]:
    if len(set(kernel.aliases.values())) < len(kernel.aliases):
        yield "two results are written in place of one argument"
    nests = _Nests(kernel)
    for r, a in kernel.aliases.items():
        result, arg = kernel.results[r], kernel.args[a]
        if result.type != arg.type:
            yield f"{result.name} cannot stand in place of {arg.name}: {result.type} against {arg.type}"
        if r not in kernel.updates:
            yield from _in_place(nests, result, arg)
        elif nests.loading.keys() & {result, arg}:  # nobody reads memory of which a part is overwritten
            yield f"{result.name} is a part of {arg.name}, which is loaded"


def _in_place(nests: _Nests, result: Buffer, arg: Buffer) -> Iterator[str]:
    """One nest stores, each element after its own loads; others load the argument in earlier phases."""
    storing = nests.storing.get(result, [])
    if len(storing) != 1:
        yield f"{result.name} in place of {arg.name}: {len(storing)} nests store it, not one"
        return
    ((last, only),) = storing
    late = [(number, nest) for number, nest in nests.loading.get(arg, ()) if number >= last]
    early = [(number, nest) for number, nest in nests.loading.get(result, ()) if number <= last]
    for number, nest in (*late, *early):
        if nest is not only:
            yield f"{result.name} in place of {arg.name}: another nest of phase {number} loads them"
    loaded: set[Index] = set()
    stored: set[Index] = set()
    for instr in only.instructions:
        if isinstance(instr, Load) and instr.buffer is result:
            yield f"{result.name} in place of {arg.name}: what stores it loads it"
        if isinstance(instr, Load) and instr.buffer is arg:
            loaded.add(instr.offset)
            if instr.offset in stored:
                yield f"{arg.name}[{print_index(instr.offset)}] is loaded after it was overwritten"
        if isinstance(instr, Store) and instr.buffer is result:
            stored.add(instr.offset)
    if loaded and loaded != stored:
        yield f"{result.name} in place of {arg.name}: what is loaded is not what is stored"


# -- instructions ----------------------------------------------------------------------------------------


def _instructions(kernel: Kernel) -> Iterator[str]:
    for p, phase in enumerate(kernel.phases):
        for q, lane in enumerate(phase.lanes):
            for s, stage in enumerate(lane.stages):
                for nest in stage.nests:
                    where = f"phase {p}, lane {q}, stage {s}"
                    yield from (f"{where}: {text}" for text in _nest(lane, stage, nest))


def _nest(lane: Lane, stage: Stage, nest: Nest) -> Iterator[str]:
    yield from _loops(lane, nest)
    yield from check_names(nest, _outside(lane, stage))
    yield from check_bounds(nest, lane)


def _loops(lane: Lane, nest: Nest) -> Iterator[str]:
    names = [loop.var.name for loop in nest.loops]
    if len(set(names)) < len(names):
        yield f"two loops over one variable: {', '.join(names)}"
    for loop in nest.loops:
        rows = loop.var.name == ROW
        extent = lane.step if rows else loop.var.extent
        if not 0 <= loop.lo <= loop.hi <= extent:
            yield f"loop {loop.var.name} runs over [{loop.lo}, {loop.hi}), its extent is {extent}"
        if rows and loop.var.extent * loop.each != lane.rows:
            yield f"the row loop has {loop.var.extent * loop.each} rows, the lane {lane.rows}"
        if loop.each > 1 and not (rows and lane.flat and FLAT_ALIGN % loop.each == 0):
            yield f"loop {loop.var.name} takes {loop.each} rows at a time"


def _outside(lane: Lane, stage: Stage) -> dict[str, int]:
    """Variables that a stage sees around its nests, with their extents."""
    found = {PROGRAM: lane.programs}
    if isinstance(lane, StripLane):
        found[STRIP] = lane.strips
    if stage.turn is not None:
        found[stage.turn.var.name] = stage.turn.var.extent
    if stage.once or lane.rows == 1 or lane.flat:
        return found
    return found | ({ROW: lane.rows} if lane.step == 1 else {STEP: lane.rows // lane.step})
