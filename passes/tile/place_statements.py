"""Where a block's loads, products and stores stand among its loops, and how often each runs (MCFuser, III-B).

m(n(k(load A, load B, C), load D, E), store E)      each inside its last related loop, and no further in

k with one turn: load A needs no loop but m, and goes there: A is read once, not once for each n.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from jstitch.passes.tile.chain import Chain, tile_of
from jstitch.passes.tile.write_expressions import Expression


class Kind(enum.Enum):
    """What a statement does."""

    LOAD = "load"
    COMPUTE = "compute"
    STORE = "store"
    CARRY = "carry"  # a sum that later turns go on with, once it is in memory again


@dataclass(frozen=True)
class Statement:
    """size: elements of its tile, or multiplications. loops: that it is inside of. runs: by all blocks."""

    kind: Kind
    name: str
    size: int
    loops: tuple[str, ...]
    runs: int

    def __str__(self) -> str:
        return f"{self.kind.value} {self.name} inside {''.join(self.loops) or 'no loop'}: {self.runs} times"


def place_statements(expression: Expression, chain: Chain, tiles: Mapping[str, int]) -> Iterator[Statement]:
    """Of all blocks. expression: of one of them. tiles: loop -> elements of a tile."""
    turns = {x: -(-chain.extents[x] // tiles[x]) for x in chain.loops}
    live = expression.without(x for x in chain.loops if turns[x] == 1)
    known = (*live.nested, *live.apart)
    blocks = chain.batch * math.prod(turns[x] for x in chain.spatial if x not in known)

    def placed(kind: Kind, name: str, related: tuple[str, ...], size: int) -> Statement:
        paths = [live.path(x) for x in related if x in known]
        loops = max(paths, key=len, default=())
        return Statement(kind, name, size, loops, blocks * math.prod(turns[x] for x in loops))

    for p in chain.products:
        if not p.made:
            yield placed(Kind.LOAD, f"{p.name}'s left", p.left, tile_of(p.left, tiles))
        yield placed(Kind.LOAD, f"{p.name}'s right", p.right, tile_of(p.right, tiles))
        related = tuple(x for x in chain.loops if x in p.loops)
        yield placed(Kind.COMPUTE, p.name, related, tile_of(related, tiles))
        carried = tuple(x for x in chain.loops if x in p.result or x in p.summed)
        if any(x in known for x in p.summed):
            yield placed(Kind.CARRY, p.name, carried, tile_of(p.result, tiles))
        if not p.kept:
            yield placed(Kind.STORE, p.name, p.result, tile_of(p.result, tiles))


def blocks_of(expression: Expression, chain: Chain, tiles: Mapping[str, int]) -> int:
    """Blocks that the loops which no block has are bound to."""
    own = {*expression.nested, *expression.apart}
    bound = (x for x in chain.spatial if x not in own)
    return chain.batch * math.prod(-(-chain.extents[x] // tiles[x]) for x in bound)
