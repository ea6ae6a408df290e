"""Statements of CPU kernels that are calls of whole algorithms: products by tiles of registers, sorts."""

from __future__ import annotations

from dataclasses import dataclass

from jstitch.codegen.launch_places import Apart
from jstitch.ir.index import Index
from jstitch.ir.types import DType


@dataclass(frozen=True)
class Tile:
    """Elements memory[at + i * strides[0] + j * strides[1]]."""

    memory: Apart
    at: Index
    strides: tuple[int, int]
    dtype: DType


@dataclass(frozen=True)
class Multiply:
    """result[i, j] = sum over k of left[i, k] * right[k, j], in f32.

    sizes: how many i, j and k there are. panel: what a part of the right tile is packed into.
    """

    result: Tile
    left: Tile
    right: Tile
    sizes: tuple[int, int, int]
    panel: Apart

    @property
    def tiles(self) -> tuple[tuple[Tile, tuple[int, int]], ...]:
        """Each with its numbers of rows and columns."""
        m, n, k = self.sizes
        return (self.result, (m, n)), (self.left, (m, k)), (self.right, (k, n))


@dataclass(frozen=True)
class SortItems:
    """The first `count` words of 64 bits are sorted by their upper halves. room: for as many."""

    items: Apart
    room: Apart
    count: int
