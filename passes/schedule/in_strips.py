"""Statistics of columns and the rows after them in two launches instead of three.

phase 0   sums of columns: 198 programs of rows          8 bands of rows x 64 strips of 64 columns
phase 1   combined, and what becomes of them             -
phase 2   the rows again, with what became of them       the same bands and strips: each program combines
                                                         the bands' sums of its own strip before its rows

A program that took whole rows would have to combine all columns. One of a strip combines as few as it reads,
and leaves what becomes of them in its arena. The latency-evaluator says into how many strips and bands, if
into any: a launch less must be worth what the bands' sums take to be read again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from jstitch.codegen.backend import CannotBuildError
from jstitch.codegen.cuda.deal import mentions
from jstitch.codegen.cuda.homes import NoRoom
from jstitch.codegen.cuda.wanted import Carry, find_carries
from jstitch.codegen.kernel_ir import (
    PROGRAM,
    ROW,
    STRIP,
    Buffer,
    Instr,
    Kernel,
    Lane,
    Let,
    Load,
    Loop,
    Nest,
    Phase,
    Space,
    Stage,
    Store,
    StripLane,
)
from jstitch.codegen.kernel_queries import touched_by
from jstitch.device_spec import DeviceSpec
from jstitch.ir.expr import variables
from jstitch.ir.index import Index, Var, add, mul, substitute, var
from jstitch.ir.types import TensorType
from jstitch.passes.base.context import Context
from jstitch.passes.base.machine import Machine
from jstitch.passes.schedule.latency_gpu import gpu_phases
from jstitch.passes.schedule.latency_value import Latency

MOST, LEAST = 256, 32  # columns of a strip
ALIGN = 64  # bytes
SECTOR = 8  # columns that are whole sectors of memory
CLOSE = 1.1  # times that the evaluator does not tell apart
CTAS = 1, 2, 4, 6, 8  # numbers of programs, for each multiprocessor, that are looked at


@dataclass(frozen=True)
class _Shape:
    columns: int
    strips: int
    bands: int


def in_strips(kernel: Kernel, context: Context) -> Kernel:
    """The kernel, three of its phases of such a kind replaced by two where that is expected to be faster."""
    device = context.machine.device
    if device is None:
        return kernel
    n = 0
    while n + 2 < len(kernel.phases):
        two = _best([*two_phases(kernel, n, device.sms)], context.machine, device)
        if two is None or _latency(kernel, context.machine, device).seconds <= two[1].seconds:
            n += 1
        else:
            kernel, n = two[0], n + 2
    return kernel


def _best(forms: Sequence[Kernel], machine: Machine, device: DeviceSpec) -> tuple[Kernel, Latency] | None:
    """Of those about as fast as the fastest: a percent less of bytes, which are certain, for one of time."""
    timed = [(form, _latency(form, machine, device)) for form in forms]
    if not timed:
        return None
    least = min(latency.seconds for _, latency in timed)
    close = [x for x in timed if x[1].seconds <= CLOSE * least]
    return min(close, key=lambda x: x[1].nbytes * x[1].seconds)


def two_phases(kernel: Kernel, n: int, sms: int) -> Iterator[Kernel]:
    """The kernel with phases n to n + 2 as two, for every number of strips and bands worth a look."""
    phases, rest = kernel.phases[n : n + 3], [*kernel.phases[:n], *kernel.phases[n + 3 :]]
    if any(len(phase.lanes) != 1 or isinstance(phase.lanes[0], StripLane) for phase in phases):
        return
    sums, rows = phases[0].lanes[0], phases[2].lanes[0]
    for shape in _shapes(_columns(rows), rows.rows if sums.programs > 1 else 1, sms):
        room = _Room(kernel.scratch_bytes, kernel.arena_bytes)
        two = _Three(phases, rest, kernel.in_place, room).two(shape)
        if not two:
            return
        made = (*kernel.phases[:n], *two, *kernel.phases[n + 3 :])
        yield _declared(replace(kernel, phases=made), room)


def _latency(kernel: Kernel, machine: Machine, device: DeviceSpec) -> Latency:
    """As far as `divide_phases` need not act."""
    try:
        return sum(gpu_phases(kernel, machine, device), Latency())
    except (NoRoom, CannotBuildError):
        return Latency(launches=math.inf)


def _declared(kernel: Kernel, room: _Room) -> Kernel:
    """The kernel with the scratch and the tiles that its phases touch."""
    touched = dict.fromkeys(b for *_, i in kernel.instructions() for b in touched_by(i))
    scratch, arena = (tuple(b for b in touched if b.space is space) for space in (Space.SCRATCH, Space.ARENA))
    return replace(kernel, scratch=scratch, arena=arena, scratch_bytes=room.scratch, arena_bytes=room.arena)


@dataclass
class _Room:
    """Bytes of a call's scratch and of a program's arena; what is new goes behind them."""

    scratch: int
    arena: int

    def add(self, b: Buffer) -> Buffer:
        """The buffer in a place of its own."""
        nbytes = -(-b.type.nbytes // ALIGN) * ALIGN
        if b.space is Space.ARENA:
            placed, self.arena = replace(b, offset=self.arena), self.arena + nbytes
        else:
            placed, self.scratch = replace(b, offset=self.scratch), self.scratch + nbytes
        return placed


class _Three:
    """Three phases: sums of columns, what becomes of them, rows. rest: the kernel's other phases.

    in_place: results -> arguments whose memory they take. room: for buffers of the two phases.
    """

    def __init__(
        self,
        phases: Sequence[Phase],
        rest: Sequence[Phase],
        in_place: Mapping[Buffer, Buffer],
        room: _Room,
    ) -> None:
        self.phases, self.in_place, self.room = phases, in_place, room
        self.elsewhere = {i.buffer for phase in rest for lane in phase.lanes for i in _accesses(lane.stages)}
        self.tiles: dict[Buffer, Buffer] = {}  # of the middle lane, and what it leaves for the rows
        self.partials: dict[Buffer, tuple[Carry, Buffer]] = {}

    def two(self, shape: _Shape) -> list[Phase]:
        """The two phases that do the same, [] where there are none."""
        sums, middle, rows = lanes = [phase.lanes[0] for phase in self.phases]
        if any(lane.exact or lane.counted for lane in lanes):
            return []
        if not self._fits(sums, middle, rows):
            return []
        self._name_buffers(sums, middle, rows, shape)
        first, before, after = (_Strip(self, lane, shape) for lane in (sums, middle, rows))
        try:
            a, b, c = first.stages(), before.stages(once=True), after.stages()
        except _CannotMove:
            return []
        common = tuple(self.tiles[v] for v in self._left(middle, rows))
        given = {"programs": shape.bands * shape.strips, "strips": shape.strips, "columns": shape.columns}
        made = (
            _strip_lane(sums, a, **given),
            _strip_lane(rows, b + c, **given, before=len(b), common=common),
        )
        return [Phase((lane,)) for lane in made]

    # -- whether --------------------------------------------------------------------------------------

    def _fits(self, sums: Lane, middle: Lane, rows: Lane) -> bool:
        if not sums.rows == rows.rows > 1 == middle.rows or max(sums.step, rows.step) > 1:
            return False
        if sums.flat or rows.flat or not any(s.once for s in sums.stages):
            return False
        if any(s.once for s in (*middle.stages, *rows.stages)):
            return False
        size = _columns(rows)
        bodies = [n for s in (*sums.stages, *rows.stages) if not s.once for n in s.nests]
        if size < LEAST or not all(_is_elementwise(n, size) for n in bodies):
            return False
        nests = [n for s in middle.stages for n in s.nests]
        columns = all(_is_of_columns(n, size, sums.programs) for n in nests)
        return columns and self._is_private(sums, middle, rows)

    def _is_private(self, sums: Lane, middle: Lane, rows: Lane) -> bool:
        """Whether nobody else looks at the partial results and what becomes of them, or overwrites it."""
        read, written = (_buffers(middle, kind) for kind in (Load, Store))
        scratch = {b for b in written if b.space is Space.SCRATCH}
        overwritten = {self.in_place.get(b, b) for b in (*written, *_buffers(rows, Store))}
        seen = {*find_carries(sums), *scratch} & self.elsewhere or scratch - {*_buffers(rows, Load)}
        return not seen and overwritten.isdisjoint(b for b in read if b.space is not Space.ARENA)

    @staticmethod
    def _left(middle: Lane, rows: Lane) -> list[Buffer]:
        """What the middle lane leaves for the rows."""
        read = _buffers(rows, Load)
        return [b for b in _buffers(middle, Store) if b in read and b.space is not Space.ARENA]

    # -- buffers --------------------------------------------------------------------------------------

    def _name_buffers(self, sums: Lane, middle: Lane, rows: Lane, shape: _Shape) -> None:
        programs = shape.bands * shape.strips
        for b, carry in find_carries(sums).items():
            dims = (programs,) if carry.size == 1 else (programs, shape.columns)
            self.partials[b] = carry, self.room.add(replace(b, type=TensorType(dims, b.type.dtype)))
        stays = [b for b in _buffers(middle, Store) if b.space is Space.ARENA]
        for b in (*stays, *self._left(middle, rows)):
            t = TensorType((1, shape.columns), b.type.dtype)
            self.tiles[b] = self.room.add(Buffer(b.name, t, Space.ARENA, b.number))


class _CannotMove(Exception):
    """An offset that a strip's columns cannot be put into."""


class _Strip:
    """The stages of one lane for a strip."""

    def __init__(self, three: _Three, lane: Lane, shape: _Shape) -> None:
        self.three, self.lane, self.shape = three, lane, shape
        self.strip = var(Var(STRIP, shape.strips))
        self.adds = any(s.once for s in lane.stages)  # to partial results, which others combine

    def stages(self, once: bool = False) -> tuple[Stage, ...]:
        return tuple(
            replace(
                s,
                nests=tuple(self._start(n) if s.once else self._nest(n) for n in s.nests),
                once=s.once or once,
            )
            for s in self.lane.stages
        )

    def _start(self, nest: Nest) -> Nest:
        """A partial result's first value."""
        (store,) = (i for i in nest.body if isinstance(i, Store))
        _, buffer = self.three.partials[store.buffer]
        size = buffer.type.size // buffer.type.shape[0]
        i = Var("i", size)
        at = add(mul(self._program(), size), var(i))
        return replace(nest, loops=(Loop(i, 0, size),), body=(Store(buffer, at, store.value, 1),))

    def _nest(self, nest: Nest) -> Nest:
        loops = [loop for loop in nest.loops if loop.var.name != ROW]
        column = loops[0].var.name
        if any(column in _read(i) for i in nest.instructions):
            raise _CannotMove
        reduced = loops[1].var.name if len(loops) > 1 else None
        extents = {column: self.shape.columns}
        if reduced is not None:
            extents[reduced] = self.shape.bands
        narrowed = tuple(
            Loop(Var(loop.var.name, n), 0, n) if (n := extents.get(loop.var.name)) else loop
            for loop in nest.loops
        )

        def moved(instructions: Iterable[Instr]) -> tuple[Instr, ...]:
            return tuple(m for i in instructions for m in self._moved(i, column, reduced))

        combines = tuple(
            replace(c, buffers=tuple(self._partial(b) for b in c.buffers)) for c in nest.combines
        )
        body, after = moved(nest.body), moved(nest.after)
        return replace(nest, loops=narrowed, body=body, after=after, combines=combines)

    def _partial(self, b: Buffer) -> Buffer:
        return self.three.partials[b][1]

    def _moved(self, i: Instr, column: str, reduced: str | None) -> Iterator[Instr]:
        """The instruction for a strip; a result that the rows look at is stored in its tile as well."""
        if isinstance(i, Let):
            yield i
            return
        if i.buffer not in self.three.tiles or (isinstance(i, Store) and i.buffer.space is Space.RESULT):
            yield self._in_memory(i, column, reduced)
        if i.buffer in self.three.tiles:
            if reduced is not None and mentions(i.offset, reduced):
                raise _CannotMove
            at = self._column(i.offset, column, exactly=True)
            yield replace(i, buffer=self.three.tiles[i.buffer], offset=at)

    def _in_memory(self, i: Load | Store, column: str, reduced: str | None) -> Load | Store:
        b = i.buffer
        if b in self.three.partials:
            carry, buffer = self.three.partials[b]
            if reduced is None and not self.adds and self.shape.bands > 1:
                raise _CannotMove
            local = carry.local(i.offset) if reduced is None else self._apart(i.offset, reduced, carry.size)
            size = 1 if carry.size == 1 else self.shape.columns
            program = self._program() if reduced is None else self._of_band(reduced)
            return replace(i, buffer=buffer, offset=add(mul(program, size), self._column(local, column)))
        if reduced is not None and mentions(i.offset, reduced):
            raise _CannotMove
        here = self._column(i.offset, column)
        moves = mentions(i.offset, column)
        return replace(i, offset=add(here, mul(self.strip, self.shape.columns)) if moves else here)

    def _apart(self, e: Index, reduced: str, size: int) -> Index:
        """An offset in a partial result, without the program that made it."""
        found = [(a, k) for a, k in e.terms if isinstance(a, Var) and a.name == reduced]
        if len(found) != 1 or found[0][1] != size:
            raise _CannotMove
        ((a, k),) = found
        rest = add(e, mul(var(a), -k))
        if mentions(rest, reduced):
            raise _CannotMove
        return rest

    def _column(self, e: Index, column: str, exactly: bool = False) -> Index:
        """The offset with the column's number in its strip; a column's neighbour must be its neighbour."""
        own = [(a, k) for a, k in e.terms if mentions(Index(0, ((a, k),)), column)]
        plain = all(isinstance(a, Var) and k == 1 for a, k in own)
        if not plain or len(own) > 1 or (exactly and len(own) != len(e.terms)):
            raise _CannotMove
        here = var(Var(column, self.shape.columns))
        return substitute(e, lambda a: here if isinstance(a, Var) and a.name == column else None)

    def _program(self) -> Index:
        return var(Var(PROGRAM, self.shape.bands * self.shape.strips))

    def _of_band(self, name: str) -> Index:
        """The program that has this strip of another band."""
        return add(mul(var(Var(name, self.shape.bands)), self.shape.strips), self.strip)


def _strip_lane(lane: Lane, stages: tuple[Stage, ...], programs: int, **given: object) -> StripLane:
    make: Callable[..., StripLane] = StripLane
    return make(lane.rows, 1, programs, stages, False, lane.work, shares=lane.shares, **given)


def _columns(rows: Lane) -> int:
    """Elements of a row; 0 where there are no loops over them."""
    loops = next((n.loops for s in rows.stages for n in s.nests), ())
    return next((loop.var.extent for loop in loops if loop.var.name != ROW), 0)


def _is_elementwise(nest: Nest, size: int) -> bool:
    """Whether a nest does the same with each element of a row, without tiles."""
    loops = [loop for loop in nest.loops if loop.var.name != ROW]
    tiles = any(i.buffer.space is Space.ARENA for i in _instructions(nest))
    return (
        not nest.accumulators
        and not tiles
        and [(x.lo, x.hi, x.var.extent) for x in loops] == [(0, size, size)]
    )


def _is_of_columns(nest: Nest, size: int, programs: int) -> bool:
    """Whether a nest does the same with each column, or combines the partial results of each."""
    loops = [(loop.lo, loop.hi, loop.var.extent) for loop in nest.loops]
    combined = {name for c in nest.combines if not c.buffers for name in c.names}
    known = all(a.depth == 1 and a.name in combined for a in nest.accumulators)
    wanted = [(0, size, size), (0, programs, programs)] if nest.accumulators else [(0, size, size)]
    return known and loops == wanted and all(i.depth >= 1 or isinstance(i, Let) for i in nest.instructions)


def _shapes(size: int, most: int, sms: int) -> Iterator[_Shape]:
    """Even strips of `size` columns, and at most so many bands: programs in whole rounds."""
    parts = [n for n in range(MOST, LEAST - 1, -SECTOR) if size and size % n == 0]
    looked_at = {parts[0], parts[len(parts) // 2], parts[-1]} if parts else {size} & {*range(LEAST, MOST + 1)}
    for columns in sorted(looked_at):
        strips = size // columns
        wanted = (max(1, round(sms * each / strips)) for each in CTAS)
        for bands in dict.fromkeys(min(n, most) for n in wanted):
            yield _Shape(columns, strips, bands)


def _buffers(lane: Lane, kind: type[Load | Store]) -> list[Buffer]:
    """That are loaded, or stored."""
    return list(dict.fromkeys(i.buffer for i in _accesses(lane.stages) if isinstance(i, kind)))


def _accesses(stages: Iterable[Stage]) -> list[Load | Store]:
    return [i for stage in stages for nest in stage.nests for i in _instructions(nest)]


def _instructions(nest: Nest) -> list[Load | Store]:
    return [i for i in nest.instructions if not isinstance(i, Let)]


def _read(i: Instr) -> set[str]:
    """Loop variables that a scalar expression reads."""
    return set() if isinstance(i, Load) else set(variables(i.value))
