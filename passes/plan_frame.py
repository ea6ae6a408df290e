"""The planner of one frame: FS-2018's layers, then merging, then the gate."""

from __future__ import annotations

from jstitch.ir.graph import Graph
from jstitch.options import CompileOptions
from jstitch.passes.gate import gate
from jstitch.passes.merge_patterns import merge_patterns
from jstitch.passes.plan import FusionPlan
from jstitch.passes.plan_layers import plan_layers


def plan_frame(frame: Graph, options: CompileOptions) -> FusionPlan:
    """Patterns that become kernels, disjoint and acyclic, and a reason for every edge left unfused."""
    plan = plan_layers(frame)
    return gate(merge_patterns(plan), enabled=options.gate == "model")
