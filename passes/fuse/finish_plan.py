"""What every planner's plan goes through: trimmed, shared out, kept where it pays, computed again, packed.

{exp, broadcast}, {negate}, {abs}     ->     {exp}, {negate, abs}
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from jstitch.passes.base.context import Context, on_any_target
from jstitch.passes.base.named_pass import NamedPass, plan_pass
from jstitch.passes.base.plan import FusionPlan
from jstitch.passes.base.run_passes import run_passes
from jstitch.passes.fuse.break_cycles import break_cycles
from jstitch.passes.fuse.gate import gate
from jstitch.passes.fuse.hand_over import hand_over
from jstitch.passes.fuse.pack_patterns import pack_patterns
from jstitch.passes.fuse.recompute_outputs import recompute_outputs
from jstitch.passes.fuse.restrict_schemes import restrict_schemes
from jstitch.passes.fuse.split_prologues import split_prologues
from jstitch.passes.fuse.trim_patterns import trim_patterns
from jstitch.passes.fuse.weigh_cuts import weigh_cuts


def finish_plan(plan: FusionPlan, context: Context, passes: Sequence[NamedPass] | None = None) -> FusionPlan:
    """The patterns that become kernels; the frame may have copies of ops that are computed again."""
    return run_passes(plan, FINISH if passes is None else passes, context)


def _pack(plan: FusionPlan, context: Context, *, remote: bool | None = None) -> FusionPlan:
    if "packing" not in context.options.schemes:
        return plan
    remote = "remote" not in context.options.without if remote is None else remote
    return break_cycles(pack_patterns(plan, context, remote=remote), plan)


GATE = plan_pass("gate", run_on=gate, about=gate)

FIT: tuple[NamedPass, ...] = (
    plan_pass("restrict_schemes", run_on=restrict_schemes, about=restrict_schemes),
    plan_pass("trim_patterns", run_on=on_any_target(trim_patterns), about=trim_patterns),
)
"""What every plan needs to be one of kernels: the papers' presets are left with it, and the gate."""

FINISH: tuple[NamedPass, ...] = (
    *FIT,
    plan_pass("hand_over", run_on=hand_over, about=hand_over),
    replace(GATE, settings={"packed": True}),
    plan_pass("weigh_cuts", run_on=weigh_cuts, about=weigh_cuts),
    plan_pass("recompute_outputs", run_on=recompute_outputs, about=recompute_outputs),
    plan_pass("split_prologues", run_on=split_prologues, about=split_prologues),
    plan_pass("pack_patterns", run_on=_pack, about=pack_patterns),
    GATE,
)
"""In the order in which they run: what may still be packed is judged twice."""
