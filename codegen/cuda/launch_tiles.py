"""What a CTA does for a lane that reads across the direction in which it writes: it turns tiles.

x0 = remainder_pos(p, 8) * 32                        out[r * 256 + i] = exp(a[i * 3000 + r])
y0 = quotient(p, 8) * 32
for k in unroll(4):                                  neighbouring threads: neighbours in a
    h0 = read_f32(a, lx * 3000 + ly)
    shared_store_f32(0, mx * 33 + my, h0)
barrier()
for k in unroll(4):                                  neighbouring threads: neighbours in out
    v0 = shared_load_f32(0, nx * 33 + ny)
    v1 = exp(v0)
    store_f32(out, sy * 256 + sx, v1)

Threads past the end of a direction work on its last element, and store nothing.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

from jstitch.codegen.comments import stage_notes
from jstitch.codegen.cuda.deal import is_dynamic
from jstitch.codegen.cuda.launch_lane import LaneCode
from jstitch.codegen.cuda.tile_axes import Axes, find_axes, in_vectors
from jstitch.codegen.cuda.tile_shape import TileShape, choose_shape
from jstitch.codegen.cuda.under import under
from jstitch.codegen.kernel_ir import Buffer, Instr, Lane, Let, Load, Store
from jstitch.codegen.launch_ir import (
    Assign,
    Barrier,
    Body,
    Comment,
    For,
    Get,
    Integer,
    Put,
    Read,
    Registers,
    Scope,
    Unroll,
    Write,
)
from jstitch.codegen.launch_places import FAR, THREAD, Elements, Global, Less, Shared, Test
from jstitch.codegen.memory_map import Area, LaneMap
from jstitch.ir.expr import Ref, variables
from jstitch.ir.index import Index, Var, add, atoms, const, delinearize, substitute, var

VECTOR = 4  # elements of a vector, where a tile is wide
TOGETHER = 8  # elements of a thread whose loads are in flight at once
LONG = 64  # instructions of an element above which elements are worked on one at a time
FULL = "the tiles are full"
X0, Y0 = var(Var("left", FAR)), var(Var("top", FAR))
"""The tile's corner."""


def launch_tiles(
    lane: Lane,
    pointer: Callable[[Buffer], str],
    read_only: Callable[[Buffer], bool],
    arena_bytes: int,
    block: int,
    tag: str,
) -> LaneCode | None:
    """The lane's code for one CTA of `block` threads; None for a lane that has no use for tiles."""
    axes = None if lane.exact or lane.counted else find_axes(lane, read_only)
    if axes is None:
        return None
    found = _Tiles(lane, axes, pointer, read_only, block, tag)
    return found.code() if found.shared <= arena_bytes else None


class _Tiles:
    def __init__(
        self,
        lane: Lane,
        axes: Axes,
        pointer: Callable[[Buffer], str],
        read_only: Callable[[Buffer], bool],
        block: int,
        tag: str,
    ) -> None:
        self.lane, self.axes, self.pointer, self.read_only, self.block = lane, axes, pointer, read_only, block
        self.tag = tag  # in the names that the code has besides the lane's
        sizes = [buffer.type.dtype.compute.itemsize for buffer, _ in axes.turned]
        planes = math.prod(d.extent for d in axes.planes)
        self.shape: TileShape = choose_shape(axes.along.extent, axes.across.extent, planes, sizes, block)
        self.columns = -(-axes.along.extent // self.shape.along)
        self.bands = -(-axes.across.extent // self.shape.across)
        self.programs = planes * self.columns * self.bands
        self.offsets: dict[tuple[Buffer, Index], int] = {}
        self.shared = 0
        self.width = 1  # elements that a thread works on at once
        for key, size in zip(axes.turned, sizes, strict=True):
            self.offsets[key] = self.shared
            self.shared += self.shape.nbytes(size)

    def code(self) -> LaneCode:
        tiles = f", in tiles of {self.shape.across} x {self.shape.along}"
        body: Body = [Comment(note) for note in stage_notes(self.lane.stages[0], tiles)]
        body += [*self._place(), *self._turn(), Barrier(Scope.CTA, FULL), *self._elements()]
        given = tuple(body), self.programs, self.block, self.shared
        return LaneCode(*given, self._traffic(), self._memory())

    # -- where ----------------------------------------------------------------------------------------

    def _place(self) -> Body:
        """The tile's plane and corner, from the program's number."""
        axes, shape = self.axes, self.shape
        extents = [*(d.extent for d in axes.planes), self.bands, self.columns]
        *planes, band, column = delinearize(var(Var("p", math.prod(extents))), extents)
        corner = Integer("left", column * shape.along), Integer("top", band * shape.across)
        places = (Integer(d.name, e) for d, e in zip(axes.planes, planes, strict=True))
        return [Integer("t", THREAD), *places, *corner]

    def _at(self, e: Index, x: Index, y: Index) -> Index:
        """An offset in digits, for the element x along and y across."""
        places = {self.axes.along: x, self.axes.across: y}
        return substitute(e, lambda a: places.get(a) if isinstance(a, Var) else None)

    def _along(self, name: str, *more: Var) -> Index:
        return functools.reduce(add, map(var, more), var(Var(name, self.axes.along.extent)))

    def _across(self, name: str, *more: Var) -> Index:
        return functools.reduce(add, map(var, more), var(Var(name, self.axes.across.extent)))

    @property
    def _cut(self) -> tuple[bool, bool]:
        """Whether tiles stand out along and across."""
        axes, shape = self.axes, self.shape
        return axes.along.extent % shape.along != 0, axes.across.extent % shape.across != 0

    def _inside(self, name: str, at: Index, direction: Var, cut: bool, width: int = 1) -> Integer:
        """The element of the tensor for the one of the tile; for those past the end, the last one."""
        return Integer(name, at, (const(0), const(direction.extent - width)) if cut else None)

    def _rounds(self, side: int, width: int, together: int, row: str, body: Body) -> Body:
        """The body for each vector of a thread: neighbours go round the threads, rows follow."""
        rounds = self.shape.along * self.shape.across // (self.block * width)
        many = min(rounds, together)
        k, g = var(Var("k", many)), var(Var("g", rounds))
        number = (k if many == rounds else g + k) * (self.block * width // side)
        first = Integer(row, self._thread // (side // width) + number)
        each = Unroll("k", many, (first, *body))
        return [each] if many == rounds else [For("g", const(0), const(rounds), many, (each,))]

    @property
    def _thread(self) -> Index:
        return var(Var("t", self.block))

    def _first(self, name: str, side: int, width: int) -> Integer:
        """The first neighbour that a thread takes."""
        return Integer(name, self._thread % (side // width) * width)

    def _tile(self, name: str, side: int) -> Index:
        """A place in a tile, in one of its directions."""
        return var(Var(name, side))

    # -- operands -------------------------------------------------------------------------------------

    def _turn(self) -> Body:
        """Load tiles, neighbours across."""
        axes, shape, (past_x, past_y) = self.axes, self.shape, self._cut
        wide = shape.wide and all(in_vectors(b, e, axes.across, VECTOR) for b, e in axes.turned)
        width = VECTOR if wide else 1
        mx, my = self._tile("mx", shape.along), self._tile("my", shape.across)
        j = var(Var("j", width))
        loads: Body = [self._inside("lx", X0 + mx, axes.along, past_x)]
        stores: Body = []
        for n, (buffer, e) in enumerate(axes.turned):
            dtype, name = buffer.type.dtype, f"h{self.tag}{n}"
            memory = Global(self.pointer(buffer), invariant=True)
            loads.append(Read(name, memory, self._at(e, self._along("lx"), self._across("ly")), dtype, width))
            if wide:
                stores.append(Get(f"{name}_u", name, j))
            place = shape.position(mx, my + j, dtype.compute.itemsize)
            tile, value = Shared(const(self.offsets[buffer, e])), Ref(f"{name}_u" if wide else name)
            stores.append(Write(tile, place, dtype.compute, value))
        body = loads + (_each(stores) if wide else stores)
        return [
            self._first("my", shape.across, width),
            self._inside("ly", Y0 + my, axes.across, past_y, width),
            *self._rounds(shape.across, width, TOGETHER // 2 if wide else TOGETHER, "mx", body),
        ]

    # -- results --------------------------------------------------------------------------------------

    def _elements(self) -> Body:
        """The scalar program, neighbours along."""
        axes, shape, (past_x, past_y) = self.axes, self.shape, self._cut
        stores = [(i.buffer, axes.offset(i.offset)) for i in axes.nest.body if isinstance(i, Store)]
        wide = shape.wide and all(
            in_vectors(b, e, axes.along, VECTOR) and not is_dynamic(e) for b, e in stores
        )
        self.width = VECTOR if wide else 1
        nx, ny = self._tile("nx", shape.along), self._tile("ny", shape.across)
        parts: tuple[Body, Body, Body] = [], self._variables(), []
        for i in axes.nest.body:
            self._instruction(i, *parts)
        before, inside, after = parts
        tests: list[Test] = [Less(X0 + nx, const(axes.along.extent))] if past_x else []
        tests += [Less(Y0 + ny, const(axes.across.extent))] if past_y else []
        in_place = any(isinstance(i, Load) and not self.read_only(i.buffer) for i in axes.nest.body)
        body = [*before, *(_each(inside) if wide else inside)]
        body = _all_hold(tests, body + after) if in_place else body + _all_hold(tests, after)
        together = 1 if len(axes.nest.body) > LONG else TOGETHER // 2 // (2 if wide else 1)
        row = self._inside("sy", Y0 + ny, axes.across, past_y)
        return [
            self._first("nx", shape.along, self.width),
            self._inside("sx", X0 + nx, axes.along, past_x, self.width),
            *self._rounds(shape.along, self.width, together, "ny", [row, *body]),
        ]

    def _variables(self) -> Body:
        """Loop variables that scalar expressions read."""
        body = self.axes.nest.body
        read = {name for i in body if not isinstance(i, Load) for name in variables(i.value)}
        return [Integer(n, self._here(e)) for n, e in self.axes.places.items() if n in read]

    def _here(self, e: Index) -> Index:
        """An offset in digits, for the element that the scalar program works on."""
        return self._at(e, self._along("sx", *[Var("j", VECTOR)] * (self.width > 1)), self._across("sy"))

    def _instruction(self, i: Instr, before: Body, inside: Body, after: Body) -> None:
        """before: for all elements of a vector; inside: for each; after: stores."""
        if isinstance(i, Let):
            inside.append(Assign(i.name, i.value))
        elif isinstance(i, Store):
            self._store(i, before, inside, after)
        elif (i.buffer, self.axes.offset(i.offset)) in self.offsets:
            inside.append(self._turned(i))
        else:
            self._load(i, before, inside)

    def _store(self, i: Store, before: Body, inside: Body, after: Body) -> None:
        dtype, e, memory = i.buffer.type.dtype, self.axes.offset(i.offset), Global(self.pointer(i.buffer))
        first = self._at(e, self._along("sx"), self._across("sy"))
        if self.width == 1:
            after.append(Write(memory, first, dtype, i.value))
            return
        name = f"w{self.tag}{len(after)}"
        before.append(Registers(name, dtype.compute, VECTOR))
        inside.append(Put(name, var(Var("j", VECTOR)), i.value))
        after.append(Write(memory, first, dtype, Elements(name, const(0)), VECTOR))

    def _load(self, i: Load, before: Body, inside: Body) -> None:
        """Of an element that is read where it lies."""
        dtype, e = i.buffer.type.dtype, self.axes.offset(i.offset)
        memory = Global(self.pointer(i.buffer), invariant=self.read_only(i.buffer))
        if self.width == 1 or is_dynamic(e):
            inside.append(Read(i.name, memory, self._here(e), dtype))
        elif in_vectors(i.buffer, e, self.axes.along, VECTOR):
            first = self._at(e, self._along("sx"), self._across("sy"))
            before.append(Read(f"{i.name}_v", memory, first, dtype, VECTOR))
            inside.append(Get(i.name, f"{i.name}_v", var(Var("j", VECTOR))))
        else:
            same = self.axes.along not in atoms([e])
            (before if same else inside).append(Read(i.name, memory, self._here(e), dtype))

    def _turned(self, i: Load) -> Read:
        """From a tile."""
        dtype = i.buffer.type.dtype.compute
        nx, ny = self._tile("nx", self.shape.along), self._tile("ny", self.shape.across)
        j = var(Var("j", self.width))
        tile = Shared(const(self.offsets[i.buffer, self.axes.offset(i.offset)]))
        return Read(i.name, tile, self.shape.position(nx + j, ny, dtype.itemsize), dtype)

    # -- bytes ----------------------------------------------------------------------------------------

    def _memory(self) -> LaneMap:
        """A tile of each operand that is turned."""
        what = f"{self.shape.across} x {self.shape.along} elements, to be turned"
        areas = tuple(
            Area(b.name, what, at, self.shape.nbytes(b.type.dtype.compute.itemsize), 0, 0)
            for (b, _), at in self.offsets.items()
        )
        return LaneMap(0, 0, (self.lane.stages[0].note,), areas, self.shared)

    def _traffic(self) -> tuple[int, int]:
        """(read, written) by all programs; equal loads of an element are one."""
        read: dict[tuple[Buffer, Index], int] = {}
        written = 0
        for i in self.axes.nest.body:
            if isinstance(i, Let):
                continue
            times = math.prod(loop.var.extent for loop in self.axes.nest.loops[: i.depth])
            nbytes = min(times, i.buffer.type.size) * i.buffer.type.dtype.itemsize
            if isinstance(i, Load):
                read[i.buffer, i.offset] = nbytes
            else:
                written += nbytes
        return sum(read.values()), written


def _each(body: Body) -> Body:
    """The statements for each element of a vector."""
    return [Unroll("j", VECTOR, tuple(body))]


def _all_hold(tests: Sequence[Test], body: Body) -> Body:
    for test in reversed(tests):
        body = under(test, body)
    return body
