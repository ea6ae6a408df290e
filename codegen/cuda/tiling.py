"""How the warps of a CTA share a product of matrices, and where the matrices are."""

from __future__ import annotations

from dataclasses import dataclass, replace

from jstitch.codegen.launch_ir import PIECE_BYTES
from jstitch.codegen.launch_places import Global
from jstitch.ir.index import Index
from jstitch.ir.types import DType

TILE = 16  # rows, columns and depth of the smallest piece that a warp works on
WIDEST = 64  # columns of a warp: 32 sums of each thread
DEPTHS = 64, 48, 32, 16  # of a panel
PANEL = 16384  # bytes of one, at most, where it can be
SMALLER = (
    (4, WIDEST, PANEL),
    (3, WIDEST, PANEL),
    (2, WIDEST, PANEL),
    (2, 32, PANEL // 2),
    (2, 16, PANEL // 4),
)
"""Panels at once, columns of a warp, bytes of a panel: what is tried until it finds room."""


def piece_of(dtype: DType) -> int:
    """Elements of one copy, and of a row of the matrices that a warp reads."""
    return PIECE_BYTES // dtype.itemsize


def depth_of(dtype: DType) -> int:
    """Of one instruction, in elements: 16 of 16 bits, 8 of f32."""
    return 2 * piece_of(dtype)


def pitch_of(columns: int, dtype: DType, by_matrices: bool = False) -> int:
    """Elements from one row of a tile to the next, so that rows that are read together are in other banks.

    By matrices, as 16-bit elements always are: whole tiles in an odd number of 16-byte pieces. Others:
    columns and 8 words behind whole rows of banks.
    """
    if by_matrices or dtype.itemsize == 2:
        pieces = -(-columns // TILE) * TILE // piece_of(dtype)
        return (pieces + 1 - pieces % 2) * piece_of(dtype)
    return -(-(columns - 8) // 32) * 32 + 8 if columns > 1 else 1


@dataclass(frozen=True)
class InShared:
    """A matrix in shared memory, from byte `base` on; rows are `pitch` elements apart."""

    base: Index
    pitch: int
    dtype: DType

    def at(self, row: Index, column: Index) -> Index:
        return row * self.pitch + column

    def bytes_of(self, rows: int) -> int:
        """Of whole tiles of rows."""
        return -(-rows // TILE) * TILE * self.pitch * self.dtype.itemsize


@dataclass(frozen=True)
class InMemory:
    """Element [i, j] of a matrix in memory is that at first + i * strides[0] + j * strides[1].

    nbytes: of the buffer that it is a part of.
    """

    memory: Global
    first: Index
    strides: tuple[int, int]
    dtype: DType
    nbytes: int

    def at(self, row: Index, column: Index) -> Index:
        return self.first + row * self.strides[0] + column * self.strides[1]

    @property
    def turned(self) -> InMemory:
        return replace(self, strides=self.strides[::-1])

    @property
    def in_pieces(self) -> bool:
        """Whether 16 bytes of a row, from a multiple of so many on, lie together at one of 16 bytes."""
        return self._by(piece_of(self.dtype))

    @property
    def in_pairs(self) -> bool:
        """The same of two."""
        return self._by(2)

    def _by(self, together: int) -> bool:
        steps = self.first.const, self.strides[0], *(k for _, k in self.first.terms)
        return self.strides[1] == 1 and all(step % together == 0 for step in steps)


@dataclass(frozen=True)
class Tiling:
    """How `warps` share a product of `sizes` = (m, n, k), of elements of so many bytes.

    stages: panels in shared memory at once, at most. widest: columns of a warp, at most. panel: bytes of one,
    at most, where it can be.
    """

    sizes: tuple[int, int, int]
    itemsize: int
    warps: int
    stages: int
    widest: int
    panel: int

    @property
    def groups(self) -> int:
        """Of 16 rows."""
        return -(-self.sizes[0] // TILE)

    @property
    def parts(self) -> int:
        """Of a panel's columns: one for each warp of a group."""
        return max(1, min(self.warps // self.groups, -(-self.sizes[1] // TILE)))

    @property
    def width(self) -> int:
        """Columns of a warp."""
        return min(self.widest, -(-self.sizes[1] // (self.parts * TILE)) * TILE)

    @property
    def columns(self) -> int:
        """Of a panel."""
        return self.width * self.parts

    @property
    def depth(self) -> int:
        """Of a panel."""
        whole = -(-self.sizes[2] // TILE) * TILE
        most = self.panel // (self.columns * self.itemsize)
        return next(d for d in DEPTHS if whole % d == 0 and (d <= most or d == TILE))

    @property
    def passes(self) -> int:
        return -(-self.sizes[1] // self.columns)

    @property
    def steps(self) -> int:
        return -(-self.sizes[2] // self.depth)

    @property
    def turns(self) -> int:
        """Panels, one after another."""
        return self.passes * self.steps

    @property
    def busy(self) -> int:
        """Warps that multiply."""
        return self.groups * self.parts
