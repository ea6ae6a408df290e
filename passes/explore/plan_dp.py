"""The planner of FS-2021: explore patterns, search plans, and let the full cost model choose (section 5).

    explore_patterns     each op's best few patterns, by the delta-evaluator
    search_beams         disjoint ones of them that save most together
    remote fusion        patterns that are nowhere adjacent, in one kernel where that saves more
    evaluator            the best of the plans found and of those given, by the full cost model

Patterns of the given plans are candidates, too, and the frame is explored in an order in which they can all
run, so the result never scores below them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from jstitch.ir.graph import Graph, Op
from jstitch.ir.node_graph import topological_order
from jstitch.passes.base.context import Context
from jstitch.passes.base.plan import (
    FusionPattern,
    FusionPlan,
    NoFuse,
    Reason,
    is_free,
    make_patterns,
    with_constants,
)
from jstitch.passes.base.profile import Profile
from jstitch.passes.explore.explore_patterns import Candidate, candidate, explore_patterns
from jstitch.passes.explore.fuse_remote import fuse_remote
from jstitch.passes.explore.savings import modelled_seconds
from jstitch.passes.explore.score_pattern import Scorer
from jstitch.passes.explore.search_beams import DEFAULT, SearchOptions, search_beams
from jstitch.passes.explore.tabulate_frame import tabulate_frame
from jstitch.passes.fuse.check_plan import contract
from jstitch.passes.fuse.plan_layers import partition_reason
from jstitch.passes.fuse.ways_between import Ways, waits

Evaluator = Callable[[FusionPlan], float]
"""Modelled seconds of a frame with the kernels of a plan."""


def plan_dp(
    frame: Graph,
    context: Context,
    known: Sequence[FusionPlan] = (),
    evaluate: Evaluator | None = None,
    finish: Callable[[FusionPlan], FusionPlan] = lambda plan: plan,
    *,
    remote: bool = True,
    search: SearchOptions = DEFAULT,
) -> FusionPlan:
    """Patterns of the frame, disjoint and acyclic, with their scores, and a reason for every unfused edge.

    known: plans of other planners for this frame, acyclic each. evaluate: None = the full cost model. finish:
    what later passes make of a plan, to compare plans by. remote: patterns with nothing in common may be
    packed. search: how plans are looked for.
    """
    planner = _Planner(frame, context.profile, known, search)
    seconds = evaluate or partial(modelled_seconds, context=context)
    return min(planner.plans(remote), key=lambda plan: seconds(finish(plan)))


class _Planner:
    def __init__(
        self, frame: Graph, profile: Profile, known: Sequence[FusionPlan], search: SearchOptions
    ) -> None:
        self.frame, self.known, self.search = frame, known, search
        self.table = tabulate_frame(frame, profile, _order(known[0]) if known else None)
        self.scorer = Scorer(self.table)
        self.producers = frame.producers()
        self.reasons = {op: partition_reason(op) for op in self.table.ops}

    def plans(self, remote: bool) -> list[FusionPlan]:
        """What the search found, and the given plans; none that scores less than a given one."""
        given = [self._members(plan) for plan in self.known]
        candidates = explore_patterns(self.scorer)
        for found in (c for plan in given for c in plan if c.seconds > 0):
            candidates[found.members[0]] += (found,)
        searches: list[list[Candidate]] = []
        for searched in search_beams(candidates, self.search):
            packed = fuse_remote(self.scorer, searched) if remote else searched
            searches += [packed] if len(packed) == len(searched) else [packed, searched]
        plans = [*(self._scored_again(plan) for plan in searches), *given]
        least = max(map(_total, given), default=-math.inf)
        return [self._plan(plan) for plan in plans if _total(plan) >= least]

    def _scored_again(self, plan: Iterable[Candidate]) -> list[Candidate]:
        """Joined sketches only estimate what their halves share: sums are compared of whole ones."""
        return [candidate(self.scorer, self.scorer.sketch(c.members), c.origin) for c in plan]

    def _members(self, plan: FusionPlan) -> list[Candidate]:
        """The patterns of a given plan as candidates."""
        place = self.table.place
        sketches = [self.scorer.sketch(place[op] for op in p.ops if not is_free(op)) for p in plan.patterns]
        return [candidate(self.scorer, s, p.origin) for s, p in zip(sketches, plan.patterns, strict=True)]

    def _patterns(self, plan: Iterable[Candidate]) -> tuple[FusionPattern, ...]:
        groups = [with_constants((self.table.ops[m] for m in c.members), self.producers) for c in plan]
        return make_patterns(self.frame, groups, "plan_dp")

    # -- the result -------------------------------------------------------------------------------------

    def _plan(self, chosen: Sequence[Candidate]) -> FusionPlan:
        chosen = sorted(chosen, key=lambda c: c.members)
        scored = [
            replace(pattern, origin=found.origin, score=self.scorer.parts(self.scorer.sketch(found.members)))
            for found, pattern in zip(chosen, self._patterns(chosen), strict=True)
        ]
        return FusionPlan(self.frame, tuple(scored), tuple(self._refusals(scored)))

    def _refusals(self, patterns: Sequence[FusionPattern]) -> Iterator[NoFuse]:
        owner = {op: p for p in patterns for op in p.ops if not is_free(op)}
        number = {p: n for n, p in enumerate(patterns)}
        ways = Ways(self.frame, {op: number[p] for op, p in owner.items()})
        for consumer in self.table.ops:
            for producer in dict.fromkeys(self.producers.get(v) for v in consumer.uses):
                if producer is None or is_free(producer):
                    continue
                mine, theirs = owner.get(producer), owner.get(consumer)
                if mine is None or mine is not theirs:
                    why = self.reasons[consumer] or self.reasons[producer]
                    if why is None:
                        between = ways.between(producer, consumer)
                        why = _why(mine, theirs) if between is None else waits(between)
                    yield NoFuse(producer, consumer, why)


def _why(producer: FusionPattern | None, consumer: FusionPattern | None) -> Reason:
    """What the patterns on both sides of an edge save, which no pattern found that holds the edge does."""
    both = [p.score.seconds for p in (producer, consumer) if p is not None and p.score]
    sides = "the patterns on its sides" if both else "the sides, neither of which is in a pattern,"
    text = f"no pattern found that holds both saves more than {sides} do, {{bound}} us"
    return Reason("search", text, bound=sum(both) * 1e6)


def _total(plan: Iterable[Candidate]) -> float:
    return sum(c.seconds for c in plan)


def _order(plan: FusionPlan) -> list[Op]:
    """The frame's ops in a topological order in which each pattern's stand together."""
    owners = {op: n for n, p in enumerate(plan.patterns) for op in p.ops if not is_free(op)}
    node, after = contract(plan.frame, owners)
    members: dict[int, list[Op]] = {}
    for op in plan.frame.ops:
        members.setdefault(node[op], []).append(op)
    first = {n: place for place, n in reversed([*enumerate(node[op] for op in plan.frame.ops)])}
    waits = ((n, m) for n, users in after.items() for m in users)
    order = topological_order(first, waits, first.__getitem__)
    assert order is not None, "patterns wait for each other"
    return [op for n in order for op in members[n]]
