"""Where values of a pattern are in memory: buffers of their own, or parts of larger ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jstitch.codegen.kernel_ir import Buffer
from jstitch.ir.graph import Value
from jstitch.ir.index import Index, add, const, delinearize, linearize, mul


@dataclass(frozen=True)
class Place:
    """Where a materialised value lives. `rows`: ARENA tiles hold `slab` elements for each row of a step."""

    buffer: Buffer
    slab: int = 0


@dataclass(frozen=True)
class InPlace:
    """A block of a larger buffer: moved by each start, clamped to [0, limit], times its stride."""

    buffer: Buffer
    moves: tuple[tuple[Value, int, int], ...]


@dataclass(frozen=True)
class InStrips:
    """A buffer whose columns, from `first` on, a value has in strips. strides: of the value's dimensions."""

    buffer: Buffer
    strides: tuple[int, ...]
    first: int

    def offset(self, index: Sequence[Index]) -> Index:
        """Where the buffer has that element of the value."""
        found = const(self.first)
        for e, stride in zip(index, self.strides, strict=True):
            found = add(found, mul(e, stride))
        return found


@dataclass(frozen=True)
class InStack:
    """A larger buffer, of shape `whole`, of which a value is the part that begins at `at` of dimension `dim`.

    part: the shape of that, which may be another one than the value's.
    """

    buffer: Buffer
    whole: tuple[int, ...]
    part: tuple[int, ...]
    dim: int
    at: Index

    def offset(self, index: Sequence[Index], shape: Sequence[int]) -> Index:
        """Where the buffer has that element of a value of the shape."""
        if tuple(shape) != self.part:
            index = delinearize(linearize(index, shape), self.part)
        moved = (add(e, self.at) if d == self.dim else e for d, e in enumerate(index))
        return linearize(tuple(moved), self.whole)


Written = InPlace | InStrips | InStack | Place
"""Memory that a value is written into, besides its own."""
