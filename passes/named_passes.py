"""Every step that can be named on a command line, as data: what it takes, what it gives, its options.

    find_pass("unroll_loops").bind({"trips": "4"}).run(graph, context)

graph -> graph       the pipeline's passes; what is done to a graph, or to each of its frames, before planning
graph -> plan        the planners, frame by frame
plan -> plan         what every planner's plan goes through
kernel -> kernel     what a target's kernels go through before they are written out
A pass's keyword-only parameters are its options; `context` is what else it must know.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from jstitch.errors import ParseError
from jstitch.ir.graph import Graph, Op, Value
from jstitch.passes.base.context import Context, on_any_target
from jstitch.passes.base.named_pass import NamedPass, graph_pass, plan_pass
from jstitch.passes.base.profile import Profile
from jstitch.passes.base.rewrite import map_frames
from jstitch.passes.fuse.absorb_updates import absorb_updates
from jstitch.passes.fuse.copy_returned import copy_returned
from jstitch.passes.graph.copy_carried import copy_carried
from jstitch.passes.graph.keep_counters import keep_counters
from jstitch.passes.lower.choose_columns import in_best_shape
from jstitch.passes.lower.own_columns import Part, as_they_were, own_columns
from jstitch.passes.lower.rewrite_sums import SUMS
from jstitch.passes.lower.split_reductions import split_reductions
from jstitch.passes.lower.sum_in_blocks import sum_in_blocks
from jstitch.passes.lower.take_components import take_components, with_components
from jstitch.passes.lower.widen_columns import widen_columns
from jstitch.passes.pipeline import PIPELINE
from jstitch.passes.plan_frame import RELEASED
from jstitch.passes.planners import AUTO, BEST, PLANNERS
from jstitch.passes.schedule.kernel_passes import CPU_PASSES, CUDA_PASSES

GraphPass = Callable[[Graph, Context], Graph]


# -- the steps whose functions take more than one thing -----------------------------------------------------


def _on_frames(change: GraphPass) -> GraphPass:
    return lambda graph, context: map_frames(graph, lambda frame: change(frame, context))


def _on_ops(change: Callable[[Sequence[Op], Sequence[Value], Profile], Sequence[Op]]) -> GraphPass:
    """What lowering does to a pattern's ops, on all ops of a frame."""

    def changed(frame: Graph, context: Context) -> Graph:
        ops = change(frame.ops, frame.outputs, context.profile)
        return Graph(frame.inputs, tuple(ops), frame.outputs)

    return _on_frames(changed)


def _in_strips(frame: Graph, context: Context) -> Graph:
    """As lowering does to a pattern's ops; what they make is put together again."""
    parts = in_best_shape(frame.ops, frame.outputs, context.profile)
    ops, outputs = as_they_were(parts, frame.outputs)
    return Graph(frame.inputs, tuple(ops), tuple(outputs))


def _widened(frame: Graph, context: Context) -> Graph:
    """As lowering does to a pattern's ops on a CPU; what they make has its shape again."""
    parts = widen_columns(frame.ops, frame.outputs)
    ops, outputs = as_they_were(parts or [Part(frame.ops)], frame.outputs)
    return Graph(frame.inputs, tuple(ops), tuple(outputs))


def _by_components(frame: Graph, context: Context) -> Graph:
    """As lowering does to a pattern's ops on a CPU; what they make is put together again."""
    ops, outputs = with_components(frame.ops, frame.outputs)
    return Graph(frame.inputs, tuple(ops), tuple(outputs))


PREPARATION = (
    graph_pass("copy_returned", run_on=copy_returned, about=copy_returned),
    graph_pass("keep_counters", run_on=on_any_target(keep_counters), about=keep_counters),
    graph_pass("copy_carried", run_on=_on_frames(copy_carried), about=copy_carried),
)
"""What is done to a graph between the pipeline and the planner."""

PASSES: tuple[NamedPass, ...] = (
    *PIPELINE,
    *PREPARATION,
    *{p.name: replace(p, settings={}) for planner in PLANNERS.values() for p in planner.passes}.values(),
    *{p.name: replace(p, settings={}) for planner in PLANNERS.values() for p in planner.finish}.values(),
    *RELEASED,
    plan_pass("absorb_updates", run_on=absorb_updates, about=absorb_updates),
    graph_pass("own_columns", run_on=_on_frames(_in_strips), about=own_columns),
    graph_pass("widen_columns", run_on=_on_frames(_widened), about=widen_columns),
    graph_pass("take_components", run_on=_on_frames(_by_components), about=take_components),
    *(graph_pass(about.__name__, run_on=_on_ops(rewrite), about=about) for about, rewrite in SUMS),
    graph_pass(
        "split_reductions",
        run_on=_on_ops(lambda ops, outputs, profile: split_reductions(ops)),
        about=split_reductions,
    ),
    graph_pass(
        "sum_in_blocks",
        run_on=_on_ops(lambda ops, outputs, profile: sum_in_blocks(ops)),
        about=sum_in_blocks,
    ),
    *CPU_PASSES,
    *CUDA_PASSES,
)
"""In the order in which they run; those after `absorb_updates` to each pattern's ops, and to its kernel."""

NAMES = tuple(p.name for p in PASSES)
_BY_NAME = {p.name: p for p in PASSES}


def find_pass(name: str) -> NamedPass:
    """Raises ParseError when there is no such pass."""
    if name not in _BY_NAME:
        raise ParseError("the name of a pass", name, hint="`jstitch passes` lists them")
    return _BY_NAME[name]


def default_passes(planner: str | None) -> tuple[NamedPass, ...]:
    """The pipeline; with a planner's name, then all that makes a plan, as `plan_frame` does it."""
    pipeline = PASSES[: len(PIPELINE)]
    if planner is None:
        return pipeline
    chosen = PLANNERS[BEST if planner == AUTO else planner]
    return (*pipeline, *PREPARATION, *chosen.passes, *chosen.finish, *RELEASED)
