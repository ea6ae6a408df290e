"""Check that a Kernel means something: names, bounds, memory, and who writes what before whom.

    for i in [0, 8): acc = acc + x[i + 1]        x: tensor<8xf32>
    ->  "phase 0, lane 0, stage 0: a0[i + 1] reaches 8 of 8 elements"
        "phase 0, lane 0, stage 0: 'acc' is used before it is defined"

Offsets are bounded symbolically, or enumerated where that proves too little. Small kernels are also followed
element by element (`check_flow`): reads of what nobody wrote, writes that race, results left unwritten.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jstitch.codegen.kernel_ir import (
    PROGRAM,
    ROW,
    STEP,
    Buffer,
    Kernel,
    Lane,
    Let,
    Load,
    Loop,
    Nest,
    Space,
    Stage,
    Store,
)
from jstitch.codegen.print_index import print_index
from jstitch.ir.index import Index, Var, add, bounds, mul, substitute, var
from jstitch.passes.lower.check_flow import check_flow, values_of
from jstitch.passes.lower.check_names import check_names

ENUMERATE = 1 << 16  # points up to which an offset is enumerated when its bounds prove too little


def check_kernel(kernel: Kernel) -> tuple[str, ...]:
    """What is wrong with a kernel, one line each; empty when nothing is."""
    found = list(dict.fromkeys([*_memory(kernel), *_aliases(kernel), *_instructions(kernel)]))
    return tuple(found or dict.fromkeys(check_flow(kernel)))


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
    yield from _overlaps("phases", [(b, _phases(kernel, b)) for b in kernel.scratch])
    for phase in kernel.phases:
        for lane in phase.lanes:
            yield from _overlaps("stages", _live_tiles(lane))


def _phases(kernel: Kernel, buffer: Buffer) -> list[int]:
    return [p for p, _, _, i in kernel.instructions() if not isinstance(i, Let) and i.buffer is buffer]


def _live_tiles(lane: Lane) -> list[tuple[Buffer, list[int]]]:
    """Tiles of a lane with the stages that touch them."""
    live: dict[Buffer, list[int]] = {}
    for n, stage in enumerate(lane.stages):
        for nest in stage.nests:
            for instr in (*nest.body, *nest.after):
                if not isinstance(instr, Let) and instr.buffer.space is Space.ARENA:
                    live.setdefault(instr.buffer, []).append(n)
    return list(live.items())


def _overlaps(what: str, live: Sequence[tuple[Buffer, list[int]]]) -> Iterator[str]:
    """Buffers that share bytes while both are alive."""
    for n, (a, times) in enumerate(live):
        for b, others in live[n + 1 :]:
            apart = a.offset + a.type.nbytes <= b.offset or b.offset + b.type.nbytes <= a.offset
            if apart or not times or not others:
                continue
            if min(times) <= max(others) and min(others) <= max(times):
                yield f"{a.name} and {b.name} share bytes in the same {what}"


def _aliases(kernel: Kernel) -> Iterator[str]:
    if len(set(kernel.aliases.values())) < len(kernel.aliases):
        yield "two results are written in place of one argument"
    for r, a in kernel.aliases.items():
        result, arg = kernel.results[r], kernel.args[a]
        if result.type != arg.type:
            yield f"{result.name} cannot stand in place of {arg.name}: {result.type} against {arg.type}"
        yield from _in_place(kernel, result, arg)


def _touches(nest: Nest, kind: type[Load | Store], buffer: Buffer) -> bool:
    return any(isinstance(i, kind) and i.buffer is buffer for i in (*nest.body, *nest.after))


def _in_place(kernel: Kernel, result: Buffer, arg: Buffer) -> Iterator[str]:
    """One nest stores, each element after its own loads; others load the argument in earlier phases."""
    if kernel.results.index(result) in kernel.updates:
        yield from _update(kernel, result, arg)
        return
    nests = [
        (number, nest)
        for number, phase in enumerate(kernel.phases)
        for lane in phase.lanes
        for stage in lane.stages
        for nest in stage.nests
    ]
    storing = [(number, nest) for number, nest in nests if _touches(nest, Store, result)]
    if len(storing) != 1:
        yield f"{result.name} in place of {arg.name}: {len(storing)} nests store it, not one"
        return
    ((last, only),) = storing
    for number, nest in nests:
        late = number >= last and _touches(nest, Load, arg)
        early = number <= last and _touches(nest, Load, result)
        if nest is not only and (late or early):
            yield f"{result.name} in place of {arg.name}: another nest of phase {number} loads them"
    loaded: set[Index] = set()
    stored: set[Index] = set()
    for instr in (*only.body, *only.after):
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


def _update(kernel: Kernel, result: Buffer, arg: Buffer) -> Iterator[str]:
    """Nobody reads memory of which a part is overwritten."""
    if any(isinstance(i, Load) and i.buffer in (result, arg) for *_, i in kernel.instructions()):
        yield f"{result.name} is a part of {arg.name}, which is loaded"


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
    for instr in (*nest.body, *nest.after):
        if isinstance(instr, Load | Store):
            yield from _bounds(instr, lane, nest)


def _loops(lane: Lane, nest: Nest) -> Iterator[str]:
    names = [loop.var.name for loop in nest.loops]
    if len(set(names)) < len(names):
        yield f"two loops over one variable: {', '.join(names)}"
    for loop in nest.loops:
        extent = lane.step if loop.var.name == ROW else loop.var.extent
        if not 0 <= loop.lo <= loop.hi <= extent:
            yield f"loop {loop.var.name} runs over [{loop.lo}, {loop.hi}), its extent is {extent}"
        if loop.var.name == ROW and loop.var.extent != lane.rows:
            yield f"the row loop has {loop.var.extent} rows, the lane {lane.rows}"


def _outside(lane: Lane, stage: Stage) -> dict[str, int]:
    """Variables that a stage sees around its nests, with their extents."""
    if stage.once or lane.rows == 1:
        return {PROGRAM: lane.programs}
    if lane.flat:
        return {PROGRAM: lane.programs}
    if lane.step == 1:
        return {PROGRAM: lane.programs, ROW: lane.rows}
    return {PROGRAM: lane.programs, STEP: lane.rows // lane.step}


# -- bounds ----------------------------------------------------------------------------------------------


def _bounds(instr: Load | Store, lane: Lane, nest: Nest) -> Iterator[str]:
    size = instr.buffer.type.size
    e = in_step(instr.offset, lane)
    low, high = bounds(_within(e, nest.loops))
    if 0 <= low and high < size:
        return
    values = values_of(e, ENUMERATE)
    if values is not None:
        low, high = int(values.min(initial=0)), int(values.max(initial=0))
    if values is None or low < 0 or high >= size:
        text = f"{instr.buffer.name}[{print_index(instr.offset)}]"
        proof = "may reach" if values is None else "reaches"
        yield f"{text} {proof} [{low}, {high}] of {size} elements"


def in_step(e: Index, lane: Lane) -> Index:
    """Rows as a place in their step, so that what is relative to the step has bounds of its own."""
    if lane.step == 1:
        return e
    row = add(mul(var(Var(STEP, lane.rows // lane.step)), lane.step), var(Var("row in step", lane.step)))
    return substitute(e, lambda atom: row if atom == Var(ROW, lane.rows) else None)


def _within(e: Index, loops: Sequence[Loop]) -> Index:
    """Loop variables that run over a part of their extent: shifted to start at 0."""
    inner = (loop for loop in loops if loop.var.name != ROW)
    part = {loop.var: loop for loop in inner if (loop.lo, loop.hi) != (0, loop.var.extent)}
    if not part:
        return e

    def shift(atom: object) -> Index | None:
        loop = part.get(atom) if isinstance(atom, Var) else None
        return None if loop is None else add(var(Var(loop.var.name, loop.hi - loop.lo)), Index(loop.lo))

    return substitute(e, shift)
