"""What a CTA does for a product of matrices: panels of the right operand go by shared memory, warps multiply.

result[64, 512] = left[64, 64] * right[64, 512]     by 8 warps, 16 rows and 64 columns each, twice

copy panels 0, 1, 2
for n in range(0, 2):                    columns [n * 256, n * 256 + 256)
    sums = 0
    for k in range(0, 2):                rows [k * 32, k * 32 + 32) of the right operand
        await the panel; copy the third one after it to where the last one was
        sums += left * panel             a warp's 16 rows, 64 columns
    result = sums

Operands are of 16 bits, or f32 that are rounded to tf32 where they are read; sums of f32 (mma.m16n8k16,
mma.m16n8k8). Rows, columns and depths that fill no tile are zeros.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from jstitch.codegen.cuda.deal import WARP
from jstitch.codegen.cuda.exchange import Team
from jstitch.codegen.cuda.homes import NoRoom
from jstitch.codegen.cuda.tiling import TILE, InMemory, InShared, Tiling, depth_of, piece_of, pitch_of
from jstitch.codegen.cuda.under import under
from jstitch.codegen.launch_ir import (
    AwaitCopies,
    Barrier,
    Body,
    CommitCopies,
    CopyAsync,
    For,
    Get,
    If,
    Integer,
    LoadMatrices,
    MultiplyAdd,
    Put,
    Read,
    Registers,
    Scope,
    Statement,
    Unroll,
    Write,
)
from jstitch.codegen.launch_places import FAR, THREAD, Elements, Less, Shared
from jstitch.ir.expr import Const, Ref, call
from jstitch.ir.index import Index, Var, const, var
from jstitch.ir.types import DType

WRITTEN_OUT = 4  # copies of each thread
EIGHT = 8  # rows of a matrix
ROUNDED = call("convert_tf32", Ref("factor"))
ARRIVED = "this panel is there, and nobody reads the last one any more"
MADE = "the product is there"


def left_tile(base: int, depth: int, dtype: DType) -> InShared:
    """A left operand in shared memory."""
    return InShared(const(base), pitch_of(depth, dtype, by_matrices=True), dtype)


@dataclass(frozen=True)
class TiledProduct:
    """result = left * right by a CTA of `tiling.warps` warps. number: of the product, for its names.

    base: the first byte of what it needs in shared memory besides its tiles. held: where the left operand of
    memory is already, if it is (`fill_left`).
    """

    number: str
    tiling: Tiling
    left: InShared | InMemory
    right: InMemory
    result: InShared | InMemory
    base: int
    held: InShared | None = None

    def __post_init__(self) -> None:
        if self.tiling.groups > self.tiling.warps:
            raise NoRoom(f"{self.tiling.sizes[0]} rows are too many for {self.tiling.warps} warps")

    @property
    def dtype(self) -> DType:
        """Of both operands."""
        return self.right.dtype

    # -- shared memory --------------------------------------------------------------------------------

    @cached_property
    def _left_tile(self) -> InShared:
        """Where the warps read the left operand."""
        if isinstance(self.left, InShared):
            return self.left
        if self.held is not None:
            return self.held
        return left_tile(self.base, self.tiling.sizes[2], self.left.dtype)

    @property
    def _left_bytes(self) -> int:
        if isinstance(self.left, InShared) or self.held is not None:
            return 0
        return self._left_tile.bytes_of(self.tiling.sizes[0])

    @property
    def _by_depth(self) -> bool:
        """Whether a panel's rows are depths, as the right operand lies in memory; if not, columns."""
        return self.right.strides[0] != 1 or self.right.strides[1] == 1

    @property
    def _shape(self) -> tuple[int, int]:
        """Rows and columns of a panel as it lies in shared memory."""
        shape = self.tiling.depth, self.tiling.columns
        return shape if self._by_depth else shape[::-1]

    def _panel(self, stage: Index) -> InShared:
        base = stage * self.panel_bytes + (self.base + self._left_bytes)
        return InShared(base, self._panel_pitch, self.right.dtype)

    @property
    def _panel_pitch(self) -> int:
        return pitch_of(self._shape[1], self.right.dtype, by_matrices=not self._by_depth)

    @property
    def panel_bytes(self) -> int:
        """Of one."""
        return self._shape[0] * self._panel_pitch * self.right.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """From `base` on."""
        return self._left_bytes + self.ring * self.panel_bytes

    @property
    def ring(self) -> int:
        """Panels that have room at once."""
        return min(self.tiling.stages, self.tiling.turns)

    def traffic(self, ctas: int, turns: float = 1) -> tuple[int, int]:
        """Bytes that so many CTAs read from memory and write there: their right operands share a cache.

        turns: of the loop that the product is in.
        """
        m, n, k = self.tiling.sizes
        left = m * k * self.left.dtype.itemsize if isinstance(self.left, InMemory) else 0
        left = int(left * ctas * (1 if self.held is not None else turns))
        written = m * n * self.result.dtype.itemsize if isinstance(self.result, InMemory) else 0
        right = min(int(self._right_bytes(ctas) * turns), self.right.nbytes)
        return left + right, int(written * ctas * turns)

    def reread(self, turns: float) -> int:
        """Bytes of right operands that are read again in so many turns of all CTAs."""
        return max(0, int(self._right_bytes(1) * turns) - self.right.nbytes)

    def _right_bytes(self, ctas: int) -> int:
        return math.prod(self.tiling.sizes[1:]) * self.right.dtype.itemsize * ctas

    @property
    def instructions(self) -> int:
        """Of all warps of a CTA, those that multiply."""
        t = self.tiling
        return t.groups * (t.passes * t.columns // 8) * (t.steps * t.depth // depth_of(self.dtype))

    @property
    def registers(self) -> int:
        """Of a thread: sums and operands."""
        return self.tiling.width // 2 + 8

    # -- statements -----------------------------------------------------------------------------------

    @property
    def team(self) -> Team:
        return Team(WARP, self.tiling.warps)

    def body(self) -> Body:
        """Needs `t`, the thread's number in its warp, and `team`, the warp's number."""
        t = self.tiling
        columns, depth = Var(f"n{self.number}", t.passes), Var(f"k{self.number}", t.steps)
        n, k = var(columns), var(depth)
        held = DType.F32 if self.dtype is DType.F32 else DType.U32  # pairs of 16 bits
        inside = [*self._clear(), For(depth.name, const(0), const(t.steps), 1, tuple(self._step(n, k)))]
        return [
            Registers(self._sums, DType.F32, t.width // 2),
            Registers(self._a, held, 4),
            Registers(self._b, held, 4),
            *self._first(),
            For(columns.name, const(0), const(t.passes), 1, (*inside, *self._store(n))),
            Barrier(Scope.CTA, MADE),
        ]

    @property
    def _sums(self) -> str:
        return f"sums{self.number}"

    @property
    def _a(self) -> str:
        return f"a{self.number}_"

    @property
    def _b(self) -> str:
        return f"b{self.number}_"

    def _clear(self) -> Iterator[Statement]:
        place = var(Var("s", self.tiling.width // 2))
        yield Unroll("s", self.tiling.width // 2, (Put(self._sums, place, Const(0.0, DType.F32)),))

    def _first(self) -> Body:
        """The left operand, whole, and the first panels."""
        m, _, k = self.tiling.sizes
        body: Body = []
        if isinstance(self.left, InShared):
            rows, columns = self.tiling.groups * TILE, -(-k // TILE) * TILE
            body += self._zeros(self._left_tile, (rows, columns), (m, k))
        elif self.held is None:
            body += self.fill_left()
        for panel in range(max(1, self.ring - 1)):
            n, number = divmod(panel, self.tiling.steps)
            body += [*self._fill_panel(const(panel), const(n), const(number)), CommitCopies()]
        return body

    def fill_left(self) -> Body:
        """Copy the left operand from memory, whole."""
        assert isinstance(self.left, InMemory)
        m, _, k = self.tiling.sizes
        shape = self.tiling.groups * TILE, -(-k // TILE) * TILE
        return self._fill(self._left_tile, shape, self.left, (const(0), const(0)), (m, k))

    def _step(self, n: Index, k: Index) -> Body:
        t = self.tiling
        number, ahead = n * t.steps + k, self.ring - 1
        following = var(Var("following", t.turns + ahead))
        fill = self._fill_panel(following % self.ring, following // t.steps, following % t.steps)
        body: Body = [AwaitCopies(max(0, ahead - 1)), Barrier(Scope.CTA, ARRIVED)]
        if ahead:
            more = [Integer("following", number + ahead), *fill]
            body += [*under(Less(number + ahead, const(t.turns)), more), CommitCopies()]
        return body + under(self._is_busy, self._multiply(number % self.ring, k))

    @property
    def _is_busy(self) -> Less | None:
        """Whether the warp has a part of the product; None where all have."""
        t = self.tiling
        return Less(self.team.number, const(t.busy)) if t.busy < t.warps else None

    @property
    def _row(self) -> Index:
        """The first of a warp's rows."""
        return self.team.number % self.tiling.groups * TILE

    @property
    def _column(self) -> Index:
        """The first of a warp's columns, in a panel."""
        return self.team.number // self.tiling.groups * self.tiling.width

    def _multiply(self, stage: Index, k: Index) -> Body:
        t, thread, deep = self.tiling, self.team.thread, depth_of(self.dtype)
        depth = var(Var("d", t.depth // deep)) * deep
        left, j = self._left_tile, var(Var("j", t.width // TILE))
        row, column = self._row + thread % TILE, k * t.depth + depth + thread // TILE * piece_of(self.dtype)
        products = (
            MultiplyAdd(
                Elements(self._sums, j * 8 + 4 * half),
                Elements(self._a, const(0)),
                Elements(self._b, const(2 * half)),
                self.dtype,
            )
            for half in (0, 1)
        )
        load = LoadMatrices(self._a, const(0), Shared(left.base), left.at(row, column), left.dtype)
        right = self._right(self._panel(stage), depth, self._column + j * TILE)
        columns = Unroll("j", t.width // TILE, (*right, *products))
        return [Unroll("d", t.depth // deep, (load, *self._rounded(self._a), columns))]

    def _right(self, panel: InShared, depth: Index, column: Index) -> Body:
        """The thread's part of 16 columns: of each half first and last depths."""
        thread, piece = self.team.thread, piece_of(self.dtype)
        if self._by_depth and self.dtype is DType.F32:
            return self._single(panel, depth, column)
        if self._by_depth:
            at = panel.at(depth + thread % TILE, column + thread // TILE * EIGHT)
        else:
            near, far = thread % EIGHT + thread // TILE * EIGHT, thread // EIGHT % 2 * piece
            at = panel.at(column + near, depth + far)
        load = LoadMatrices(self._b, const(0), Shared(panel.base), at, panel.dtype, self._by_depth)
        return [load, *self._rounded(self._b)]

    def _single(self, panel: InShared, depth: Index, column: Index) -> Body:
        """Elements that no instruction turns, one by one."""
        thread, body = self.team.thread, Body()
        for n in range(4):
            half, last = divmod(n, 2)
            at = panel.at(depth + thread % 4 + 4 * last, column + thread // 4 + EIGHT * half)
            body.append(Read("factor", Shared(panel.base), at, panel.dtype))
            body.append(Put(self._b, const(n), ROUNDED))
        return body

    def _rounded(self, array: str) -> Body:
        """f32 as tensor cores take them; nothing for other elements."""
        if self.dtype is not DType.F32:
            return []
        n = var(Var("n", 4))
        return [Unroll("n", 4, (Get("factor", array, n), Put(array, n, ROUNDED)))]

    def _store(self, n: Index) -> Body:
        """Each thread has two neighbours of every eight columns, in two rows."""
        t, thread = self.tiling, self.team.thread
        j, (row, column) = var(Var("j", t.width // 8)), (var(Var(name, FAR)) for name in ("row", "column"))
        body: Body = []
        for half in (0, 1):
            stores = self._pair(row, column + thread % 4 * 2, j * 4 + 2 * half)
            body.append(Integer("row", self._row + thread // 4 + 8 * half))
            body += under(Less(row, const(t.sizes[0])) if t.sizes[0] % TILE else None, stores)
        eight = Integer("column", n * t.columns + self._column + j * 8)
        inside = under(Less(column, const(t.sizes[1])) if t.sizes[1] % t.columns else None, body)
        return under(self._is_busy, [Unroll("j", t.width // 8, (eight, *inside))])

    def _pair(self, row: Index, column: Index, first: Index) -> Body:
        match self.result:
            case InShared(base, _, dtype):
                place = self.result.at(row, column)
                return [Write(Shared(base), place, dtype, Elements(self._sums, first), 2)]
            case InMemory(memory, _, _, dtype) if self.result.in_pairs and self.tiling.sizes[1] % 8 == 0:
                place = self.result.at(row, column)
                return [Write(memory, place, dtype, Elements(self._sums, first), 2)]
            case InMemory(memory, _, _, dtype):
                body: Body = []
                for k in (0, 1):
                    store = Write(memory, self.result.at(row, column + k), dtype, Ref("sum"))
                    known = self.tiling.sizes[1] % 8 == 0
                    test = None if known else Less(column + k, const(self.tiling.sizes[1]))
                    body += [Get("sum", self._sums, first + k), *under(test, [store])]
                return body

    # -- copies ---------------------------------------------------------------------------------------

    def _fill_panel(self, stage: Index, n: Index, k: Index) -> Body:
        t = self.tiling
        starts, ends = (k * t.depth, n * t.columns), (t.sizes[2], t.sizes[1])
        source = self.right
        if not self._by_depth:
            starts, ends, source = starts[::-1], ends[::-1], source.turned
        return self._fill(self._panel(stage), self._shape, source, starts, ends)

    def _fill(
        self,
        tile: InShared,
        shape: tuple[int, int],
        source: InMemory,
        starts: tuple[Index, Index],
        ends: tuple[int, int],
    ) -> Body:
        """The tile = `shape` elements of the source from `starts` on; those at `ends` and further are 0."""
        piece = piece_of(source.dtype)
        together = piece if source.in_pieces and ends[1] % piece == 0 else 1
        each = shape[1] // together
        x, row, column = (var(Var(name, FAR)) for name in ("piece", "row", "column"))
        at, place = tile.at(row, column), source.at(starts[0] + row, starts[1] + column)
        if together > 1:
            copied: Body = [CopyAsync(Shared(tile.base), at, source.memory, place, tile.dtype)]
        else:
            copied = [
                Read("moved", source.memory, place, source.dtype),
                Write(Shared(tile.base), at, tile.dtype, Ref("moved")),
            ]
        z = var(Var("z", together))
        zero = Write(Shared(tile.base), at + z, tile.dtype, Const(0.0, DType.F32))
        zeros = (Unroll("z", together, (zero,)),)
        for start, offset, end, size in zip(starts, (row, column), ends, shape, strict=True):
            inside = start.const + size <= end if not start.terms else end % size == 0
            if not inside:
                copied = [If(Less(start + offset, const(end)), tuple(copied), zeros)]
        named = Integer("row", x // each), Integer("column", x % each * together)
        return self._spread(shape[0] * each, (*named, *copied))

    def _zeros(self, tile: InShared, shape: tuple[int, int], ends: tuple[int, int]) -> Body:
        """What the tile has behind `ends`."""
        row, column, body = var(Var("row", FAR)), var(Var("column", FAR)), Body()
        zero = Write(Shared(tile.base), tile.at(row, column), tile.dtype, Const(0.0, DType.F32))
        m, k = ends
        for rows, first, columns in ((shape[0] - m, (m, 0), shape[1]), (m, (0, k), shape[1] - k)):
            if rows and columns:
                x = var(Var("piece", FAR))
                named = Integer("row", x // columns + first[0]), Integer("column", x % columns + first[1])
                body += self._spread(rows * columns, (*named, zero))
        return body

    def _spread(self, count: int, body: tuple[Statement, ...]) -> Body:
        """For each piece of `count`, by all threads."""
        threads = self.tiling.warps * WARP
        if count <= threads * WRITTEN_OUT:
            c = var(Var("c", math.ceil(count / threads)))
            named = Integer("piece", c * threads + THREAD)
            partly = Less(var(Var("piece", FAR)), const(count)) if count % threads else None
            return [Unroll("c", math.ceil(count / threads), (named, *under(partly, body)))]
        return [For("piece", THREAD, const(count), threads, body)]
