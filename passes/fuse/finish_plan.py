"""What every planner's plan goes through: trimmed, shared out, kept where it pays, computed again, packed.

{exp, broadcast}, {negate}, {abs}     ->     {exp}, {negate, abs}
"""

from __future__ import annotations

from jstitch.options import CompileOptions
from jstitch.passes.base.plan import FusionPlan
from jstitch.passes.fuse.break_cycles import break_cycles
from jstitch.passes.fuse.gate import MARGINS, gate
from jstitch.passes.fuse.hand_over import hand_over
from jstitch.passes.fuse.pack_patterns import pack_patterns
from jstitch.passes.fuse.recompute_outputs import recompute_outputs
from jstitch.passes.fuse.split_prologues import split_prologues
from jstitch.passes.fuse.trim_patterns import trim_patterns


def finish_plan(plan: FusionPlan, options: CompileOptions) -> FusionPlan:
    """The patterns that become kernels; the frame may have copies of ops that are computed again."""
    judged = recompute_outputs(gate(hand_over(trim_patterns(plan)), MARGINS[options.tune], packed=True))
    if "packing" in options.schemes:
        judged = split_prologues(judged)
        judged = break_cycles(pack_patterns(judged, remote="remote" not in options.without), judged)
    return gate(judged, MARGINS[options.tune])
