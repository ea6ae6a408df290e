"""Merge patterns that share memory traffic, as long as the merged kernel is modelled to be faster.

    dx = f(x, dy)  |  dgamma = sum_rows(g(x, dy))     ->     one kernel, x and dy read once

FS-2018's layers never join a row and a column reduction of one tensor (their schedules clash); lanes and
phases can hold both. Greedy, largest shared traffic first; a merge must leave the plan acyclic.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from jstitch.ir.graph import Op, Value
from jstitch.passes.base.context import Context
from jstitch.passes.base.plan import FusionPattern, FusionPlan, NoFuse, Reason, is_free, make_pattern
from jstitch.passes.base.profile import Profile
from jstitch.passes.cost.cost_model import kernel_cost, wide_sums
from jstitch.passes.fuse.break_cycles import break_cycles
from jstitch.passes.fuse.fuse_subgraph import GAVE_UP, TOO_MANY
from jstitch.passes.fuse.gate import no_room
from jstitch.passes.fuse.joined_nodes import JoinedNodes
from jstitch.passes.fuse.ways_between import waits

MAX_OPS = 400
SCALARS = 256  # bytes; sharing no more than this joins only patterns of few ops
FEW_OPS = 64
SHARED = "the kernels on its sides share {found} bytes, at least {bound} are wanted for so many ops"
USERS = 64  # of one value: the patterns of the first so many are tried
MANY_USERS = "a value between both has {found} users, of which the patterns of the first {bound} were tried"
SLOWER = "one kernel for both is modelled to take {found} us, two take {bound} us"
KEPT = ("schedule", "blocks")
"""Rules of the layers that say why two kernels would be one in phases only; then merging decides."""


def merge_patterns(plan: FusionPlan, context: Context) -> FusionPlan:
    """The plan with patterns merged; refusals of edges that became inner ones are dropped.

    Where both sides are in patterns, the reason is why these two were not merged.
    """
    merger = _Merger(plan, context.profile)
    merged = merger.run()
    owner = merger.node_of
    refusals = (r for r in plan.refusals if owner[r.producer] != owner[r.consumer])
    made = FusionPlan(plan.frame, tuple(merged), tuple(map(merger.renewed, refusals)))
    return break_cycles(made, plan)


@dataclass(eq=False)
class _Merger:
    plan: FusionPlan
    profile: Profile
    node_of: dict[Op, int] = field(default_factory=dict)
    patterns: dict[int, FusionPattern] = field(default_factory=dict)
    first: dict[int, int] = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)
    queue: list[tuple[float, int, int]] = field(default_factory=list)
    verdicts: dict[tuple[int, int], Reason] = field(default_factory=dict)

    def renewed(self, refusal: NoFuse) -> NoFuse:
        """With what was found of the patterns on both sides, once they are final."""
        a, b = sorted((self.node_of[refusal.producer], self.node_of[refusal.consumer]))
        if (a, b) not in self.verdicts and refusal.rule == GAVE_UP and {a, b} <= self.patterns.keys():
            self.verdicts[a, b] = self._untried(a, b)
        why = self.verdicts.get((a, b), refusal.why)
        if refusal.rule in KEPT and why.rule == "merge":
            why = replace(why, rule=refusal.rule, text=f"{refusal.reason}; and {why.text}")
        return replace(refusal, why=why)

    def _untried(self, a: int, b: int) -> Reason:
        """Of two patterns that never met in the queue: a value between them has more users than are tried."""
        between = self.nodes.between(a, b)
        if between is not None:
            return waits(self.plan.frame.ops[self.first[between]])
        p, q = self.patterns[a], self.patterns[b]
        common = {*p.inputs, *p.outputs}.intersection((*q.inputs, *q.outputs))
        nbytes = sum(v.tensor.nbytes for v in common)
        if nbytes < SCALARS and len(p.ops) + len(q.ops) > FEW_OPS:
            return Reason("merge", SHARED, nbytes, SCALARS)
        users = max((len(self.users.get(v, ())) for v in common), default=0)
        return Reason("merge", MANY_USERS, users, USERS)

    def run(self) -> list[FusionPattern]:
        self._index()
        tried = set[tuple[int, int]]()
        for n in list(self.patterns):
            self._push(n)
        while self.queue:
            _, a, b = heapq.heappop(self.queue)
            if (a, b) not in tried and a in self.patterns and b in self.patterns:
                tried.add((a, b))  # both sides queue a pair
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
        self.producers = producers = frame.producers()
        self.users: dict[Value, list[Op]] = frame.users()
        made = ((producers[v], op) for op in frame.ops for v in op.uses if v in producers)
        edges = ((self.node_of[maker], self.node_of[op]) for maker, op in made)
        self.nodes = JoinedNodes(self.first, edges)

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
                self.verdicts[min(n, m), max(n, m)] = Reason("merge", SHARED, nbytes, SCALARS)
                continue
            heapq.heappush(self.queue, (-nbytes, min(n, m), max(n, m)))

    def _touching(self, v: Value) -> Iterator[int]:
        """Patterns that make or use a value; not all users of one that everybody uses."""
        users = self.users.get(v, ())
        found = {self.node_of[op] for op in users[:USERS]}
        found |= {m for m in self._makers(v)}
        return (m for m in found if m in self.patterns)

    def _makers(self, v: Value) -> Iterator[int]:
        op = self.producers.get(v)
        if op is not None:
            yield self.node_of[op]

    # -- merging --------------------------------------------------------------------------------------

    def _try(self, a: int, b: int) -> None:
        ops = {*self.patterns[a].ops, *self.patterns[b].ops}
        if len(ops) > MAX_OPS:
            self.verdicts[a, b] = Reason("size", TOO_MANY, len(ops), MAX_OPS)
            return
        between = self.nodes.between(a, b)
        if between is not None:
            self.verdicts[a, b] = waits(self.plan.frame.ops[self.first[between]])
            return
        union = make_pattern(self.plan.frame, ops, "merge_patterns")
        cost, apart = self._cost(union), self._seconds(a) + self._seconds(b)
        if cost >= apart:
            self.verdicts[a, b] = Reason("merge", SLOWER, cost * 1e6, apart * 1e6)
            return
        if nbytes := wide_sums(union, self.profile):
            self.verdicts[a, b] = no_room(nbytes, self.profile)
            return
        self._replace(a, b, union, cost)

    def _seconds(self, n: int) -> float:
        if n not in self.seconds:
            self.seconds[n] = self._cost(self.patterns[n])
        return self.seconds[n]

    def _cost(self, pattern: FusionPattern) -> float:
        return kernel_cost(pattern, self.profile).seconds(self.profile.machine)

    def _replace(self, a: int, b: int, union: FusionPattern, cost: float) -> None:
        n, self.count = self.count, self.count + 1
        self.first[n] = min(self.first[a], self.first[b])
        self.nodes.join(a, b, n)
        del self.patterns[a], self.patterns[b]
        self.node_of.update((op, n) for op in union.ops if not is_free(op))
        self.patterns[n], self.seconds[n] = union, cost
        self._push(n)
