"""Tile sizes worth a look: little padding, and room on chip (MCFuser, III-C, rules 3 and 4).

1024    16, 32, 64, ... 1024: a power of two is not padded
1000    those of the multiples of 16 that add less than a twentieth: 48 (21 tiles, 8 elements), 64, ...
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from jstitch.passes.tile.chain import Chain, tile_of
from jstitch.passes.tile.write_expressions import Expression

LEAST = 16  # elements of a tile in each direction: what tensor cores multiply
PADDING = 0.05
ROOM = 1.2  # of the shared memory that there is: the estimate is not exact


@dataclass(frozen=True)
class Tiling:
    """One candidate: how a block's loops are nested, and the elements of a tile of each loop."""

    expression: Expression
    tiles: Mapping[str, int]

    def __str__(self) -> str:
        return f"{self.expression}, {', '.join(f'{loop} {n}' for loop, n in self.tiles.items())}"

    @property
    def key(self) -> tuple[str, tuple[tuple[str, int], ...]]:
        return str(self.expression), tuple(self.tiles.items())


def all_sizes(extent: int) -> range:
    """Multiples of LEAST up to the one that holds the whole extent."""
    return range(LEAST, -(-extent // LEAST) * LEAST + 1, LEAST)


def unpadded_sizes(extent: int) -> list[int]:
    """Rule 3. Of an extent below LEAST: one tile."""
    whole = -(-extent // LEAST) * LEAST
    if extent <= LEAST:
        return [LEAST]
    even = [n for n in all_sizes(extent) if extent % n == 0]
    if extent & (extent - 1) == 0:
        return even
    padded = {n: -(-extent // n) * n / extent - 1 for n in all_sizes(extent)}
    return [n for n, ratio in padded.items() if ratio < PADDING] or even or [whole]


def estimated_bytes(chain: Chain, tiles: Mapping[str, int]) -> int:
    """Of shared memory, for one tile of each matrix (equation 1)."""
    return sum(tile_of(loops, tiles) for loops in chain.tensors) * chain.itemsize


def tilings(
    chain: Chain, expressions: Sequence[Expression], sizes: Mapping[str, Sequence[int]], room: int
) -> Iterator[Tiling]:
    """Every one that rule 4 leaves. sizes: loop -> elements of a tile. room: bytes of shared memory."""
    for chosen in itertools.product(*(sizes[x] for x in chain.loops)):
        tiles = dict(zip(chain.loops, chosen, strict=True))
        if estimated_bytes(chain, tiles) <= ROOM * room:
            for e in expressions:
                yield Tiling(e, tiles)
