"""Keep a pattern only if its stitched kernel is modelled to beat XLA's kernels for the same ops.

x + 1 over 64 MB: 2 launches, 128 MB each way   ->   stays XLA's, "modelled 5.1 ms against XLA's 5.1 ms"
"""

from __future__ import annotations

from dataclasses import dataclass

from jstitch.ir.graph import Op
from jstitch.passes.cost_model import CostEstimate, kernel_cost, xla_cost
from jstitch.passes.keep_patterns import keep_patterns
from jstitch.passes.plan import FusionPattern, FusionPlan

MARGIN = 0.95  # ours must be modelled at most this share of XLA's time


@dataclass(frozen=True)
class Verdict:
    """Both estimates of a pattern, and whether it stays."""

    ours: CostEstimate
    xla: CostEstimate

    @property
    def pays(self) -> bool:
        return self.ours.seconds < MARGIN * self.xla.seconds

    @property
    def pays_packed(self) -> bool:
        """Whether it pays when its launch is shared."""
        return self.ours.without_launches.seconds < MARGIN * self.xla.seconds

    def __str__(self) -> str:
        ours, xla = self.ours, self.xla
        return (
            f"modelled {ours.seconds * 1e6:.1f} us ({ours.nbytes / 1e6:.2f} MB) against XLA's "
            f"{xla.seconds * 1e6:.1f} us ({xla.nbytes / 1e6:.2f} MB, {xla.launches:.0f} kernels)"
        )


def judge(pattern: FusionPattern) -> Verdict:
    return Verdict(kernel_cost(pattern), xla_cost(pattern))


def gate(plan: FusionPlan, enabled: bool = True, packed: bool = False) -> FusionPlan:
    """Drop patterns that do not pay, with the numbers as the reason. `packed`: others share the launch."""
    if not enabled:
        return plan
    kept: list[FusionPattern] = []
    dropped: dict[Op, tuple[str, str]] = {}
    for pattern in plan.patterns:
        verdict = judge(pattern)
        if verdict.pays_packed if packed else verdict.pays:
            kept.append(pattern)
        else:
            dropped |= dict.fromkeys(pattern.ops, ("gate", str(verdict)))
    return keep_patterns(plan, kept, dropped)
