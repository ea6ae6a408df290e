"""The text of a lane that reads across the direction in which it writes: tiles turned in the arena.

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
from collections.abc import Callable

from jstitch.codegen.branches import indent
from jstitch.codegen.comments import stage_comments
from jstitch.codegen.cuda.deal import is_dynamic
from jstitch.codegen.cuda.emit_lane import LaneText
from jstitch.codegen.cuda.emit_nest import guarded, suffix
from jstitch.codegen.cuda.tile_axes import Axes, find_axes, in_vectors
from jstitch.codegen.cuda.tile_shape import TileShape, choose_shape
from jstitch.codegen.kernel_ir import Buffer, Instr, Lane, Let, Load, Store
from jstitch.codegen.memory_map import Area, LaneMap
from jstitch.codegen.print_expr import print_expr
from jstitch.codegen.print_index import print_index
from jstitch.ir.expr import variables
from jstitch.ir.index import Index, Var, add, atoms, delinearize, mul, substitute, var

VECTOR = 4  # elements of a vector, where a tile is wide
TOGETHER = 8  # elements of a thread whose loads are in flight at once
LONG = 64  # instructions of an element above which elements are worked on one at a time


def emit_tiles(
    lane: Lane,
    pointer: Callable[[Buffer], str],
    read_only: Callable[[Buffer], bool],
    arena_bytes: int,
    block: int,
    tag: str,
) -> LaneText | None:
    """The lane's code for one CTA of `block` threads; None for a lane that has no use for tiles."""
    axes = find_axes(lane, read_only)
    if axes is None:
        return None
    found = _Tiles(lane, axes, pointer, read_only, block, tag)
    return found.emit() if found.shared <= arena_bytes else None


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
        self.tag = tag  # in the names that the text has besides the lane's
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

    def emit(self) -> LaneText:
        tiles = f", in tiles of {self.shape.across} x {self.shape.along}"
        lines = stage_comments(self.lane.stages[0], tiles)
        lines += [*self._place(), *self._turn(), "barrier()", *self._elements()]
        given = tuple(lines), self.programs, self.block, self.shared
        return LaneText(*given, self._traffic(), self._memory())

    # -- where ----------------------------------------------------------------------------------------

    def _place(self) -> list[str]:
        """The tile's plane and corner, from the program's number."""
        axes, shape = self.axes, self.shape
        extents = [*(d.extent for d in axes.planes), self.bands, self.columns]
        *planes, band, column = delinearize(var(Var("p", math.prod(extents))), extents)
        lines = ["t = thread()"]
        lines += [f"{d.name} = {print_index(e)}" for d, e in zip(axes.planes, planes, strict=True)]
        return [
            *lines,
            f"x0 = {print_index(mul(column, shape.along))}",
            f"y0 = {print_index(mul(band, shape.across))}",
        ]

    def _text(self, e: Index, x: Index, y: Index) -> str:
        """An offset in digits, for the element x along and y across."""
        places = {self.axes.along: x, self.axes.across: y}
        return print_index(substitute(e, lambda a: places.get(a) if isinstance(a, Var) else None))

    def _along(self, name: str, *more: Var) -> Index:
        return functools.reduce(add, map(var, more), var(Var(name, self.axes.along.extent)))

    def _across(self, name: str, *more: Var) -> Index:
        return functools.reduce(add, map(var, more), var(Var(name, self.axes.across.extent)))

    @property
    def _cut(self) -> tuple[bool, bool]:
        """Whether tiles stand out along and across."""
        axes, shape = self.axes, self.shape
        return axes.along.extent % shape.along != 0, axes.across.extent % shape.across != 0

    def _inside(self, name: str, at: str, direction: Var, cut: bool, width: int = 1) -> str:
        return f"{name} = clamp_index({at}, 0, {direction.extent - width})" if cut else f"{name} = {at}"

    def _rounds(self, side: int, width: int, together: int, row: str, body: list[str]) -> list[str]:
        """The body for each vector of a thread: neighbours go round the threads, rows follow."""
        rounds = self.shape.along * self.shape.across // (self.block * width)
        many = min(rounds, together)
        first = "k" if many == rounds else "(g + k)"
        lines = [
            f"for k in unroll({many}):",
            f"    {row} = quotient(t, {side // width}) + {first} * {self.block * width // side}",
            *indent(body),
        ]
        return lines if many == rounds else [f"for g in range(0, {rounds}, {many}):", *indent(lines)]

    def _first(self, name: str, side: int, width: int) -> str:
        """The first neighbour that a thread takes."""
        number = f"remainder_pos(t, {side // width})"
        return f"{name} = {number} * {width}" if width > 1 else f"{name} = {number}"

    # -- operands -------------------------------------------------------------------------------------

    def _turn(self) -> list[str]:
        """Load tiles, neighbours across."""
        axes, shape, (past_x, past_y) = self.axes, self.shape, self._cut
        wide = shape.wide and all(in_vectors(b, e, axes.across, VECTOR) for b, e in axes.turned)
        width = VECTOR if wide else 1
        loads = [self._inside("lx", "x0 + mx", axes.along, past_x)]
        stores: list[str] = []
        for n, (buffer, e) in enumerate(axes.turned):
            dtype = buffer.type.dtype
            name = f"h{self.tag}{n}"
            tail, value, my = (f"x{width}", f"{name}[j]", "my + j") if wide else ("", name, "my")
            at = self._text(e, self._along("lx"), self._across("ly"))
            loads.append(f"{name} = read_{suffix(dtype)}{tail}({self.pointer(buffer)}, {at})")
            place = shape.position("mx", my, dtype.compute.itemsize)
            start = self.offsets[buffer, e]
            stores.append(f"shared_store_{suffix(dtype.compute)}({start}, {place}, {value})")
        body = loads + (_each(stores) if wide else stores)
        return [
            self._first("my", shape.across, width),
            self._inside("ly", "y0 + my", axes.across, past_y, width),
            *self._rounds(shape.across, width, TOGETHER // 2 if wide else TOGETHER, "mx", body),
        ]

    # -- results --------------------------------------------------------------------------------------

    def _elements(self) -> list[str]:
        """The scalar program, neighbours along."""
        axes, shape, (past_x, past_y) = self.axes, self.shape, self._cut
        stores = [(i.buffer, axes.offset(i.offset)) for i in axes.nest.body if isinstance(i, Store)]
        wide = shape.wide and all(
            in_vectors(b, e, axes.along, VECTOR) and not is_dynamic(e) for b, e in stores
        )
        self.width = VECTOR if wide else 1
        parts: tuple[list[str], list[str], list[str]] = [], self._variables(), []
        for i in axes.nest.body:
            self._instruction(i, *parts)
        before, inside, after = parts
        tests = [f"x0 + nx < {axes.along.extent}"] * past_x + [f"y0 + ny < {axes.across.extent}"] * past_y
        in_place = any(isinstance(i, Load) and not self.read_only(i.buffer) for i in axes.nest.body)
        body = [*before, *(_each(inside) if wide else inside)]
        body = _all_hold(tests, body + after) if in_place else body + _all_hold(tests, after)
        together = 1 if len(axes.nest.body) > LONG else TOGETHER // 2 // (2 if wide else 1)
        return [
            self._first("nx", shape.along, self.width),
            self._inside("sx", "x0 + nx", axes.along, past_x, self.width),
            *self._rounds(
                shape.along,
                self.width,
                together,
                "ny",
                [self._inside("sy", "y0 + ny", axes.across, past_y), *body],
            ),
        ]

    def _variables(self) -> list[str]:
        """Loop variables that scalar expressions read."""
        body = self.axes.nest.body
        read = {name for i in body if not isinstance(i, Load) for name in variables(i.value)}
        return [f"{n} = {self._here(e)}" for n, e in self.axes.places.items() if n in read]

    def _here(self, e: Index) -> str:
        """An offset in digits, for the element that the scalar program works on."""
        return self._text(e, self._along("sx", *[Var("j", VECTOR)] * (self.width > 1)), self._across("sy"))

    def _instruction(self, i: Instr, before: list[str], inside: list[str], after: list[str]) -> None:
        """before: for all elements of a vector; inside: for each; after: stores."""
        if isinstance(i, Let):
            inside.append(f"{i.name} = {print_expr(i.value)}")
            return
        dtype, e, pointer = suffix(i.buffer.type.dtype), self.axes.offset(i.offset), self.pointer(i.buffer)
        first = self._text(e, self._along("sx"), self._across("sy"))
        if isinstance(i, Store) and self.width > 1:
            name = f"w{self.tag}{len(after)}"
            before.append(f"{name} = registers_{suffix(i.buffer.type.dtype.compute)}({VECTOR})")
            inside.append(f"{name}[j] = {print_expr(i.value)}")
            after.append(f"store_{dtype}x{VECTOR}({pointer}, {first}, {name}, 0)")
        elif isinstance(i, Store):
            after.append(f"store_{dtype}({pointer}, {first}, {print_expr(i.value)})")
        elif (i.buffer, e) in self.offsets:
            inside.append(f"{i.name} = {self._turned(i.buffer, e)}")
        else:
            load = f"{'read' if self.read_only(i.buffer) else 'load'}_{dtype}"
            if self.width == 1 or is_dynamic(e):
                inside.append(f"{i.name} = {load}({pointer}, {self._here(e)})")
            elif in_vectors(i.buffer, e, self.axes.along, VECTOR):
                before.append(f"{i.name}_v = {load}x{VECTOR}({pointer}, {first})")
                inside.append(f"{i.name} = {i.name}_v[j]")
            else:
                same = self.axes.along not in atoms([e])
                (before if same else inside).append(f"{i.name} = {load}({pointer}, {self._here(e)})")

    def _turned(self, buffer: Buffer, e: Index) -> str:
        dtype = buffer.type.dtype.compute
        at = self.shape.position("(nx + j)" if self.width > 1 else "nx", "ny", dtype.itemsize)
        return f"shared_load_{suffix(dtype)}({self.offsets[buffer, e]}, {at})"

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


def _each(lines: list[str]) -> list[str]:
    """The lines for each element of a vector."""
    return [f"for j in unroll({VECTOR}):", *indent(lines)]


def _all_hold(tests: list[str], lines: list[str]) -> list[str]:
    for test in reversed(tests):
        lines = guarded(test, lines)
    return lines
