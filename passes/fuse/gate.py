"""Keep a pattern only if its stitched kernel is modelled to beat XLA's kernels for the same ops.

x + 1 over 64 MB: 2 launches, 128 MB each way   ->   stays XLA's, "modelled 5.1 ms against XLA's 5.1 ms"

A kernel whose sums over rows find no room on chip is none that could. Where patterns are measured afterwards,
those that the model is not sure of stay too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from jstitch.ir.graph import Op
from jstitch.passes.base.plan import FusionPattern, FusionPlan, Reason
from jstitch.passes.base.profile import current
from jstitch.passes.cost.cost_model import CostEstimate, kernel_cost, wide_sums, xla_cost
from jstitch.passes.fuse.absorb_updates import absorb_updates
from jstitch.passes.fuse.keep_patterns import keep_patterns

MARGIN = 0.95  # ours must be modelled at most this share of XLA's time
MARGINS: Mapping[str, float] = {"model": MARGIN, "measure": 1.5, "off": math.inf}
"""The same for every value of CompileOptions.tune."""


@dataclass(frozen=True)
class Verdict:
    """Both estimates of a pattern, and whether it stays."""

    ours: CostEstimate
    xla: CostEstimate

    @property
    def pays(self) -> bool:
        return self.is_within(MARGIN)

    def is_within(self, margin: float, packed: bool = False) -> bool:
        """Whether ours takes less than that share of XLA's time. packed: its launch is shared."""
        ours = self.ours.without_launches if packed else self.ours
        return ours.seconds < margin * self.xla.seconds

    def reason(self, margin: float, packed: bool = False) -> Reason:
        """Why it does not stay. packed: its launch is shared."""
        ours, xla = self.ours.without_launches if packed else self.ours, self.xla
        return Reason(
            "gate",
            f"modelled {{found}} us ({ours.nbytes / 1e6:.2f} MB), and must be less than {{bound}} us, "
            f"{margin:g} of XLA's {xla.seconds * 1e6:.2f} us ({xla.nbytes / 1e6:.2f} MB, "
            f"{xla.kernels})",
            ours.seconds * 1e6,
            margin * xla.seconds * 1e6,
        )


def judge(pattern: FusionPattern) -> Verdict:
    """With the updates that the kernel takes over."""
    copies = saved_copies(pattern)
    ours = kernel_cost(pattern) + CostEstimate(nbytes=copies.nbytes / 2)
    return Verdict(ours, xla_cost(pattern) + copies)


def no_room(nbytes: int) -> Reason:
    """For a program's sums over rows, of so many bytes."""
    text = "sums over rows would take {found} bytes of shared memory in one kernel, there are {bound}"
    return Reason("shared memory", text, nbytes, current().arena_bytes)


def saved_copies(pattern: FusionPattern) -> CostEstimate:
    """XLA's, of values that others read too, into the place of an update that the kernel takes over."""
    copied = [u.value.tensor.nbytes for u in pattern.updates if not u.alone]
    return CostEstimate(len(copied), 2 * sum(copied))


def gate(plan: FusionPlan, margin: float = MARGIN, packed: bool = False) -> FusionPlan:
    """Drop patterns that take more than that share of XLA's time, with the numbers as the reason.

    packed: others share the launch.
    """
    if margin == math.inf:
        return plan
    kept: list[FusionPattern] = []
    dropped: dict[Op, Reason] = {}
    for pattern, taking in zip(plan.patterns, absorb_updates(plan).patterns, strict=True):
        verdict = judge(taking)
        if nbytes := wide_sums(pattern):
            dropped |= dict.fromkeys(pattern.ops, no_room(nbytes))
        elif verdict.is_within(margin, packed):
            kept.append(pattern)
        else:
            dropped |= dict.fromkeys(pattern.ops, verdict.reason(margin, packed))
    return keep_patterns(plan, kept, dropped)
