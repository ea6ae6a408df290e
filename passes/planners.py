"""The planners by name: all of them turn a frame into a FusionPlan, and `plan_frame` goes on from there.

PLANNERS["layers"](frame, context)     work/span layers (FS-2018), then merging of what shares traffic
PLANNERS["ilp"](frame, context)        substitution, exploration, integer program (FS-2019)
PLANNERS["dp"](frame, context)         approximate dynamic programming, then beam search (FS-2021)

These three are the papers' searches with what we know besides: traffic is merged, candidates come from all of
them, plans are finished by passes of our own. The papers as published, for those who compare:

fs2018    LC-layers that stop every pattern, elementwise packing by footprint, schedules tuned op by op
fs2019    patterns by substitution and from seeds, chosen by the integer program; templates are tried
fs2021    dynamic programming with a virtual vertex, three beams judged by the latency-evaluator; templates
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from jstitch.ir.graph import Graph
from jstitch.options import CompileOptions
from jstitch.passes.base.context import Context
from jstitch.passes.base.named_pass import NamedPass, plan_pass, planner_pass
from jstitch.passes.base.plan import FusionPlan
from jstitch.passes.base.run_passes import run_passes
from jstitch.passes.explore.plan_dp import plan_dp
from jstitch.passes.explore.plan_latency import latency_seconds
from jstitch.passes.explore.search_beams import AS_PUBLISHED
from jstitch.passes.fuse.choose_schedules import choose_schedules
from jstitch.passes.fuse.finish_plan import FINISH, FIT, GATE, finish_plan
from jstitch.passes.fuse.fuse_subgraph import FusionOptions
from jstitch.passes.fuse.merge_patterns import merge_patterns
from jstitch.passes.fuse.plan_layers import plan_layers

LAYERS = FusionOptions(footprint=0)  # merging comes before packing: it saves traffic, packing only launches
AUTO = "auto"
BEST = "layers"
"""What 'auto' stands for: the planner that measures best on the benchmark suite."""


@dataclass(frozen=True)
class Planner:
    """Its passes: the first takes a frame, others the plan that it gives. finish: what comes after them."""

    passes: tuple[NamedPass, ...]
    finish: tuple[NamedPass, ...] = FINISH

    def __call__(self, frame: Graph, context: Context) -> FusionPlan:
        """Patterns of one frame, disjoint and acyclic, with a reason for every unfused edge."""
        first, *others = self.passes
        plan: FusionPlan = first.run(frame, context)
        return run_passes(plan, others, context)


def find_planner(options: CompileOptions) -> Planner:
    """The planner that the options name."""
    return PLANNERS[BEST if options.planner == AUTO else options.planner]


def _layers(
    frame: Graph,
    context: Context,
    *,
    min_blocks: int = LAYERS.min_blocks,
    serial_elements: int = LAYERS.serial_elements,
    max_ops: int = LAYERS.max_ops,
    footprint: int = LAYERS.footprint,
    max_schedules: int = LAYERS.max_schedules,
    fuse_batch_dot: bool = LAYERS.fuse_batch_dot,
    whole_layer_roof: bool = LAYERS.whole_layer_roof,
) -> FusionPlan:
    without = context.options.without
    return plan_layers(
        frame,
        FusionOptions(
            min_blocks=min_blocks,
            serial_elements=serial_elements,
            max_ops=max_ops,
            footprint=0 if "footprints" in without else footprint,
            max_schedules=max_schedules,
            fuse_batch_dot=fuse_batch_dot,
            whole_layer_roof=whole_layer_roof and "roofs" not in without,
        ),
    )


def integer_program(frame: Graph, context: Context, *, published: bool = False) -> FusionPlan:
    """FS-2019's choice among many candidates, the merged layers among them.

    published: without these, which are none of the paper's.
    """
    # Here, because SciPy's solver is a fifth of `import jstitch`, and only this planner needs it.
    from jstitch.passes.explore.plan_ilp import IlpOptions, plan_ilp

    if published:
        return plan_ilp(frame, context, options=IlpOptions(layers=None))
    return plan_ilp(frame, context, finish=lambda plan: finish_plan(plan, context))


def dynamic_programming(frame: Graph, context: Context, *, published: bool = False) -> FusionPlan:
    """FS-2021's search, the merged layers' patterns among its candidates.

    published: without these, by three beams, of whose plans the latency-evaluator chooses.
    """
    options = context.options
    remote = "packing" in options.schemes and "remote" not in options.without
    if not published:
        known = PLANNERS["layers"](frame, context)
        return plan_dp(
            frame, context, (known,), finish=lambda plan: finish_plan(plan, context), remote=remote
        )
    width = 1 if "beams" in options.without else AS_PUBLISHED.width
    judged = partial(latency_seconds, context=context)
    return plan_dp(
        frame,
        context,
        evaluate=None if "evaluator" in options.without else judged,
        finish=lambda plan: finish_plan(plan, context, (*FIT, GATE)),
        remote=remote,
        search=replace(AS_PUBLISHED, width=width),
    )


_LAYERED = planner_pass("plan_layers", run_on=_layers, about=plan_layers)
_CHOSEN = planner_pass("plan_ilp", run_on=integer_program, about=integer_program)
_EXPLORED = planner_pass("plan_dp", run_on=dynamic_programming, about=dynamic_programming)
_TUNED = plan_pass("choose_schedules", run_on=choose_schedules, about=choose_schedules)
_AS_IN_2018 = {"whole_layer_roof": True, "footprint": FusionOptions.footprint}

PLANNERS: Mapping[str, Planner] = {
    "layers": Planner((_LAYERED, plan_pass("merge_patterns", run_on=merge_patterns, about=merge_patterns))),
    "ilp": Planner((_CHOSEN,)),
    "dp": Planner((_EXPLORED,)),
    "fs2018": Planner((replace(_LAYERED, settings=_AS_IN_2018),), (*FIT, _TUNED, GATE)),
    "fs2019": Planner((replace(_CHOSEN, settings={"published": True}),), (*FIT, GATE)),
    "fs2021": Planner((replace(_EXPLORED, settings={"published": True}),), (*FIT, GATE)),
}
