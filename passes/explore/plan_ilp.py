"""The FS-2019 planner of one frame: many candidate patterns, an integer program, cycle cuts (section 4).

    candidates = what the layers give, apart and merged         plan_layers, merge_patterns
               + what stands between partition ops              explore_substitution
               + what grows from seeds, op by op                explore_seeds
               + neighbouring layers patterns, joined           explore_seeds on the contracted frame
    plan       = the disjoint, acyclic choice that saves most   select_patterns

Since the merged layers are among the candidates, no plan scores below theirs. With the cost model's scores
there are two choices, one that pays for every launch and one that expects small patterns to be packed; the
better one, or the merged layers, once finished, is the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from jstitch.ir.graph import Graph
from jstitch.passes.base.context import Context
from jstitch.passes.base.plan import FusionPattern, FusionPlan, Score
from jstitch.passes.base.profile import Profile
from jstitch.passes.cost.cost_model import kernel_cost, xla_cost
from jstitch.passes.explore.candidates import Candidates
from jstitch.passes.explore.explain_selection import explain_selection
from jstitch.passes.explore.explore_seeds import SeedOptions, explore_seeds
from jstitch.passes.explore.explore_substitution import explore_substitution
from jstitch.passes.explore.op_graph import grouped, op_graph
from jstitch.passes.explore.savings import Savings, modelled_savings, modelled_seconds
from jstitch.passes.explore.select_patterns import Selection, SelectOptions, select_patterns
from jstitch.passes.explore.solve_program import Problem
from jstitch.passes.fuse.fuse_subgraph import FusionOptions
from jstitch.passes.fuse.merge_patterns import merge_patterns
from jstitch.passes.fuse.plan_layers import plan_layers

ORIGIN = "plan_ilp"
SHARES = (1.0, 0.1)  # of its launches that a small pattern pays for, alone and packed


@dataclass(frozen=True)
class IlpOptions:
    """What bounds planning: each part's own bounds.

    layers: of the layers among the candidates, None: there are none, as in the paper. seeds: of patterns that
    grow op by op. joined: of layers patterns that are joined with their neighbours. select: of a choice.
    """

    layers: FusionOptions | None = field(default_factory=lambda: FusionOptions(footprint=0))
    seeds: SeedOptions = field(default_factory=SeedOptions)
    joined: SeedOptions = field(default_factory=lambda: SeedOptions(patterns=6, share=1.5, max_ops=400))
    select: SelectOptions = field(default_factory=SelectOptions)


def plan_ilp(
    frame: Graph,
    context: Context,
    savings: Savings | None = None,
    options: IlpOptions | None = None,
    finish: Callable[[FusionPlan], FusionPlan] = lambda plan: plan,
) -> FusionPlan:
    """Patterns of the frame, disjoint and acyclic, with their scores, and a reason for every unfused edge.

    savings: the scores, None = the cost model's; patterns that save nothing are never chosen. finish: what
    later passes make of a plan, to compare the cost model's choices by.
    """
    options = options or IlpOptions()
    candidates, known = collect(frame, context, options)
    choose = partial(_choose, candidates, known=known, options=options, profile=context.profile)
    if savings is not None:
        return choose(savings)
    modelled = modelled_savings(frame, context.profile, SHARES)
    if options.layers is None:
        return choose(modelled[0])
    problem, layers = _problem(candidates, modelled[0]), Selection(tuple(known[0]))
    merged = _plan(problem, candidates, layers, context.profile)
    plans = [*map(choose, modelled), merged]
    return min(plans, key=lambda plan: modelled_seconds(finish(plan), context))


def collect(frame: Graph, context: Context, options: IlpOptions) -> tuple[Candidates, list[list[int]]]:
    """All candidates, and the choices among them that are known to be disjoint and acyclic."""
    graph, without = op_graph(frame), context.options.without
    found = Candidates(graph, ORIGIN)
    sets = [] if "substitution" in without else explore_substitution(graph)
    if options.layers is not None:
        layered = plan_layers(frame, options.layers)
        merged = layered if "merge_patterns" in without else merge_patterns(layered, context)
        apart = found.of_plan(layered)
        sets = [tuple(found.of_plan(merged)), tuple(apart), *sets]
    known = [found.add(groups) for groups in sets]
    if options.layers is not None:
        found.add(explore_seeds(grouped(graph, apart), options.joined))
    if "seeds" not in without:
        found.add(explore_seeds(graph, options.seeds))
    return found, known


def _problem(candidates: Candidates, savings: Savings) -> Problem:
    scores = [savings.evaluate(p) for p in candidates.patterns]
    return Problem(candidates.graph, candidates.members, scores, savings.charges)


def _choose(
    candidates: Candidates,
    savings: Savings,
    known: Sequence[Sequence[int]],
    options: IlpOptions,
    profile: Profile,
) -> FusionPlan:
    problem = _problem(candidates, savings)
    useful = [[n for n in choice if problem.scores[n] > 0] for choice in known]
    return _plan(problem, candidates, select_patterns(problem, useful, options.select), profile)


def _plan(problem: Problem, candidates: Candidates, selection: Selection, profile: Profile) -> FusionPlan:
    chosen = ((candidates.patterns[n], problem.scores[n]) for n in selection.chosen)
    patterns = tuple(replace(p, score=_score(p, seconds, profile)) for p, seconds in chosen)
    return FusionPlan(problem.graph.frame, patterns, tuple(explain_selection(problem, selection)))


def _score(pattern: FusionPattern, seconds: float, profile: Profile) -> Score:
    """`seconds`, launches apart from the rest."""
    fewer = xla_cost(pattern, profile.machine).launches - kernel_cost(pattern, profile).launches
    calls = fewer * profile.machine.launch
    return Score(max(seconds - calls, 0.0), calls, max(calls - seconds, 0.0))
