"""The planner of one frame: FS-2018's layers, merging, packing, and the gate."""

from __future__ import annotations

from jstitch.ir.graph import Graph
from jstitch.options import CompileOptions
from jstitch.passes.break_cycles import break_cycles
from jstitch.passes.fuse_subgraph import FusionOptions
from jstitch.passes.gate import gate
from jstitch.passes.merge_patterns import merge_patterns
from jstitch.passes.pack_patterns import pack_patterns
from jstitch.passes.plan import FusionPlan
from jstitch.passes.plan_layers import plan_layers
from jstitch.passes.recompute_outputs import recompute_outputs
from jstitch.passes.trim_patterns import trim_patterns

LAYERS = FusionOptions(footprint=0)  # merging comes before packing: it saves traffic, packing only launches


def plan_frame(frame: Graph, options: CompileOptions) -> FusionPlan:
    """Patterns that become kernels, disjoint and acyclic, and a reason for every edge left unfused."""
    layered = plan_layers(frame, LAYERS)
    plan = trim_patterns(break_cycles(merge_patterns(layered), layered))
    judged = recompute_outputs(gate(plan, enabled=options.gate == "model", packed=True))
    if "packing" in options.schemes:
        judged = break_cycles(pack_patterns(judged), judged)
    return gate(judged, enabled=options.gate == "model")
