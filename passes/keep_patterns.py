"""A plan with some of its ops left to XLA after all, and the reason for every edge that this leaves open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from jstitch.ir.graph import Op
from jstitch.passes.plan import FusionPattern, FusionPlan, NoFuse, is_free

NOT_MERGED = ("merge", "one kernel for both is not modelled to be faster")


def keep_patterns(
    plan: FusionPlan, kept: Sequence[FusionPattern], dropped: Mapping[Op, tuple[str, str]]
) -> FusionPlan:
    """The plan with these patterns only. dropped: op -> (rule, reason) for ops that lost their pattern."""
    return FusionPlan(plan.frame, tuple(kept), tuple(_refusals(plan, kept, dropped)))


def _refusals(
    plan: FusionPlan, kept: Sequence[FusionPattern], dropped: Mapping[Op, tuple[str, str]]
) -> Iterator[NoFuse]:
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
            why = dropped.get(consumer) or dropped.get(producer) or NOT_MERGED
            yield known.get((producer, consumer)) or NoFuse(producer, consumer, *why)
