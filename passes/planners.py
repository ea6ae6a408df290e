"""The planners by name: all of them turn a frame into a FusionPlan, and `plan_frame` goes on from there.

PLANNERS["layers"](frame, context)     work/span layers (FS-2018), then merging of what shares traffic
PLANNERS["ilp"](frame, context)        substitution, exploration, integer program (FS-2019)
PLANNERS["dp"](frame, context)         approximate dynamic programming, then beam search (FS-2021)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from jstitch.ir.graph import Graph
from jstitch.options import CompileOptions
from jstitch.passes.base.context import Context
from jstitch.passes.base.plan import FusionPlan
from jstitch.passes.explore.plan_dp import plan_dp
from jstitch.passes.fuse.break_cycles import break_cycles
from jstitch.passes.fuse.finish_plan import finish_plan
from jstitch.passes.fuse.fuse_subgraph import FusionOptions
from jstitch.passes.fuse.merge_patterns import merge_patterns
from jstitch.passes.fuse.plan_layers import plan_layers

LAYERS = FusionOptions(footprint=0)  # merging comes before packing: it saves traffic, packing only launches
AUTO = "auto"
BEST = "layers"
"""What 'auto' stands for: the planner that measures best on the benchmark suite."""


class Planner(Protocol):
    """Patterns of one frame, disjoint and acyclic, with a reason for every unfused edge."""

    def __call__(self, frame: Graph, context: Context) -> FusionPlan: ...


def find_planner(options: CompileOptions) -> Planner:
    """The planner that the options name."""
    return PLANNERS[BEST if options.planner == AUTO else options.planner]


def merged_layers(frame: Graph, context: Context) -> FusionPlan:
    """FS-2018's layers, merged where that saves traffic."""
    layered = plan_layers(frame, LAYERS)
    return break_cycles(merge_patterns(layered, context), layered)


def integer_program(frame: Graph, context: Context) -> FusionPlan:
    """FS-2019's choice among many candidates, the merged layers among them."""
    # Here, because SciPy's solver is a fifth of `import jstitch`, and only this planner needs it.
    from jstitch.passes.explore.plan_ilp import plan_ilp

    return plan_ilp(frame, context, finish=lambda plan: finish_plan(plan, context))


def dynamic_programming(frame: Graph, context: Context) -> FusionPlan:
    """FS-2021's search, the merged layers' patterns among its candidates."""
    known, options = merged_layers(frame, context), context.options
    remote = "packing" in options.schemes and "remote" not in options.without
    return plan_dp(frame, context, (known,), finish=lambda plan: finish_plan(plan, context), remote=remote)


PLANNERS: Mapping[str, Planner] = {
    "layers": merged_layers,
    "ilp": integer_program,
    "dp": dynamic_programming,
}
