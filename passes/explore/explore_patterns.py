"""The explorer: for every op, the few best patterns that begin with it (FS-2021 section 5.2).

From the last op to the first, an op's candidates are made of its consumers' (PatternReduction):

    consumers 5, 6, 7 of 8       groups {5, 6} and {7}
    {5, 6}                       8 before every choice of a candidate (or none) of 5 and of 6; the best k stay
    {7}                          8 before every candidate (or none) of 7; the best k stay
    both                         every union of the two; the best k are the candidates of 8

Every op costs a bounded number of scores, so the time is linear in ops and edges. One of the k is kept for
what it would save if all that it reads joined: its score alone would drop it before they can.

A pattern that some op outside must wait for and feed (Figure 6) is dropped: it has a place in the order of
the tables, after all that it reads and before all that reads it, or it is no candidate. So is one with more
ops or buffers than a kernel may have; what partition_reason refuses is in none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from jstitch.passes.explore.score_pattern import Scorer, Sketch
from jstitch.passes.explore.tabulate_frame import FrameTable

KEPT = 3  # candidates of an op: k in the paper
VERTEX = 24  # ops of one vertex
GROUP = 2  # consumers whose candidates are combined at once


@dataclass(frozen=True)
class ExploreOptions:
    """kept: candidates of each op. max_ops: of one pattern. max_users: consumers of an op looked at."""

    kept: int = KEPT
    max_ops: int = 160
    max_users: int = 64


@dataclass(frozen=True)
class Candidate:
    """A pattern: its ops by place, ascending, and the seconds that it saves.

    before, after: ops outside that it reads from, that read from it. origin: how it was found.
    """

    members: tuple[int, ...]
    seconds: float
    before: tuple[int, ...]
    after: tuple[int, ...]
    origin: str = "explore_patterns"


DEFAULT = ExploreOptions()


def explore_patterns(scorer: Scorer, options: ExploreOptions = DEFAULT) -> list[tuple[Candidate, ...]]:
    """Candidates by their first op's place, best first. Those of an op that no pattern may hold are ().

    Besides the paper's, patterns of ops that read one value which no pattern makes: PatternReduction with
    that value in the place of the op.
    """
    return _Explorer(scorer, options).run()


def candidate(scorer: Scorer, sketch: Sketch, origin: str) -> Candidate:
    """What the search keeps of a sketch."""
    t = scorer.table
    inside = sketch.phases_of
    before = {t.maker[v] for v in sketch.reads} - {-1}
    after = {u.op for v in sketch.leaves for u in t.users[v] if u.op not in inside}
    return Candidate(tuple(sorted(inside)), sketch.seconds, tuple(before), tuple(after), origin)


def is_placed(scorer: Scorer, sketch: Sketch) -> bool:
    """Whether the pattern can run after all that it reads and before all that reads it, in table order."""
    maker = scorer.table.maker
    return max((maker[v] for v in sketch.reads), default=-1) < sketch.last


def _vertices(table: FrameTable) -> tuple[list[int], list[list[int]]]:
    """XLA's own fusion first (section 6): an op that XLA computes in its only user is one vertex with it.

    (op -> the vertex, named by its last op; vertex -> its ops, the last one first.)
    """
    vertex, members = list(range(len(table.ops))), [[n] for n in range(len(table.ops))]
    for place in reversed(range(len(table.ops))):
        values = table.results[place]
        users = {u.op for v in values for u in table.users[v]}
        if len(users) != 1 or not table.fusible[place] or any(table.written[v] for v in values):
            continue
        (user,) = users
        into = vertex[user]
        if table.fusible[user] and len(members[into]) < VERTEX:
            vertex[place] = into
            members[into].append(place)
    return vertex, members


class _Explorer:
    def __init__(self, scorer: Scorer, options: ExploreOptions) -> None:
        self.scorer, self.options = scorer, options
        self.table = scorer.table
        self.max_buffers = scorer.table.profile.max_buffers
        self.found: dict[int, Sequence[Sketch]] = {}
        self.kept: list[tuple[Candidate, ...]] = [()] * len(self.table.ops)
        self.vertex, self.members = _vertices(self.table)

    def run(self) -> list[tuple[Candidate, ...]]:
        """Sketches are given up as soon as no producer can ask for them."""
        t = self.table
        shared = self._shared()
        asked = self._last_asked(shared)
        for place in reversed(range(len(t.ops))):
            if t.fusible[place] and self.vertex[place] == place:
                self.found[place] = self._top(place, self._consumers(t.results[place]))
                self._keep(self.found[place])
            for value in shared.get(place, ()):
                self._keep(self._top(None, self._consumers([value])), "shared input")
            for user in asked.get(place, ()):
                self.found.pop(user, None)
        return self.kept

    def _keep(self, sketches: Iterable[Sketch], origin: str = "explore_patterns") -> None:
        for sketch in sketches:
            found = candidate(self.scorer, sketch, origin)
            if found.seconds > 0:
                self.kept[found.members[0]] += (found,)

    def _shared(self) -> dict[int, list[int]]:
        """Values that no pattern makes and several may read, by the place of the first of these."""
        t = self.table
        found: dict[int, list[int]] = {}
        for value in range(len(t.values)):
            if not t.joins[value]:
                users = self._consumers([value])
                if len(users) > 1:
                    found.setdefault(min(users), []).append(value)
        return found

    def _last_asked(self, shared: Mapping[int, Sequence[int]]) -> dict[int, list[int]]:
        """The place whose turn is the last that needs the sketches of each op."""
        t = self.table
        last: dict[int, int] = {}
        for place in range(len(t.ops)):
            for value in t.results[place]:
                for user in self._consumers([value]):
                    last.setdefault(user, place)
        for place, values in shared.items():
            for value in values:
                for user in self._consumers([value]):
                    last[user] = min(place, last.get(user, place))
        found: dict[int, list[int]] = {}
        for place in range(len(t.ops)):
            found.setdefault(last.get(place, place), []).append(place)
        return found

    def _consumers(self, values: Iterable[int]) -> list[int]:
        users = (u.op for v in values for u in self.table.users[v])
        fusible = (self.vertex[u] for u in users if self.table.fusible[u])
        return list(dict.fromkeys(fusible))[: self.options.max_users]

    def _top(self, place: int | None, consumers: Sequence[int]) -> Sequence[Sketch]:
        """The candidates of a vertex (or of none) and its consumers: those that close no cycle."""
        return self._best(s for s in self._reduce(place, consumers) if is_placed(self.scorer, s))

    def _reduce(self, place: int | None, consumers: Sequence[int]) -> Iterable[Sketch]:
        """PatternReduction: patterns of the vertex that only grow into these consumers.

        One that waits for a consumer of another group is no cycle yet.
        """
        if len(consumers) <= GROUP:
            choices = self._choices(consumers)
            if place is None:
                return [s for s in choices if s is not None]
            return [self.scorer.added(s, self.members[place]) for s in choices]
        middle = GROUP * -(-len(consumers) // (2 * GROUP))
        parts = (consumers[:middle], consumers[middle:])
        left, right = (self._best(self._reduce(place, part)) for part in parts)
        return [*left, *right, *(self.scorer.joined(a, b) for a in left for b in right)]

    def _choices(self, consumers: Sequence[int]) -> Iterator[Sketch | None]:
        """Every union of a candidate, or none, of each consumer."""
        yield None
        for consumer in consumers:
            yield from self.found[consumer]
        if len(consumers) == GROUP:
            first, second = consumers
            for a in self.found[first]:
                for b in self.found[second]:
                    yield self.scorer.joined(a, b)

    def _best(self, sketches: Iterable[Sketch]) -> tuple[Sketch, ...]:
        """The best few of a kernel's size, each set of ops once: one for what it may yet become."""
        fitting = [s for s in sketches if self._fits(s)]
        if not fitting:
            return ()
        kept = [max(fitting, key=self.scorer.potential)]
        for sketch in sorted(fitting, key=lambda s: -s.seconds):
            if len(kept) == self.options.kept:
                break
            if all(sketch.phases_of.keys() != s.phases_of.keys() for s in kept):
                kept.append(sketch)
        return tuple(kept)

    def _fits(self, s: Sketch) -> bool:
        few = len(s.phases_of) <= self.options.max_ops
        return few and len(s.reads) + len(s.leaves) <= self.max_buffers
