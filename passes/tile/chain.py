"""A chain of products as loops over tiles: what a turn of each loads, computes and stores (MCFuser, III-A).

C = A B, E = C D        loops m, n, k, h;  C: (m, n, k), sums over k;  E: (m, h, n), sums over n
                        loads A (m, k), B (k, n), D (n, h);  computes C, E;  stores E (m, h)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Product:
    """result[kept] = sum over `summed` of left * right. left, right: the loops that index them.

    made: whether the chain makes the left operand. kept: whether the chain has the result, for itself.
    """

    name: str
    result: tuple[str, ...]
    left: tuple[str, ...]
    right: tuple[str, ...]
    made: bool = False
    kept: bool = False

    @property
    def loops(self) -> frozenset[str]:
        return frozenset((*self.result, *self.left, *self.right))

    @property
    def summed(self) -> frozenset[str]:
        return self.loops.difference(self.result)


@dataclass(frozen=True)
class Chain:
    """Products in the order in which they are made, all of which go by the rows `m`.

    extents: loop -> elements. batch: independent chains of this kind, bound to blocks. itemsize: bytes of an
    element of operands.
    """

    products: tuple[Product, ...]
    extents: Mapping[str, int]
    batch: int = 1
    itemsize: int = 2

    @cached_property
    def loops(self) -> tuple[str, ...]:
        return tuple(self.extents)

    def users(self, loop: str) -> int:
        """Products that the loop is one of."""
        return sum(loop in p.loops for p in self.products)

    @cached_property
    def spatial(self) -> frozenset[str]:
        """Loops over which results of the chain are spread."""
        return frozenset(x for p in self.products if not p.kept for x in p.result)

    @cached_property
    def tensors(self) -> tuple[tuple[str, ...], ...]:
        """The loops that index each matrix that has a tile on chip."""
        found = []
        for p in self.products:
            found += [p.right, p.result] if p.made else [p.left, p.right, p.result]
        return tuple(found)


def two_products(m: int, n: int, k: int, h: int, batch: int = 1, itemsize: int = 2) -> Chain:
    """E = (A B) D, with anything between rows of A B: the chains of tables II and III."""
    first = Product("C", ("m", "n"), ("m", "k"), ("k", "n"), kept=True)
    second = Product("E", ("m", "h"), ("m", "n"), ("n", "h"), made=True)
    return Chain((first, second), {"m": m, "n": n, "k": k, "h": h}, batch, itemsize)


def tile_of(loops: Sequence[str], tiles: Mapping[str, int]) -> int:
    """Elements of a tile of the matrix that these loops index."""
    size = 1
    for loop in loops:
        size *= tiles[loop]
    return size
