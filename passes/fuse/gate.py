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
from jstitch.ir.ops import lookup
from jstitch.passes.base.context import Context
from jstitch.passes.base.machine import Machine
from jstitch.passes.base.plan import FusionPattern, FusionPlan, Reason, is_free
from jstitch.passes.base.profile import Profile
from jstitch.passes.cost.cost_model import CostEstimate, wide_sums
from jstitch.passes.cost.recurrence_cost import cost_of, xla_cost_of
from jstitch.passes.fuse.absorb_updates import absorb_updates
from jstitch.passes.fuse.keep_patterns import keep_patterns

MARGIN = 0.95  # ours must be modelled at most this share of XLA's time
MARGINS: Mapping[str, float] = {"model": MARGIN, "measure": 1.5, "off": math.inf}
"""The same for every value of CompileOptions.tune."""
JUDGED = ("gate", "loop")  # rules of those that the model leaves to XLA for their time
DOUBTFUL = 5.0  # microseconds of XLA's, below which nobody's clock tells whether a kernel is faster


def margin_of(context: Context) -> float:
    """What holds for the context: where a race said so, that of what is measured."""
    tune = context.options.tune
    return MARGINS["measure" if context.bold and tune == "model" else tune]


def is_doubtful(why: Reason) -> bool:
    """Whether what stays XLA's by the model could still be faster as a kernel."""
    if why.rule not in JUDGED or why.found is None or why.bound is None:
        return False
    return DOUBTFUL < why.bound and why.found * MARGIN < MARGINS["measure"] * why.bound


@dataclass(frozen=True)
class Verdict:
    """Both estimates of a pattern on a machine, and whether it stays."""

    ours: CostEstimate
    xla: CostEstimate
    machine: Machine

    @property
    def ours_seconds(self) -> float:
        return self.ours.seconds(self.machine)

    @property
    def xla_seconds(self) -> float:
        return self.xla.seconds(self.machine)

    @property
    def pays(self) -> bool:
        return self.is_within(MARGIN)

    def is_within(self, margin: float, packed: bool = False) -> bool:
        """Whether ours takes less than that share of XLA's time. packed: its launch is shared."""
        ours = self.ours.without_launches if packed else self.ours
        return ours.seconds(self.machine) < margin * self.xla_seconds

    def reason(self, margin: float, packed: bool = False) -> Reason:
        """Why it does not stay. packed: its launch is shared."""
        ours, xla = self.ours.without_launches if packed else self.ours, self.xla
        return Reason(
            "gate",
            f"modelled {{found}} us ({ours.nbytes / 1e6:.2f} MB), and must be less than {{bound}} us, "
            f"{margin:g} of XLA's {self.xla_seconds * 1e6:.2f} us ({xla.nbytes / 1e6:.2f} MB, "
            f"{xla.kernels})",
            ours.seconds(self.machine) * 1e6,
            margin * self.xla_seconds * 1e6,
        )


def judge(pattern: FusionPattern, profile: Profile) -> Verdict:
    """With the updates that the kernel takes over."""
    copies, machine = saved_copies(pattern), profile.machine
    ours = cost_of(pattern, profile) + CostEstimate(nbytes=copies.nbytes / 2)
    return Verdict(ours, xla_cost_of(pattern, machine) + copies, machine)


def no_room(nbytes: int, profile: Profile) -> Reason:
    """For a program's sums over rows, of so many bytes."""
    text = "sums over rows would take {found} bytes of shared memory in one kernel, there are {bound}"
    return Reason("shared memory", text, nbytes, profile.arena_bytes)


def saved_copies(pattern: FusionPattern) -> CostEstimate:
    """XLA's, of values that others read too, into the place of an update that the kernel takes over."""
    copied = [u.value.tensor.nbytes for u in pattern.updates if not u.alone]
    return CostEstimate(len(copied), 2 * sum(copied))


def gate(
    plan: FusionPlan, context: Context, *, margin: float | None = None, packed: bool = False
) -> FusionPlan:
    """Drop patterns that take more than that share of XLA's time, with the numbers as the reason.

    margin: None = the options'. packed: others share the launch.
    """
    margin = margin_of(context) if margin is None else margin
    if margin == math.inf:
        return plan if packed else _leave_lone(plan, context)
    kept: list[FusionPattern] = []
    dropped: dict[Op, Reason] = {}
    for pattern, taking in zip(plan.patterns, absorb_updates(plan, context).patterns, strict=True):
        verdict = judge(taking, context.profile)
        if nbytes := wide_sums(pattern, context.profile):
            dropped |= dict.fromkeys(pattern.ops, no_room(nbytes, context.profile))
        elif verdict.is_within(margin, packed):
            kept.append(pattern)
        else:
            dropped |= dict.fromkeys(pattern.ops, verdict.reason(margin, packed))
    return keep_patterns(plan, kept, dropped)


def _leave_lone(plan: FusionPlan, context: Context) -> FusionPlan:
    """Without kernels of one elementwise op, unless a template asks for one: nothing is stitched there."""
    if context.options.template is not None:
        return plan
    return keep_patterns(plan, [p for p in plan.patterns if not _is_lone(p)], {})  # no edge lies inside


def _is_lone(pattern: FusionPattern) -> bool:
    ops = [op for op in pattern.ops if not is_free(op)]
    return len(ops) == 1 and lookup(ops[0].name).op_class.is_elementwise
