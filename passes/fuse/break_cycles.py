"""Undo the fusion that made patterns wait for each other.

{%a, %c} merged from {%a} and {%c}, {%b}, with a -> b -> c     ->     {%a}, {%b}, {%c}

The passes that join patterns keep plans acyclic; this one keeps a fault in one of them from costing the
whole frame its kernels.
"""

from __future__ import annotations

from collections.abc import Iterator

from jstitch.passes.base.plan import FusionPattern, FusionPlan, Reason, is_free
from jstitch.passes.fuse.check_plan import waiting_patterns
from jstitch.passes.fuse.keep_patterns import cut_edges

CYCLE = Reason("cycle", "patterns that hold both would wait for each other")


def break_cycles(plan: FusionPlan, before: FusionPlan) -> FusionPlan:
    """The plan, acyclic. before: an earlier plan of the frame whose patterns were joined to those of `plan`.

    Patterns that wait for each other although they were never joined are left to XLA.
    """
    waiting = waiting_patterns(plan)
    if waiting is None:
        return plan
    split = tuple(_split(plan, waiting, before))
    left = waiting_patterns(FusionPlan(plan.frame, split)) or ()
    kept = [p for n, p in enumerate(split) if n not in left]
    return cut_edges(FusionPlan(plan.frame, (), before.refusals), kept, lambda *_: CYCLE)


def _split(plan: FusionPlan, waiting: frozenset[int], before: FusionPlan) -> Iterator[FusionPattern]:
    owner = {op: n for n, p in enumerate(plan.patterns) for op in p.ops if not is_free(op)}
    for n, pattern in enumerate(plan.patterns):
        if n not in waiting:
            yield pattern
    for pattern in before.patterns:
        first = next(op for op in pattern.ops if not is_free(op))
        if owner.get(first) in waiting:
            yield pattern
