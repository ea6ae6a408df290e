"""The size of tiles, and where an element of one stands in the arena so that no two threads meet in a bank.

A warp stores 32 neighbours `across` and loads 32 neighbours `along`. Rows of 32 words would all start in
bank 0; one word between rows moves each by a bank: pitch 33 for 4-byte elements, 36 bytes for bool.

With vectors of 4 a warp touches every fourth element of two neighbouring rows or columns of a square of 64.
Position x * 67 + y, and 2 more behind the middle of a row and of the rows: modulo 4 the two rows and the two
halves are all different, and modulo 32 so are the 8 vectors of a half.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from jstitch.ir.index import Index

WORD = 4  # bytes of a bank
BANKS = 32
AREAS = (4096, 2048, 1024)  # elements of a tile, largest first
ENOUGH_TILES = 256  # rather smaller tiles than fewer
ROOM = 40960  # bytes of arena for the tiles of one CTA, so that several fit on a multiprocessor
WIDE = 64  # side of a tile that is moved in vectors
ALONG, ACROSS = 16, 8  # least sides, for which positions below have no conflicts


@dataclass(frozen=True)
class TileShape:
    """Sides, powers of two: neighbours in results, neighbours in operands. wide: threads may take vectors."""

    along: int
    across: int
    wide: bool = False

    def position(self, x: Index, y: Index, itemsize: int) -> Index:
        """The element of the arena for x along and y across."""
        if self.wide:
            return x * (WIDE + 3) + y + (x // BANKS + y // BANKS) * 2
        group, pad = self._padding(itemsize)
        return x * self.across + x // group * pad + y

    def nbytes(self, itemsize: int) -> int:
        if self.wide:
            return (WIDE * (WIDE + 3) + 4) * itemsize
        group, pad = self._padding(itemsize)
        return -(-(self.along * self.across + self.along // group * pad) * itemsize // 16) * 16

    def _padding(self, itemsize: int) -> tuple[int, int]:
        """(rows between two gaps, elements of a gap)."""
        in_word = max(1, WORD // itemsize)
        banks = BANKS * WORD // max(WORD, itemsize)
        group = max(1, banks // self.across) if in_word == 1 else 1
        return group, max(1, banks // (self.along * in_word)) * in_word


def choose_shape(along: int, across: int, planes: int, itemsizes: Sequence[int], block: int) -> TileShape:
    """A shape for extents along and across, for tiles of elements of these sizes, for `block` threads."""
    shapes = [_shape(along, across, max(area, block)) for area in AREAS]
    shapes = [replace(s, wide=s.along == s.across == WIDE and {*itemsizes} == {WORD}) for s in shapes]
    for shape in shapes[:-1]:
        tiles = planes * -(-along // shape.along) * -(-across // shape.across)
        if tiles >= ENOUGH_TILES and sum(map(shape.nbytes, itemsizes)) <= ROOM:
            return shape
    return shapes[-1]


def _shape(along: int, across: int, area: int) -> TileShape:
    square = 1 << (area.bit_length() // 2)
    x = max(ALONG, _side(along, square))
    y = max(ACROSS, _side(across, area // x))
    x = max(x, min(area // y, _side(along, 256)))
    return TileShape(x, y) if x * y >= 1024 else TileShape(x, area // x)


def _side(extent: int, most: int) -> int:
    """A power of two, small enough to waste little at the end."""
    side = min(most, 1 << (extent - 1).bit_length())
    while side > 32 and -(-extent // side) * side * 4 > extent * 5:
        side //= 2
    return side
