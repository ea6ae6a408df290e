"""The planner that is made of the integer program: against brute force, the layers, greed; always sound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

import pytest

from jstitch.ir.graph import Graph
from jstitch.passes.base.plan import FusionPattern, FusionPlan, is_free, make_pattern
from jstitch.passes.explore.contracted_cycles import Contraction
from jstitch.passes.explore.explore_seeds import EVERYTHING, explore_seeds
from jstitch.passes.explore.explore_substitution import explore_substitution
from jstitch.passes.explore.op_graph import Members, op_graph
from jstitch.passes.explore.plan_ilp import IlpOptions, plan_ilp
from jstitch.passes.explore.savings import Savings, modelled_savings, modelled_seconds
from jstitch.passes.explore.select_patterns import SelectOptions, greedy
from jstitch.passes.explore.solve_program import Problem
from jstitch.passes.fuse.check_plan import check_plan
from jstitch.passes.fuse.fuse_subgraph import FusionOptions
from jstitch.passes.fuse.merge_patterns import merge_patterns
from jstitch.passes.fuse.plan_layers import plan_layers
from jstitch.passes.fuse.trim_patterns import trim
from jstitch.passes.lower.lower_kernel import lower_kernel
from jstitch.passes.pipeline import run
from jstitch.passes.plan_frame import plan_frame
from tests.contexts import CPU, CPU_PROFILE, on
from tests.passes import small_dags
from tests.passes.random_dags import random_dag
from tests.passes.random_graphs import Limits, make_graph
from tests.passes.small_dags import Dag, best_total

PLANNED = ("layers", "ilp")
EVERY = IlpOptions(seeds=EVERYTHING, joined=EVERYTHING)


def per_op(pattern: FusionPattern) -> float:
    """More than one op is always worth it."""
    return sum(not is_free(op) for op in pattern.ops) - 1.0


def few_ops(pattern: FusionPattern) -> float:
    return per_op(pattern) if len(pattern.ops) < 9 else -1.0


def numbers(plan: FusionPlan) -> list[Members]:
    place = {op: n for n, op in enumerate(plan.frame.ops)}
    return [tuple(place[op] for op in p.ops if not is_free(op)) for p in plan.patterns]


@pytest.mark.parametrize("size", [2, 3, 4])
def test_the_planner_is_as_good_as_brute_force(size: int) -> None:
    """With every pattern explored; the score is per set of ops."""
    for seed, dag in enumerate(small_dags.connected_dags(size)):
        scores = small_dags.random_scores(dag, Random(seed))
        scores = {s: x for s, x in scores.items() if s.bit_count() > 1}
        frame = small_dags.frame_of(dag)
        place = {op: n for n, op in enumerate(frame.ops)}

        def evaluate(pattern: FusionPattern) -> float:
            nodes = sum(1 << place[op] for op in pattern.ops)  # noqa: B023
            return scores.get(nodes, 0.0)  # noqa: B023

        plan = plan_ilp(frame, CPU, Savings(evaluate), EVERY)
        assert check_plan(plan) == ()
        total = sum(p.score.seconds for p in plan.patterns if p.score)
        assert total == pytest.approx(best_total(dag, scores)[0])


def real_scores(frame: Graph, dag: Dag, savings: Savings) -> dict[int, float]:
    """f of every convex connected pattern, as the planner sees it: trimmed."""
    place = {op: n for n, op in enumerate(frame.ops)}
    scores: dict[int, float] = {}
    fusible = op_graph(frame).fusible
    for s in small_dags.patterns(dag):
        if not all(fusible[n] for n in small_dags.members(s)):
            continue
        ops = [op for n, op in enumerate(frame.ops) if s >> n & 1 or is_free(op)]
        used = {v for op in ops for v in op.operands}
        pattern = make_pattern(frame, [o for o in ops if not is_free(o) or o.result in used], "test")
        trimmed = trim(FusionPlan(frame, ()), pattern)
        if trimmed is not None:
            scores[sum(1 << place[op] for op in trimmed.ops if not is_free(op))] = savings.evaluate(trimmed)
    return scores


def total(plan: FusionPlan, charges: Mapping[int, float]) -> float:
    scores = [p.score.seconds for p in plan.patterns if p.score]
    return Problem(op_graph(plan.frame), numbers(plan), scores, charges).total(range(len(scores)))


def dag_of(frame: Graph) -> Dag:
    return tuple(sum(1 << m for m in before) for before in op_graph(frame).before)


def test_the_planner_with_the_cost_model_is_as_good_as_brute_force() -> None:
    """Elementwise ops, reductions, transposes and opaque ops, large enough for kernels to pay."""
    found = 0
    for seed in range(40):
        frame = random_dag(Random(seed), 8, reach=5, opaque=0.1)
        dag = dag_of(frame)
        (savings,) = modelled_savings(frame, CPU_PROFILE)
        plan = plan_ilp(frame, CPU, savings, EVERY)
        assert check_plan(plan) == ()
        best, _ = best_total(dag, real_scores(frame, dag, savings), savings.charges)
        assert total(plan, savings.charges) >= best * (1 - 1e-9)  # merged layers need not be connected
        found += bool(plan.patterns)
    assert found > 8


def trimmed(frame: Graph, groups: Sequence[Members]) -> list[FusionPattern]:
    graph, made = op_graph(frame), []
    producers = frame.producers()
    for group in groups:
        ops = graph.ops(group)
        free = {producers[v] for op in ops for v in op.operands if v in producers and is_free(producers[v])}
        pattern = trim(FusionPlan(frame, ()), make_pattern(frame, {*free, *ops}, "test"))
        made += [] if pattern is None else [pattern]
    return made


def greedy_total(frame: Graph, patterns: Sequence[FusionPattern], savings: Savings) -> float:
    """Of the greedy choice among these patterns, which must be disjoint or not."""
    graph = op_graph(frame)
    members = numbers(FusionPlan(frame, tuple(patterns)))
    problem = Problem(graph, members, [savings.evaluate(p) for p in patterns], savings.charges)
    return problem.total(greedy(problem, Contraction(graph, members)))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("model", [True, False])
def test_the_plan_never_scores_below_the_layers_nor_any_generators_greedy_plan(
    seed: int, model: bool
) -> None:
    random = Random(seed)
    frame = random_dag(random, random.randint(10, 120), random.choice((3, 8, 30)))
    savings = modelled_savings(frame, CPU_PROFILE)[0] if model else Savings(per_op)
    plan = plan_ilp(frame, CPU, savings)
    assert check_plan(plan) == ()
    graph, layered = op_graph(frame), plan_layers(frame, FusionOptions(footprint=0))
    merged = merge_patterns(layered, CPU)
    sources = [numbers(layered), numbers(merged), explore_seeds(graph), *explore_substitution(graph)]
    for groups in sources:
        other = greedy_total(frame, trimmed(frame, groups), savings)
        assert total(plan, savings.charges) >= other * (1 - 1e-9)


@pytest.mark.parametrize("seed", range(25))
def test_plans_are_disjoint_acyclic_explained_and_emitable(seed: int) -> None:
    random = Random(seed)
    check(random_dag(random, random.randint(5, 80), random.choice((2, 6, 30))))
    check(run(make_graph(random, Limits(ops=25)), CPU))


@pytest.mark.slow
@pytest.mark.parametrize("shard", range(100))
def test_plans_of_many_random_dags(shard: int) -> None:
    """10,000 in all."""
    for seed in range(shard * 100, shard * 100 + 100):
        random = Random(seed)
        check(random_dag(random, random.randint(5, 60), random.choice((2, 6, 30))))


def check(frame: Graph) -> None:
    """Plans for the most fusion, and for the cost model's."""
    for savings in (Savings(per_op), None):
        plan = plan_ilp(frame, CPU, savings)
        assert check_plan(plan) == ()
        assert all(p.score is not None for p in plan.patterns)
        for n, p in enumerate(plan.patterns):
            lower_kernel(f"k{n}", p.ops, p.inputs, p.outputs, CPU_PROFILE)


@pytest.mark.parametrize(
    "select", [SelectOptions(seconds=0.0), SelectOptions(rounds=0, nodes=0), SelectOptions(patterns=5)]
)
@pytest.mark.parametrize("seed", range(6))
def test_a_planner_in_bounds_is_valid_and_no_worse_than_the_layers(seed: int, select: SelectOptions) -> None:
    frame = random_dag(Random(seed), 100)
    plan = plan_ilp(frame, CPU, Savings(per_op), IlpOptions(select=select))
    assert check_plan(plan) == ()
    layered = plan_layers(frame, FusionOptions(footprint=0))
    base = merge_patterns(layered, CPU)
    assert total(plan, {}) >= sum(map(per_op, trimmed(frame, numbers(base))))


def test_large_programs_in_slices_lose_little() -> None:
    sliced = whole = 0.0
    for seed in range(12):
        frame = random_dag(Random(seed), 100)
        for patterns in (15, 2000):
            options = IlpOptions(select=SelectOptions(patterns=patterns))
            found = total(plan_ilp(frame, CPU, Savings(per_op), options), {})
            sliced, whole = (sliced + found, whole) if patterns == 15 else (sliced, whole + found)
    assert 0.95 * whole <= sliced <= whole * (1 + 1e-9)


def test_plans_are_the_same_every_time() -> None:
    frame = random_dag(Random(5), 150)
    first, second = (plan_ilp(frame, CPU, Savings(per_op)) for _ in range(2))
    assert [p.ops for p in first.patterns] == [p.ops for p in second.patterns]


def test_edges_left_open_say_why() -> None:
    rules = set()
    for seed in range(30):
        plan = plan_ilp(random_dag(Random(seed), 80, 30), CPU, Savings(few_ops))
        rules |= {r.rule for r in plan.refusals}
        for refusal in plan.refusals:
            assert refusal.rule != "selection" or "those chosen instead" in refusal.reason
    assert rules == {"opaque", "score", "selection", "candidates", "cycle", "trim"}


@pytest.mark.parametrize("seed", range(6))
def test_a_finished_plan_is_modelled_no_slower_than_the_finished_layers(seed: int) -> None:
    frame = random_dag(Random(seed), 150, 12)
    seconds = {
        name: modelled_seconds(plan_frame(frame, on(CPU_PROFILE, planner=name)), CPU) for name in PLANNED
    }
    assert seconds["ilp"] <= seconds["layers"] * (1 + 1e-9)


def test_the_option_chooses_it() -> None:
    frame = random_dag(Random(2), 60)
    plan = plan_frame(frame, on(CPU_PROFILE, planner="ilp", tune="off", schemes=("thread", "warp", "block")))
    assert {p.origin for p in plan.patterns} == {"plan_ilp"}
    assert check_plan(plan) == ()
