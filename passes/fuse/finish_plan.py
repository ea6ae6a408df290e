"""What every planner's plan goes through: trimmed, shared out, kept where it pays, computed again, packed.

{exp, broadcast}, {negate}, {abs}     ->     {exp}, {negate, abs}
"""

from __future__ import annotations

from jstitch.passes.base.context import Context
from jstitch.passes.base.plan import FusionPlan
from jstitch.passes.fuse.break_cycles import break_cycles
from jstitch.passes.fuse.gate import gate
from jstitch.passes.fuse.hand_over import hand_over
from jstitch.passes.fuse.pack_patterns import pack_patterns
from jstitch.passes.fuse.recompute_outputs import recompute_outputs
from jstitch.passes.fuse.split_prologues import split_prologues
from jstitch.passes.fuse.trim_patterns import trim_patterns


def finish_plan(plan: FusionPlan, context: Context) -> FusionPlan:
    """The patterns that become kernels; the frame may have copies of ops that are computed again."""
    judged = gate(hand_over(trim_patterns(plan), context), context, packed=True)
    judged = recompute_outputs(judged, context)
    if "packing" in context.options.schemes:
        judged, remote = split_prologues(judged, context), "remote" not in context.options.without
        judged = break_cycles(pack_patterns(judged, context, remote=remote), judged)
    return gate(judged, context)
