"""The plan of one frame: a planner's patterns, trimmed, packed, and kept where they pay."""

from __future__ import annotations

from jstitch.ir.graph import Graph
from jstitch.options import CompileOptions
from jstitch.passes.break_cycles import break_cycles
from jstitch.passes.gate import gate
from jstitch.passes.pack_patterns import pack_patterns
from jstitch.passes.plan import FusionPlan
from jstitch.passes.planners import find_planner
from jstitch.passes.recompute_outputs import recompute_outputs
from jstitch.passes.trim_patterns import trim_patterns


def plan_frame(frame: Graph, options: CompileOptions) -> FusionPlan:
    """Patterns that become kernels, disjoint and acyclic, and a reason for every edge left unfused."""
    plan = trim_patterns(find_planner(options)(frame, options))
    judged = recompute_outputs(gate(plan, enabled=options.tune == "model", packed=True))
    if "packing" in options.schemes:
        judged = break_cycles(pack_patterns(judged), judged)
    return gate(judged, enabled=options.tune == "model")
