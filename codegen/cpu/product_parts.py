"""Which parts of a micro-kernel products of known sizes need: LLVM would optimise all before it drops others.

17 x 40 x k, of 12 rows by 2 vectors of 16      blocks of 12, 4 and 1 rows; a whole panel, half a vector
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from jstitch.codegen.cpu.vector_writer import VECTORS, VectorMachine


@dataclass(frozen=True)
class ProductParts:
    """heights: rows of blocks, the most first. panels: vectors of one, and whether c has all its columns."""

    heights: tuple[int, ...]
    panels: frozenset[tuple[int, bool]]

    def has(self, vectors: int, whole: bool | None = None) -> bool:
        """Whether there are such panels; None: of either kind."""
        return any(v == vectors and whole in (None, is_whole) for v, is_whole in self.panels)

    def __str__(self) -> str:
        """A name's end."""
        panels = (f"{vectors}{'whole' if whole else 'part'}" for vectors, whole in sorted(self.panels))
        return "_".join((*map(str, self.heights), *panels))


def parts_of(m: int | None, n: int | None, machine: VectorMachine) -> ProductParts:
    """For m rows and n columns of the result; None: any number."""
    heights = machine.heights if m is None else _heights(m, machine)
    return ProductParts(tuple(heights), frozenset(_panels(n, machine)))


def _heights(rows: int, machine: VectorMachine) -> Iterator[int]:
    for height in machine.heights:
        if rows >= height:
            yield height
            rows %= height


def _panels(columns: int | None, machine: VectorMachine) -> Iterator[tuple[int, bool]]:
    if columns is None:
        yield from ((vectors, whole) for vectors in (1, VECTORS) for whole in (False, True))
        return
    if columns >= machine.panel:
        yield VECTORS, True
    if rest := columns % machine.panel:
        vectors = 1 if rest <= machine.lanes else VECTORS
        yield vectors, rest == vectors * machine.lanes
