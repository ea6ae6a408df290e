"""A plan with some of its ops left to XLA after all, and the reason for every edge that this leaves open."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from jstitch.ir.graph import Op
from jstitch.passes.base.plan import FusionPattern, FusionPlan, NoFuse, Reason, is_free

Why = Callable[[Op, Op], Reason | None]
"""Of an edge."""


def keep_patterns(
    plan: FusionPlan, kept: Sequence[FusionPattern], dropped: Mapping[Op, Reason]
) -> FusionPlan:
    """The plan with these patterns only. dropped: why ops lost their pattern."""
    return cut_edges(plan, kept, lambda producer, consumer: dropped.get(consumer) or dropped.get(producer))


def cut_edges(plan: FusionPlan, kept: Sequence[FusionPattern], why: Why) -> FusionPlan:
    """The plan with these patterns only. why: of the edges that this leaves open."""
    return FusionPlan(plan.frame, tuple(kept), tuple(_refusals(plan, kept, why)))


def _refusals(plan: FusionPlan, kept: Sequence[FusionPattern], why: Why) -> Iterator[NoFuse]:
    """One reason for every edge that is now unfused: an earlier pass's, or why its ops were dropped."""
    known = {(r.producer, r.consumer): r for r in plan.refusals}
    owner = {op: n for n, pattern in enumerate(kept) for op in pattern.ops if not is_free(op)}
    producers = plan.frame.producers()
    for consumer in plan.frame.ops:
        if is_free(consumer):
            continue
        for producer in dict.fromkeys(producers.get(v) for v in consumer.uses):
            if producer is None or is_free(producer):
                continue
            if producer in owner and owner[producer] == owner.get(consumer):
                continue
            refusal = known.get((producer, consumer))
            if refusal is None:
                reason = why(producer, consumer)
                assert reason is not None, f"nothing says why {producer.name} -> {consumer.name} is open"
                refusal = NoFuse(producer, consumer, reason)
            yield refusal
