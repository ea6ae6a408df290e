"""Every step that can be named on a command line, as data: what it takes, what it gives, its options.

    find_pass("unroll_loops").bind({"trips": "4"}).run(graph, context)

graph -> graph       the pipeline's passes; what is done to a graph, or to each of its frames, before planning
graph -> plan        the planners, frame by frame
plan -> plan         what every planner's plan goes through
A pass's keyword-only parameters are its options; `context` is what else it must know.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, get_type_hints

from jstitch.errors import ParseError
from jstitch.ir.graph import Graph, Op, Value
from jstitch.passes.base.context import Context, on_any_target
from jstitch.passes.base.plan import FusionPlan
from jstitch.passes.base.profile import Profile
from jstitch.passes.base.rewrite import map_frames
from jstitch.passes.fuse.absorb_updates import absorb_updates
from jstitch.passes.fuse.break_cycles import break_cycles
from jstitch.passes.fuse.copy_returned import copy_returned
from jstitch.passes.fuse.fuse_subgraph import FusionOptions
from jstitch.passes.fuse.gate import gate
from jstitch.passes.fuse.hand_over import hand_over
from jstitch.passes.fuse.merge_patterns import merge_patterns
from jstitch.passes.fuse.pack_patterns import pack_patterns
from jstitch.passes.fuse.plan_layers import plan_layers
from jstitch.passes.fuse.recompute_outputs import recompute_outputs
from jstitch.passes.fuse.restrict_schemes import restrict_schemes
from jstitch.passes.fuse.split_prologues import split_prologues
from jstitch.passes.fuse.trim_patterns import trim_patterns
from jstitch.passes.graph.copy_carried import copy_carried
from jstitch.passes.graph.keep_counters import keep_counters
from jstitch.passes.graph.pipeline import PIPELINE
from jstitch.passes.lower.block_variances import block_variances
from jstitch.passes.lower.factor_sums import factor_sums
from jstitch.passes.lower.one_pass_sums import one_pass_sums
from jstitch.passes.lower.split_reductions import split_reductions
from jstitch.passes.planners import AUTO, BEST, LAYERS, dynamic_programming, integer_program

GraphPass = Callable[[Graph, Context], Graph]


class Form(enum.Enum):
    """What a pass takes or gives."""

    GRAPH = "graph"
    PLAN = "plan"


@dataclass(frozen=True)
class NamedPass:
    """A pass by name. run_on: from what it takes to what it gives; about: the function that explains it.

    settings: of its options, those that are not at their defaults.
    """

    name: str
    takes: Form
    gives: Form
    run_on: Callable[..., Any]
    about: Callable[..., Any]
    settings: Mapping[str, Any] = field(default_factory=dict)

    def run(self, subject: Any, context: Context) -> Any:
        """A Graph or a FusionPlan from one. Raises what the pass raises."""
        return self.run_on(subject, context, **self.settings)

    @property
    def defaults(self) -> Mapping[str, Any]:
        """Its options and their values where none is given; None: what the compile options say."""
        parameters = inspect.signature(self.run_on).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}

    def bind(self, texts: Mapping[str, Sequence[str]]) -> NamedPass:
        """The pass with these options. Raises ParseError for an option or a value that it cannot have."""
        types = get_type_hints(self.run_on)
        for name in texts:
            if name not in self.defaults:
                known = ", ".join(self.defaults) or "none"
                raise ParseError(f"an option of {self.name}: {known}", name)
        settings = {name: _read(self.name, name, types[name], words) for name, words in texts.items()}
        return NamedPass(self.name, self.takes, self.gives, self.run_on, self.about, settings)

    @property
    def what(self) -> str:
        """One line: of the module that is named after it, else of its function."""
        own = self.about.__module__.rpartition(".")[2] == self.about.__name__
        text = inspect.getdoc(inspect.getmodule(self.about) if own else self.about)
        return (text or "").partition("\n")[0]


def _read(owner: str, name: str, wanted: Any, words: Sequence[str]) -> Any:
    """One option's value. Lists are written a,b,c."""
    if wanted == tuple[str, ...] | None:
        return tuple(words)
    single = next(t for t in (bool, int, float) if t is wanted or wanted == t | None)
    try:
        (word,) = words
        return {"true": True, "false": False}[word] if single is bool else single(word)
    except (KeyError, ValueError):
        kind = {bool: "true or false", int: "a whole number", float: "a number"}[single]
        raise ParseError(f"{owner}{{{name}=...}} to be {kind}", ",".join(words)) from None


# -- the steps whose functions take more than one thing -----------------------------------------------------


def _on_frames(change: GraphPass) -> GraphPass:
    return lambda graph, context: map_frames(graph, lambda frame: change(frame, context))


def _on_ops(change: Callable[[Sequence[Op], Sequence[Value], Profile], Sequence[Op]]) -> GraphPass:
    """What lowering does to a pattern's ops, on all ops of a frame."""

    def changed(frame: Graph, context: Context) -> Graph:
        ops = change(frame.ops, frame.outputs, context.profile)
        return Graph(frame.inputs, tuple(ops), frame.outputs)

    return _on_frames(changed)


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
    return plan_layers(
        frame,
        FusionOptions(
            min_blocks=min_blocks,
            serial_elements=serial_elements,
            max_ops=max_ops,
            footprint=footprint,
            max_schedules=max_schedules,
            fuse_batch_dot=fuse_batch_dot,
            whole_layer_roof=whole_layer_roof,
        ),
    )


def _merge(plan: FusionPlan, context: Context) -> FusionPlan:
    return break_cycles(merge_patterns(plan, context), plan)


def _pack(plan: FusionPlan, context: Context, *, remote: bool | None = None) -> FusionPlan:
    if "packing" not in context.options.schemes:
        return plan
    remote = "remote" not in context.options.without if remote is None else remote
    return break_cycles(pack_patterns(plan, context, remote=remote), plan)


_graph = partial(NamedPass, takes=Form.GRAPH, gives=Form.GRAPH)
_planner = partial(NamedPass, takes=Form.GRAPH, gives=Form.PLAN)
_plan = partial(NamedPass, takes=Form.PLAN, gives=Form.PLAN)

PREPARATION = (
    _graph("copy_returned", run_on=copy_returned, about=copy_returned),
    _graph("keep_counters", run_on=on_any_target(keep_counters), about=keep_counters),
    _graph("copy_carried", run_on=_on_frames(copy_carried), about=copy_carried),
)
"""What is done to a graph between the pipeline and the planner."""

_FINISH = (
    _plan("restrict_schemes", run_on=restrict_schemes, about=restrict_schemes),
    _plan("trim_patterns", run_on=on_any_target(trim_patterns), about=trim_patterns),
    _plan("hand_over", run_on=hand_over, about=hand_over),
    _plan("gate", run_on=gate, about=gate),
    _plan("recompute_outputs", run_on=recompute_outputs, about=recompute_outputs),
    _plan("split_prologues", run_on=split_prologues, about=split_prologues),
    _plan("pack_patterns", run_on=_pack, about=pack_patterns),
)
_LAYERS = (
    _planner("plan_layers", run_on=_layers, about=plan_layers),
    _plan("merge_patterns", run_on=_merge, about=merge_patterns),
)
_ILP = _planner("plan_ilp", run_on=integer_program, about=integer_program)
_DP = _planner("plan_dp", run_on=dynamic_programming, about=dynamic_programming)

PASSES: tuple[NamedPass, ...] = (
    *(_graph(p.name, run_on=p.run, about=p.run) for p in PIPELINE),
    *PREPARATION,
    *_LAYERS,
    _ILP,
    _DP,
    *_FINISH,
    _plan("absorb_updates", run_on=absorb_updates, about=absorb_updates),
    _graph(
        "factor_sums",
        run_on=_on_ops(lambda ops, outputs, profile: factor_sums(ops, outputs)),
        about=factor_sums,
    ),
    _graph("one_pass_sums", run_on=_on_ops(one_pass_sums), about=one_pass_sums),
    _graph("block_variances", run_on=_on_ops(block_variances), about=block_variances),
    _graph(
        "split_reductions",
        run_on=_on_ops(lambda ops, outputs, profile: split_reductions(ops)),
        about=split_reductions,
    ),
)
"""In the order in which they run; the last four are done to each pattern's ops when it becomes a kernel."""

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
    first = {"layers": _LAYERS, "ilp": (_ILP,), "dp": (_DP,)}[BEST if planner == AUTO else planner]
    judge = find_pass("gate")
    finish = (judge.bind({"packed": ["true"]}) if p is judge else p for p in _FINISH)
    return (*pipeline, *PREPARATION, *first, *finish, judge)
