"""Print a Kernel: buffers with their places, then phases, lanes, stages and nests."""

from __future__ import annotations

from collections.abc import Iterator

from jstitch.codegen.comments import quoted
from jstitch.codegen.kernel_ir import (
    Buffer,
    Instr,
    Kernel,
    Lane,
    Let,
    Load,
    LoadPair,
    Loop,
    Matrix,
    Nest,
    Prefetch,
    Product,
    Sorting,
    Stage,
    Store,
    StorePair,
    Streamed,
    StripLane,
    Turns,
    Unless,
)
from jstitch.codegen.print_expr import print_expr
from jstitch.codegen.print_index import print_index
from jstitch.ir.index import Index


def print_kernel(kernel: Kernel) -> str:
    """Readable text; golden-tested and dumped."""
    lines = [f"kernel {kernel.name}"]
    lines += [f"  {_buffer(b)}" for b in (*kernel.args, *kernel.results, *kernel.scratch)]
    lines += [f"  {schedule}" for schedule in kernel.template.schedules] if kernel.template else []
    lines.append(f"  arena: {kernel.arena_bytes} bytes per program, scratch: {kernel.scratch_bytes} bytes")
    lines += [f"  {_buffer(b)} bytes [{b.offset}, {b.offset + b.type.nbytes})" for b in kernel.arena]
    for n, phase in enumerate(kernel.phases):
        lines.append(f"  phase {n}" + (f": {phase.alone_ns:,} ns on one core" if phase.alone_ns else ""))
        for lane in phase.lanes:
            lines += [f"    {line}" for line in _lane(lane)]
    return "\n".join(lines)


def _buffer(b: Buffer) -> str:
    return f"{b.space.value} {b.name}: {b.type}"


def _lane(lane: Lane) -> Iterator[str]:
    apart = "" if lane.shares else ", each value in bytes of its own"
    turns = f"{lane.period} in an inner loop, " if lane.period > 1 else ""
    turns += f"in blocks of {lane.block}, " if lane.block else ""
    what = f"{lane.rows_in_words}, {lane.step} per step, {turns}{lane.programs} programs"
    what += f", {lane.threads} threads a row" if lane.threads else ""
    yield f"lane: {what}, work {lane.work}{apart}"
    if isinstance(lane, StripLane):
        strips = f"{lane.strips} strips of {lane.columns} columns"
        yield f"  {lane.bands} bands of rows, {strips}, {lane.before} stages before the rows"
    for loop, numbers in lane.loops:
        around = "" if loop is None else "  "
        if loop is not None:
            yield f"  for {loop.var.name} in {_turns(loop)}:"
        yield from (f"  {around}{line}" for n in numbers for line in _stage(n, lane.stages[n]))


def _turns(loop: Loop) -> str:
    match loop:
        case Turns(first=first, unless=None):
            return f"[{loop.lo}, {print_index(first)})"
        case Turns(first=first, unless=Unless(tile, above)):
            return f"[{print_index(first)}, {loop.hi}) unless all of {tile.name} > {above:g}"
    return f"[{loop.lo}, {loop.hi})"


def _stage(n: int, stage: Stage) -> Iterator[str]:
    yield f"stage {n}{' (once)' if stage.once else ''}: {stage.note}"
    yield from (f"  // {line}" for line in quoted(stage.lines))
    yield from (f"  {_prefetch(p)}" for p in stage.prefetches)
    for nest in stage.nests:
        yield from (f"  {line}" for line in _nest(nest, 0))


def _prefetch(p: Prefetch) -> str:
    which = "the next step" if p.ahead else "this step"
    return f"prefetch lines [{p.first}, {p.last}) of {p.buffer.name}'s {p.nbytes} bytes of {which}"


def _product(p: Product) -> str:
    """By registers: the nest that follows says what is computed."""
    m, n, k = p.sizes
    sides = f"{_matrix(p.left, m, k)} * {_matrix(p.right, k, n)}"
    packed = f", packed in {p.panel.name}" if p.panel is not None else ""
    return f"by tiles of registers: {_matrix(p.result, m, n)} = {sides}{packed}"


def _matrix(x: Matrix, rows: int, columns: int) -> str:
    return f"{_element(x.buffer, x.first)}[{rows} by {x.strides[0]}, {columns} by {x.strides[1]}]"


def _nest(nest: Nest, depth: int) -> Iterator[str]:
    if depth == 0:
        match nest:
            case Product():
                yield _product(nest)
            case Sorting(items=items, room=room):
                yield f"by ranks or digits, of words in {items.name} and {room.name}:"
    yield from (_instr(i) for i in nest.body if i.depth == depth)
    if depth < len(nest.loops):
        yield from (f"{a.name} = {print_expr(a.init)}" for a in nest.accumulators if a.depth == depth)
        loop = nest.loops[depth]
        each = f", {loop.each} rows each" if loop.each > 1 else ""
        yield f"for {loop.var.name} in [{loop.lo}, {loop.hi}){each}:"
        yield from (f"  {line}" for line in _nest(nest, depth + 1))
    yield from (_instr(i) for i in nest.after if i.depth == depth)


def _instr(instr: Instr) -> str:
    match instr:
        case Let(name, value, _):
            return f"{name} = {print_expr(value)}"
        case LoadPair(name, buffer, offset, _):
            return f"{name} = {_pair(buffer, offset)}"
        case Load(name, buffer, offset, _):
            return f"{name} = {_element(buffer, offset)}"
        case StorePair(buffer, offset, value, _, second):
            return f"{_pair(buffer, offset)} = {print_expr(value)}, {print_expr(second)}"
        case Streamed(buffer, _, value, _, tile, place, target, loop, _):
            goes = f"{tile.name} goes to {_element(buffer, target)} after loop {loop}"
            return f"{_element(tile, place)} = {print_expr(value)}  // {goes}"
        case Store(buffer, offset, value, _):
            return f"{_element(buffer, offset)} = {print_expr(value)}"


def _element(b: Buffer, offset: Index) -> str:
    return f"{b.name}[{print_index(offset)}]"


def _pair(b: Buffer, offset: Index) -> str:
    return f"{b.name}[{print_index(offset)}, +1]"
