"""Keep a pattern only if its stitched kernel is modelled to beat XLA's kernels for the same ops.

x + 1 over 64 MB: 2 launches, 128 MB each way   ->   stays XLA's, "modelled 5.1 ms against XLA's 5.1 ms"
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from jstitch.ir.graph import Op, Value
from jstitch.ir.ops import OpClass, lookup
from jstitch.passes.cost_model import CostEstimate, kernel_cost, xla_cost
from jstitch.passes.plan import FusionPattern, FusionPlan, NoFuse, is_free, make_pattern

MARGIN = 0.95  # ours must be modelled at most this share of XLA's time


@dataclass(frozen=True)
class Verdict:
    """Both estimates of a pattern, and whether it stays."""

    ours: CostEstimate
    xla: CostEstimate

    @property
    def pays(self) -> bool:
        return self.ours.seconds < MARGIN * self.xla.seconds

    def __str__(self) -> str:
        ours, xla = self.ours, self.xla
        return (
            f"modelled {ours.seconds * 1e6:.1f} us ({ours.nbytes / 1e6:.2f} MB) against XLA's "
            f"{xla.seconds * 1e6:.1f} us ({xla.nbytes / 1e6:.2f} MB, {xla.launches:.0f} kernels)"
        )


def judge(pattern: FusionPattern) -> Verdict:
    return Verdict(kernel_cost(pattern), xla_cost(pattern))


def gate(plan: FusionPlan, enabled: bool = True) -> FusionPlan:
    """Trim what costs nothing in XLA, then drop patterns that do not pay, with the numbers as the reason."""
    kept: list[FusionPattern] = []
    dropped: dict[Op, tuple[str, str]] = {}
    for pattern in plan.patterns:
        trimmed = trim(plan, pattern)
        rest = set() if trimmed is None else set(trimmed.ops)
        dropped |= dict.fromkeys((op for op in pattern.ops if op not in rest), ("trim", "only moves data"))
        if trimmed is None:
            continue
        verdict = judge(trimmed) if enabled else None
        if verdict is None or verdict.pays:
            kept.append(trimmed)
        else:
            dropped |= dict.fromkeys(trimmed.ops, ("gate", str(verdict)))
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


NOT_MERGED = ("merge", "one kernel for both is not modelled to be faster")


def trim(plan: FusionPlan, pattern: FusionPattern) -> FusionPattern | None:
    """Drop outputs that only move data XLA has anyway; None when nothing else is left."""
    while True:
        dropped = [op for op in pattern.ops if _only_moves(op, pattern)]
        if not dropped:
            break
        rest = [op for op in pattern.ops if op not in dropped]
        if all(is_free(op) for op in rest):
            return None
        pattern = make_pattern(plan.frame, rest, pattern.origin)
    return pattern if pattern.outputs else None


def _only_moves(op: Op, pattern: FusionPattern) -> bool:
    """A shape op at the pattern's end whose operand is in memory without it, or that repeats elements."""
    if lookup(op.name).op_class is not OpClass.SHAPE or is_free(op) or op.result not in pattern.outputs:
        return False
    if any(op.result in user.operands for user in pattern.ops):
        return False
    inside: set[Value] = {v for other in pattern.ops if not is_free(other) for v in other.results}
    source = op.operands[0]
    return source not in inside or source in pattern.outputs or op.result.tensor.size > source.tensor.size
