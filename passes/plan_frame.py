"""The plan of one frame: what the user wants together, and a planner's patterns, trimmed, packed, and kept
where they pay.
"""

from __future__ import annotations

from jstitch.ir.graph import Graph
from jstitch.passes.base.context import Context
from jstitch.passes.base.named_pass import plan_pass
from jstitch.passes.base.plan import FusionPlan
from jstitch.passes.base.run_passes import run_passes
from jstitch.passes.fuse.finish_plan import finish_plan
from jstitch.passes.fuse.follow_pins import Pins
from jstitch.passes.fuse.hold_together import hold_pinned, hold_together, nothing_held, release
from jstitch.passes.fuse.tile_chains import tile_chains
from jstitch.passes.planners import find_planner

RELEASED = (plan_pass("tile_chains", run_on=tile_chains, about=tile_chains),)
"""What is done once patterns that were held together are there again."""


def plan_frame(frame: Graph, context: Context, pins: Pins | None = None) -> FusionPlan:
    """Patterns that become kernels, disjoint and acyclic, and a reason for every edge left unfused.

    pins: of a saved plan, whose kernels are taken as they are.
    """
    given = nothing_held(frame) if pins is None else hold_pinned(pins.frame(frame))
    held = hold_together(given, context)
    planner = find_planner(context.options)
    plan = release(finish_plan(planner(held.frame, context), context, planner.finish), held)
    return run_passes(plan, RELEASED, context)
