"""Look for the quickest tiling among many: the paper's evolutionary search (MCFuser, IV-B, algorithm 1).

population of N  ->  the n best by the model are measured  ->  no better than the best so far: done
                 ->  else N drawn by 1 / modelled time, one tile size of each changed: the next population

What `measure` is, is the caller's: a device's clock, or a finer model. Drawn with a seed: the answer is the
same each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

from jstitch.passes.tile.prune_tilings import Tiling

POPULATION = 64
MEASURED = 8  # of each population: the paper's n
CLOSE = 0.01  # of the best time: the paper's epsilon
MOST_TURNS = 20
Seconds = Callable[[Tiling], float]


@dataclass(frozen=True)
class Found:
    """tiling: the best one; seconds: as measured. measured: how many were. generations: of the search."""

    tiling: Tiling
    seconds: float
    measured: int
    generations: int


def search_tilings(
    space: Sequence[Tiling],
    modelled: Seconds,
    measure: Seconds,
    *,
    population: int = POPULATION,
    measured: int = MEASURED,
    seed: int = 0,
) -> Found:
    """The best of a space that is not empty. measure: math.inf for one that cannot be had."""
    random, known, times = Random(seed), _Space(space), dict[object, float]()
    now = list(space) if len(space) <= population else random.sample(list(space), population)
    best: Found | None = None
    for generation in range(1, MOST_TURNS + 1):
        ranked = sorted({t.key: t for t in now}.values(), key=modelled)
        for t in ranked[:measured]:
            if t.key not in times:
                times[t.key] = measure(t)
        first = min(ranked[:measured], key=lambda t: times[t.key])
        seconds = times[first.key]
        found = Found(first, seconds, len(times), generation)
        if best is not None and not seconds < best.seconds * (1 - CLOSE):
            better = found if seconds < best.seconds else best
            return Found(better.tiling, better.seconds, len(times), generation)
        best = found
        weights = [1 / modelled(t) for t in now]
        now = [known.mutated(t, random) for t in random.choices(now, weights, k=len(now))]
    assert best is not None
    return best


class _Space:
    """The candidates, by what they have in common with others."""

    def __init__(self, space: Sequence[Tiling]) -> None:
        self.by_others: dict[object, list[Tiling]] = {}
        for t in space:
            for key in self._keys(t):
                self.by_others.setdefault(key, []).append(t)

    @staticmethod
    def _keys(t: Tiling) -> Iterator[object]:
        """One for each loop: all but its tile."""
        for loop in t.tiles:
            yield t.expression, loop, tuple((x, n) for x, n in t.tiles.items() if x != loop)

    def mutated(self, t: Tiling, random: Random) -> Tiling:
        """The candidate with another tile of one loop."""
        return random.choice(self.by_others[random.choice(list(self._keys(t)))])
