"""The text of a lane that reads across the direction in which it writes: tiles turned in the arena.

x0 = remainder_pos(p, 8) * 64                        out[r * 512 + i] = exp(a[i * 3000 + r])
y0 = quotient(p, 8) * 64
for k in unroll(8):                                  neighbouring threads: neighbours in a
    h0 = read_f32(a, lx * 3000 + ly)
    shared_store_f32(0, mx * 65 + my, h0)
barrier()
for k in unroll(4):                                  neighbouring threads: neighbours in out
    v0 = shared_load_f32(0, nx * 65 + ny)
    v1 = exp(v0)
    store_f32(out, sy * 512 + sx, v1)

Threads past the end of a direction work on its last element, and store nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from jstitch.codegen.cuda.emit_lane import LaneText
from jstitch.codegen.cuda.emit_nest import guarded, indent, suffix
from jstitch.codegen.cuda.tile_axes import Axes, find_axes
from jstitch.codegen.cuda.tile_shape import TileShape, choose_shape
from jstitch.codegen.kernel_ir import Buffer, Instr, Lane, Let, Load, Store
from jstitch.codegen.print_index import print_index
from jstitch.ir.index import Index, Var, delinearize, mul, substitute, var

TOGETHER = 8  # elements of a thread whose loads are in flight at once
LONG = 64  # instructions of an element above which elements are worked on one at a time


def emit_tiles(
    lane: Lane,
    pointer: Callable[[Buffer], str],
    read_only: Callable[[Buffer], bool],
    arena_bytes: int,
    block: int,
) -> LaneText | None:
    """The lane's code for one CTA of `block` threads; None for a lane that has no use for tiles."""
    axes = find_axes(lane, read_only)
    if axes is None:
        return None
    found = _Tiles(lane, axes, pointer, read_only, block)
    return found.emit() if found.shared <= arena_bytes else None


class _Tiles:
    def __init__(
        self,
        lane: Lane,
        axes: Axes,
        pointer: Callable[[Buffer], str],
        read_only: Callable[[Buffer], bool],
        block: int,
    ) -> None:
        self.lane, self.axes, self.pointer, self.read_only, self.block = lane, axes, pointer, read_only, block
        sizes = [buffer.type.dtype.compute.itemsize for buffer, _ in axes.turned]
        planes = math.prod(d.extent for d in axes.planes)
        self.shape: TileShape = choose_shape(axes.along.extent, axes.across.extent, planes, sizes, block)
        self.columns = -(-axes.along.extent // self.shape.along)
        self.bands = -(-axes.across.extent // self.shape.across)
        self.programs = planes * self.columns * self.bands
        self.offsets: dict[tuple[Buffer, Index], int] = {}
        self.shared = 0
        for key, size in zip(axes.turned, sizes, strict=True):
            self.offsets[key] = self.shared
            self.shared += self.shape.nbytes(size)

    def emit(self) -> LaneText:
        lines = [f"# {self.lane.stages[0].note}, in tiles of {self.shape.across} x {self.shape.along}"]
        lines += [*self._place(), *self._turn(), "barrier()", *self._elements()]
        return LaneText(tuple(lines), self.programs, self.block, self.shared, self._traffic())

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

    def _text(self, e: Index, x: str, y: str) -> str:
        """An offset in digits, for the element x along and y across."""
        names = {self.axes.along: x, self.axes.across: y}

        def place(a: object) -> Index | None:
            return var(Var(names[a], a.extent)) if isinstance(a, Var) and a in names else None

        return print_index(substitute(e, place))

    @property
    def _cut(self) -> tuple[bool, bool]:
        """Whether tiles stand out along and across."""
        axes, shape = self.axes, self.shape
        return axes.along.extent % shape.along != 0, axes.across.extent % shape.across != 0

    def _inside(self, name: str, at: str, direction: Var, cut: bool) -> str:
        return f"{name} = clamp_index({at}, 0, {direction.extent - 1})" if cut else f"{name} = {at}"

    def _rounds(self, side: int, together: int, row: str, body: list[str]) -> list[str]:
        """The body for each element of a thread: neighbours go round the threads, rows follow."""
        threads = self.block // side
        rounds = self.shape.along * self.shape.across // self.block
        many = min(rounds, together)
        first = "k" if many == rounds else "(g + k)"
        lines = [
            f"for k in unroll({many}):",
            f"    {row} = quotient(t, {side}) + {first} * {threads}",
            *indent(body),
        ]
        return lines if many == rounds else [f"for g in range(0, {rounds}, {many}):", *indent(lines)]

    # -- operands -------------------------------------------------------------------------------------

    def _turn(self) -> list[str]:
        """Load tiles, neighbours across."""
        shape, (past_x, past_y) = self.shape, self._cut
        body = [self._inside("lx", "x0 + mx", self.axes.along, past_x)]
        for n, (buffer, e) in enumerate(self.axes.turned):
            dtype = buffer.type.dtype
            at = shape.position("mx", "my", dtype.compute.itemsize)
            offset = self.offsets[buffer, e]
            body.append(f"h{n} = read_{suffix(dtype)}({self.pointer(buffer)}, {self._text(e, 'lx', 'ly')})")
            body.append(f"shared_store_{suffix(dtype.compute)}({offset}, {at}, h{n})")
        return [
            f"my = remainder_pos(t, {shape.across})",
            self._inside("ly", "y0 + my", self.axes.across, past_y),
            *self._rounds(shape.across, TOGETHER, "mx", body),
        ]

    # -- results --------------------------------------------------------------------------------------

    def _elements(self) -> list[str]:
        """The scalar program, neighbours along."""
        shape, (past_x, past_y) = self.shape, self._cut
        nest = self.axes.nest
        in_place = any(isinstance(i, Load) and not self.read_only(i.buffer) for i in nest.body)
        inside = [self._inside("sy", "y0 + ny", self.axes.across, past_y), *self._variables()]
        tests = [f"x0 + nx < {self.axes.along.extent}"] * past_x
        tests += [f"y0 + ny < {self.axes.across.extent}"] * past_y
        for i in nest.body:
            lines = [self._instruction(i)]
            inside += _all_hold(tests, lines) if isinstance(i, Store) and not in_place else lines
        if in_place:  # what others store must not be loaded
            inside = _all_hold(tests, inside)
        together = 1 if len(nest.body) > LONG else TOGETHER // 2
        return [
            f"nx = remainder_pos(t, {shape.along})",
            self._inside("sx", "x0 + nx", self.axes.along, past_x),
            *self._rounds(shape.along, together, "ny", inside),
        ]

    def _variables(self) -> list[str]:
        """Loop variables that scalar texts speak of."""
        texts = (
            i.text if isinstance(i, Let) else i.value for i in self.axes.nest.body if not isinstance(i, Load)
        )
        words = {w for text in texts for w in re.findall(r"[A-Za-z_]\w*", text)}
        return [f"{n} = {self._text(e, 'sx', 'sy')}" for n, e in self.axes.places.items() if n in words]

    def _instruction(self, i: Instr) -> str:
        if isinstance(i, Let):
            return f"{i.name} = {i.text}"
        dtype, e = i.buffer.type.dtype, self.axes.offset(i.offset)
        offset = self._text(e, "sx", "sy")
        if isinstance(i, Store):
            return f"store_{suffix(dtype)}({self.pointer(i.buffer)}, {offset}, {i.value})"
        if (i.buffer, e) in self.offsets:
            at = self.shape.position("nx", "ny", dtype.compute.itemsize)
            return f"{i.name} = shared_load_{suffix(dtype.compute)}({self.offsets[i.buffer, e]}, {at})"
        load = "read" if self.read_only(i.buffer) else "load"
        return f"{i.name} = {load}_{suffix(dtype)}({self.pointer(i.buffer)}, {offset})"

    # -- bytes ----------------------------------------------------------------------------------------

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


def _all_hold(tests: list[str], lines: list[str]) -> list[str]:
    for test in reversed(tests):
        lines = guarded(test, lines)
    return lines
