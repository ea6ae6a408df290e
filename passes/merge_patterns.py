"""Merge patterns that share memory traffic, as long as the merged kernel is modelled to be faster.

    dx = f(x, dy)  |  dgamma = sum_rows(g(x, dy))     ->     one kernel, x and dy read once

FS-2018's layers never join a row and a column reduction of one tensor (their schedules clash); lanes and
phases can hold both. Greedy, largest shared traffic first; a merge must leave the plan acyclic.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field

from jstitch.ir.graph import Op, Value
from jstitch.passes.cost_model import kernel_cost
from jstitch.passes.plan import FusionPattern, FusionPlan, is_free, make_pattern

MAX_OPS = 400
SCALARS = 256  # bytes; sharing no more than this joins only patterns of few ops
FEW_OPS = 64
SEARCH = 2000  # nodes looked at for a path before a merge is given up


def merge_patterns(plan: FusionPlan) -> FusionPlan:
    """The plan with patterns merged; refusals of edges that became inner ones are dropped."""
    merged = _Merger(plan).run()
    owner = {op: n for n, p in enumerate(merged) for op in p.ops if not is_free(op)}
    refusals = tuple(r for r in plan.refusals if owner.get(r.producer, -1) != owner.get(r.consumer, -2))
    return FusionPlan(plan.frame, tuple(merged), refusals)


@dataclass(eq=False)
class _Merger:
    plan: FusionPlan
    node_of: dict[Op, int] = field(default_factory=dict)
    patterns: dict[int, FusionPattern] = field(default_factory=dict)
    successors: dict[int, set[int]] = field(default_factory=dict)
    predecessors: dict[int, set[int]] = field(default_factory=dict)
    first: dict[int, int] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)
    queue: list[tuple[float, int, int]] = field(default_factory=list)

    def run(self) -> list[FusionPattern]:
        self._index()
        for n in list(self.patterns):
            self._push(n)
        while self.queue:
            _, a, b = heapq.heappop(self.queue)
            if a in self.patterns and b in self.patterns:
                self._try(a, b)
        return [self.patterns[n] for n in sorted(self.patterns, key=lambda n: self.first[n])]

    def _index(self) -> None:
        frame = self.plan.frame
        for n, pattern in enumerate(self.plan.patterns):
            self.patterns[n] = pattern
            self.node_of.update((op, n) for op in pattern.ops if not is_free(op))
        self.count = len(self.plan.patterns)
        for place, op in enumerate(frame.ops):
            n = self.node_of.setdefault(op, self.count)
            self.count = max(self.count, n + 1)
            self.first.setdefault(n, place)
            self.last[n] = place
            self.successors.setdefault(n, set())
            self.predecessors.setdefault(n, set())
        self.spans = _Spans(len(frame.ops))
        for n in self.patterns:
            self.spans.cover(self.first[n], self.last[n])
        self.producers = producers = frame.producers()
        self.users: dict[Value, list[Op]] = frame.users()
        for op in frame.ops:
            for v in op.uses:
                maker = producers.get(v)
                if maker is not None:
                    self._edge(self.node_of[maker], self.node_of[op])

    def _edge(self, a: int, b: int) -> None:
        if a != b:
            self.successors[a].add(b)
            self.predecessors[b].add(a)

    # -- candidates -----------------------------------------------------------------------------------

    def _push(self, n: int) -> None:
        """Queue every pattern that shares traffic with pattern `n`."""
        shared: dict[int, float] = {}
        pattern = self.patterns[n]
        for v in (*pattern.inputs, *pattern.outputs):
            for m in self._touching(v):
                if m != n:
                    shared[m] = shared.get(m, 0.0) + v.tensor.nbytes
        for m, nbytes in shared.items():
            if nbytes < SCALARS and len(pattern.ops) + len(self.patterns[m].ops) > FEW_OPS:
                continue
            heapq.heappush(self.queue, (-nbytes, min(n, m), max(n, m)))

    def _touching(self, v: Value) -> Iterator[int]:
        """Patterns that make or use a value; not all users of one that everybody uses."""
        users = self.users.get(v, ())
        found = {self.node_of[op] for op in users[:64]}
        found |= {m for m in self._makers(v)}
        return (m for m in found if m in self.patterns)

    def _makers(self, v: Value) -> Iterator[int]:
        op = self.producers.get(v)
        if op is not None:
            yield self.node_of[op]

    # -- merging --------------------------------------------------------------------------------------

    def _try(self, a: int, b: int) -> None:
        ops = {*self.patterns[a].ops, *self.patterns[b].ops}
        if len(ops) > MAX_OPS or self._reaches(a, b) or self._reaches(b, a):
            return
        union = make_pattern(self.plan.frame, ops, "merge_patterns")
        cost = kernel_cost(union).seconds
        if cost >= self._seconds(a) + self._seconds(b):
            return
        self._replace(a, b, union, cost)

    def _seconds(self, n: int) -> float:
        if n not in self.seconds:
            self.seconds[n] = kernel_cost(self.patterns[n]).seconds
        return self.seconds[n]

    def _reaches(self, a: int, b: int) -> bool:
        """Whether a path leads from a to b through some other node (or the search was given up)."""
        todo = [m for m in self.successors[a] if m != b]
        seen = set(todo)
        beyond = self.spans.first_gap(self.last[b])
        while todo:
            m = todo.pop()
            if m == b or len(seen) > SEARCH:
                return True
            if self.first[m] > beyond:
                continue
            new = self.successors[m] - seen
            seen |= new
            todo += new
        return False

    def _replace(self, a: int, b: int, union: FusionPattern, cost: float) -> None:
        n, self.count = self.count, self.count + 1
        self.first[n] = min(self.first[a], self.first[b])
        self.last[n] = max(self.last[a], self.last[b])
        self.spans.cover(self.first[n], self.last[n])
        for table, back in ((self.successors, self.predecessors), (self.predecessors, self.successors)):
            table[n] = (table[a] | table[b]) - {a, b}
            for m in table[n]:
                back[m] -= {a, b}
                back[m].add(n)
        for old in (a, b):
            del self.patterns[old], self.successors[old], self.predecessors[old]
        self.node_of.update((op, n) for op in union.ops if not is_free(op))
        self.patterns[n], self.seconds[n] = union, cost
        self._push(n)


class _Spans:
    """Which places of the frame lie between two ops of one pattern.

    A path may go past a place and come back only through a pattern that spans it, so a search for what is
    before the first gap need not look at anything after it.
    """

    def __init__(self, places: int) -> None:
        self._next = list(range(places + 1))

    def first_gap(self, place: int) -> int:
        """The first place, from `place` on, that no pattern spans together with the one after it."""
        end = place
        while self._next[end] != end:
            end = self._next[end]
        while self._next[place] != end:
            self._next[place], place = end, self._next[place]
        return end

    def cover(self, first: int, last: int) -> None:
        place = self.first_gap(first)
        while place < last:
            self._next[place] = place + 1
            place = self.first_gap(place + 1)
