"""A lane of a kernel on a CPU -> Launch IR.

The lane becomes a loop over the task's share of row steps; stages become loop nests in order (a barrier is
the end of a loop), innermost loops over contiguous elements that LLVM vectorises; the arena is a tile of
private, cache-resident memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from jstitch.codegen.comments import stage_notes
from jstitch.codegen.cpu.row_periods import in_periods
from jstitch.codegen.kernel_ir import (
    CACHE_LINE,
    ROW,
    START,
    STEP,
    Buffer,
    Called,
    Instr,
    Lane,
    Let,
    Load,
    LoadPair,
    Loop,
    Nest,
    Product,
    Sorting,
    Space,
    Stage,
    Store,
    StorePair,
    Streamed,
)
from jstitch.codegen.kernel_queries import touched_by
from jstitch.codegen.launch_calls import Multiply, SortItems, Tile
from jstitch.codegen.launch_ir import (
    Assign,
    Body,
    Comment,
    Fence,
    For,
    Integer,
    Prefetch,
    Read,
    Statement,
    Stream,
    Write,
)
from jstitch.codegen.launch_places import FAR, PROGRAM, Apart
from jstitch.codegen.launch_turns import launch_turns
from jstitch.codegen.rename import rename_lane
from jstitch.codegen.tile_lives import asked
from jstitch.ir.expr import call
from jstitch.ir.index import Index, Var, add, clamp, const, floordiv, mul, var
from jstitch.ir.types import DType

LOW, HIGH, LINE, BLOCK, END = (var(Var(name, FAR)) for name in ("lo", "hi", "k", "w", "end"))
FIRST, LAST, GO = (var(Var(name, FAR)) for name in ("first", "last", "go"))  # of a flat lane in blocks
_STEP = var(Var(STEP, FAR))
PERIOD, PLACE = "period", "place"  # which one a row is of, and where it is there


def buffers_of(lane: Lane) -> list[Buffer]:
    """Buffers that a lane touches, in order of first use."""
    touched = [b for i in instructions_of(lane.stages) for b in touched_by(i)]
    nests = (nest for stage in lane.stages for nest in stage.nests)
    rooms = (room for nest in nests if isinstance(nest, Called) for room in _rooms(nest))
    return list(dict.fromkeys((*touched, *rooms)))


def _rooms(nest: Called) -> Iterator[Buffer]:
    """What the function that is called writes besides."""
    match nest:
        case Product(panel=Buffer() as panel):
            yield panel
        case Sorting(room=room):
            yield room


def instructions_of(stages: Sequence[Stage]) -> Iterator[Instr]:
    return (i for stage in stages for nest in stage.nests for i in nest.instructions)


def launch_lane(lane: Lane, aliases: Mapping[Buffer, Buffer], tag: str = "") -> Body:
    """What the task with number PROGRAM of the lane does; its buffers' pointers are b0, b1, ... in order.

    aliases: results, and the arguments whose memory they take. tag: in the names of all values and pointers.
    """
    return LaneWriter(lane, aliases, tag).body()


class LaneWriter:
    """The statements of one lane."""

    def __init__(self, lane: Lane, aliases: Mapping[Buffer, Buffer], tag: str) -> None:
        self.row = var(Var(ROW, FAR))
        if lane.period > 1:
            number, place = var(Var(PERIOD, lane.rows // lane.period)), var(Var(PLACE, lane.period))
            lane, self.row = in_periods(lane, number, place), add(mul(number, lane.period), place)
        self.lane, self.tag = rename_lane(lane, tag), tag
        self.number = {b: n for n, b in enumerate(buffers_of(lane))}
        for result, arg in aliases.items():
            if result in self.number and arg in self.number:
                self.number[arg] = self.number[result]
        self.scope = {**self.number, **shared_scopes(self.number)}

    def body(self) -> Body:
        stages = self.lane.stages
        once = [s for stage in stages if stage.once for s in self._stage(stage)]
        turn: Body = []
        for loop, numbers in self.lane.loops:
            inside = [s for n in numbers if not stages[n].once for s in self._in_step(stages[n])]
            turn += inside if loop is None else self._turns(loop, inside)
        streams = any(isinstance(i, Streamed) for i in instructions_of(stages))
        return [*once, *self._steps(turn), *([Fence()] if streams else [])]

    def _turns(self, loop: Loop, inside: Body) -> Body:
        """A loop of stages."""
        tile = next((self._memory(tile) for tile, _ in asked(loop)), None)
        return launch_turns(loop, inside, tile, self.lane.step)

    def _in_step(self, stage: Stage) -> Body:
        return [*self._prefetches(stage), *self._stage(stage)]

    def _prefetches(self, stage: Stage) -> Iterator[Statement]:
        """Loops that ask for rows of this step or the next, line by line."""
        row = self.row if self.lane.step == 1 else _STEP
        for p in stage.prefetches:
            at = add(mul(add(row, const(p.ahead)), p.nbytes), mul(LINE, CACHE_LINE))
            asked = (Prefetch(self._pointer(p.buffer), at),)
            yield For("k", const(p.first), const(p.last), 1, asked)

    def _steps(self, body: Body) -> Body:
        """The body for every step of the task's share."""
        lane = self.lane
        if lane.rows == 1:
            return body
        if lane.flat:
            first = mul(PROGRAM, lane.share)
            last = add(first, const(lane.share))
            # only where shares reach beyond the rows: LLVM makes better loops of what it sees to be in range
            rows, share = (const(0), const(lane.rows)), lane.share
            begins = rows if share * (lane.programs - 1) > lane.rows else None
            ends = rows if share * lane.programs > lane.rows else None
            if not lane.block:
                return [Integer("lo", first, begins), Integer("hi", last, ends), *body]
            return [Integer("first", first, begins), Integer("last", last, ends), self._in_blocks(body)]
        steps = lane.rows // lane.step
        low = floordiv(mul(PROGRAM, steps), lane.programs)
        high = floordiv(mul(add(PROGRAM, const(1)), steps), lane.programs)
        name = ROW if lane.step == 1 else STEP
        loop = For(name, LOW, HIGH, 1, tuple(body)) if lane.period == 1 else self._periods(body)
        return [Integer("lo", low), Integer("hi", high), loop]

    def _in_blocks(self, body: Body) -> For:
        """The body for one block of the task's elements after another."""
        block = self.lane.block
        low, ends = add(FIRST, mul(GO, block)), (const(0), LAST)
        turn = (Integer("lo", low), Integer("hi", add(LOW, const(block)), ends), *body)
        rows = clamp(add(LAST, mul(FIRST, -1)), 0, self.lane.share)
        return For("go", const(0), floordiv(add(rows, const(block - 1)), block), 1, turn)

    def _periods(self, body: Body) -> For:
        """The body for the rows of the task's share, in a loop for each period that it has rows of."""
        period = self.lane.period
        before = mul(var(Var(PERIOD, FAR)), -period)
        first, last = (clamp(add(edge, before), 0, period) for edge in (LOW, HIGH))
        rows = For(PLACE, first, last, 1, tuple(body))
        return For(PERIOD, floordiv(LOW, period), floordiv(add(HIGH, const(period - 1)), period), 1, (rows,))

    def _stage(self, stage: Stage) -> Iterator[Statement]:
        yield from (Comment(note) for note in stage_notes(stage))
        for nest in stage.nests:
            match nest:
                case Product():
                    yield self._product(nest)
                case Sorting(items=items):
                    yield SortItems(self._memory(items), self._memory(nest.room), items.type.size)
                case _:
                    yield from self._nest(nest, 0)

    def _product(self, p: Product) -> Multiply:
        result, left, right = (
            Tile(self._memory(x.buffer), x.first, x.strides, x.buffer.type.dtype)
            for x in (p.result, p.left, p.right)
        )
        assert p.panel is not None
        return Multiply(result, left, right, p.sizes, self._memory(p.panel))

    def _nest(self, nest: Nest, depth: int) -> Body:
        out: Body = [self._instr(i) for i in nest.body if i.depth == depth]
        if depth < len(nest.loops):
            out += [Assign(a.name, a.init) for a in nest.accumulators if a.depth == depth]
            out += self._loop(nest, depth, self._nest(nest, depth + 1))
        return out + [self._instr(i) for i in nest.after if i.depth == depth]

    def _loop(self, nest: Nest, depth: int, inner: Body) -> Body:
        loop = nest.loops[depth]
        streams = [i for i in nest.body if isinstance(i, Streamed) and i.loop == depth]
        if streams and not streams[0].whole:
            return self._blocks(loop, streams, inner)
        span = self._span(loop)
        if span is None:
            return inner
        flushed = (self._flush(s, const(s.tile.type.nbytes)) for s in streams)
        return [For(loop.var.name, *span, 1, tuple(inner)), *flushed]

    def _span(self, loop: Loop) -> tuple[Index, Index] | None:
        """Where it begins and ends; None for the row loop of a one-row step: that is the step loop itself."""
        step = self.lane.step
        if loop.var.name != ROW:
            return const(loop.lo), const(loop.hi)
        if self.lane.flat:
            return floordiv(LOW, loop.each), floordiv(HIGH, loop.each)
        first = mul(_STEP, step)
        return (first, add(first, const(step))) if step > 1 else None

    def _blocks(self, loop: Loop, streams: Sequence[Streamed], inner: Body) -> Body:
        """An innermost loop cut into blocks, whose results go to memory one by one."""
        block, flat = streams[0].tile.type.size, self.lane.flat
        start = mul(BLOCK, block)
        last, blocks = const(loop.hi), const(-(-loop.hi // block))
        if flat:
            rows = clamp(add(HIGH, mul(LOW, -1)), 0, self.lane.share)
            last, blocks = HIGH, floordiv(add(rows, const(block - 1)), block)
            start = add(LOW, start)
        first = var(START)
        even = not flat and loop.hi % block == 0
        length = add(END, mul(first, -1))
        turn: Body = [
            Integer(START.name, start),
            Integer("end", add(first, const(block)), None if even else (const(0), last)),
            For(loop.var.name, first, END, 1, tuple(inner)),
            *(self._flush(s, mul(length, s.tile.type.dtype.itemsize)) for s in streams),
        ]
        return [For("w", const(0), blocks, 1, tuple(turn))]

    def _flush(self, s: Streamed, nbytes: Index) -> Stream:
        at = mul(s.target, s.tile.type.dtype.itemsize)
        return Stream(self._pointer(s.buffer), at, self._pointer(s.tile), nbytes)

    def _instr(self, instr: Instr) -> Statement:
        match instr:
            case Let(name, value, _):
                return Assign(name, value)
            case LoadPair(name, b, offset, _):
                return Read(name, self._memory(b), floordiv(offset, 2), DType.U32)
            case StorePair(b, offset, value, _, second):
                both = call("pack_bf16", value, second)
                return Write(self._memory(b), floordiv(offset, 2), DType.U32, both)
            case Load(name, b, offset, _):
                return Read(name, self._memory(b), offset, b.type.dtype)
            case Streamed(_, _, value, _, b, offset) | Store(b, offset, value, _):
                return Write(self._memory(b), offset, b.type.dtype, value)

    def _pointer(self, b: Buffer) -> str:
        return f"b{self.tag}{self.number[b]}"

    def _memory(self, b: Buffer) -> Apart:
        """Scope 0 is the table of pointers itself."""
        return Apart(self._pointer(b), self.scope[b] + 1)


def shared_scopes(buffers: Iterable[Buffer]) -> dict[Buffer, int]:
    """Tiles that share bytes may alias: all of them have the number of the first."""
    number = {b: n for n, b in enumerate(buffers)}
    found: dict[Buffer, int] = {}
    scope = end = -1
    for b in sorted((b for b in number if b.space is Space.ARENA), key=lambda b: b.offset):
        if b.offset >= end:
            scope = number[b]
        found[b], end = scope, max(end, b.offset + b.type.nbytes)
    return found
