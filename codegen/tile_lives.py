"""When the tiles of a lane are needed: from the first point that touches one to the last, around loops, too.

0          t1 = -inf
1  loop    t0 = q * keys       t0 is needed in 1 and 2: each turn writes it anew
2  loop    t1 = max(t1, t0)    t1 is needed in 0 to 3, in all of the loop
3          o = t1
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from jstitch.codegen.kernel_ir import (
    Buffer,
    Lane,
    Load,
    Loop,
    Matrix,
    Nest,
    Product,
    Sorting,
    Space,
    Store,
    Turns,
)


@dataclass(frozen=True)
class Point:
    """What is done at once, and its loop. touched: tiles, in order, and whether they are read."""

    loop: Loop | None
    touched: tuple[tuple[Buffer, bool], ...]


def tile_lives(points: Sequence[Point]) -> dict[Buffer, tuple[int, int]]:
    """Tile -> the first and the last point that need it."""
    found: dict[Buffer, tuple[int, int]] = {}
    reads_first: dict[Buffer, bool] = {}
    for n, point in enumerate(points):
        for b, reads in point.touched:
            found[b] = (found.get(b, (n, n))[0], n)
            reads_first.setdefault(b, reads)
    return {b: _around(life, reads_first[b], points) for b, life in found.items()}


def _around(life: tuple[int, int], reads_first: bool, points: Sequence[Point]) -> tuple[int, int]:
    """With all of a loop, unless each turn writes the tile before reading it, and nobody else reads it."""
    first, last = life
    inside = points[first].loop is not None and points[first].loop == points[last].loop
    if inside and not reads_first:
        return life
    while first > 0 and points[first].loop is not None and points[first - 1].loop == points[first].loop:
        first -= 1
    end = len(points) - 1
    while last < end and points[last].loop is not None and points[last + 1].loop == points[last].loop:
        last += 1
    return first, last


def asked(loop: Loop | None) -> Iterator[tuple[Buffer, bool]]:
    """What a loop reads before its first turn."""
    if isinstance(loop, Turns) and loop.unless is not None:
        yield loop.unless.tile, True


def lane_lives(lane: Lane) -> dict[Buffer, tuple[int, int]]:
    """Tile -> the first and the last stage that need it."""
    return tile_lives([Point(s.turn, (*asked(s.turn), *touched_tiles(s.nests))) for s in lane.stages])


def touched_tiles(nests: Iterable[Nest]) -> Iterator[tuple[Buffer, bool]]:
    """Tiles in the order in which nests touch them, and whether they are read."""
    for nest in nests:
        match nest:
            case Product(left=left, right=right):
                yield from ((m.buffer, True) for m in (left, right) if _is_tile(m))
            case Sorting(room=room):
                yield room, False
        loads = [i for i in nest.instructions if isinstance(i, Load)]
        stores = [i for i in nest.instructions if isinstance(i, Store)]
        yield from ((i.buffer, True) for i in loads if i.buffer.space is Space.ARENA)
        yield from ((i.buffer, False) for i in stores if i.buffer.space is Space.ARENA)


def _is_tile(m: Matrix) -> bool:
    return m.buffer.space is Space.ARENA
