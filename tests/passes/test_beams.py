"""The beam search and the planner around it: disjoint, acyclic, never below the plans it is given."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from random import Random

import pytest

from jstitch.codegen.kernel_ir import Kernel
from jstitch.ir.graph import Graph
from jstitch.options import CompileOptions
from jstitch.passes.base.context import Context
from jstitch.passes.base.plan import FusionPattern, FusionPlan, is_free
from jstitch.passes.explore.explore_patterns import Candidate, explore_patterns
from jstitch.passes.explore.fuse_remote import fuse_remote, run_times
from jstitch.passes.explore.plan_dp import plan_dp
from jstitch.passes.explore.score_pattern import Scorer
from jstitch.passes.explore.search_beams import search_beams
from jstitch.passes.explore.tabulate_frame import tabulate_frame
from jstitch.passes.fuse.absorb_updates import absorb_updates, contracted
from jstitch.passes.fuse.check_plan import check_plan
from jstitch.passes.lower.check_kernel import check_kernel
from jstitch.passes.lower.lower_kernel import lower_kernel
from jstitch.passes.pipeline import run
from jstitch.passes.plan_frame import plan_frame
from jstitch.passes.planners import PLANNERS
from tests.contexts import CPU, CPU_PROFILE
from tests.passes.random_dags import random_dag
from tests.passes.random_graphs import Limits, make_graph
from tests.passes.workload_frames import PROFILES, WORKLOADS, workload_frames

OPTIONS = CompileOptions()


def at(*members: int, seconds: float, before: Sequence[int] = (), after: Sequence[int] = ()) -> Candidate:
    return Candidate(members, seconds, tuple(before), tuple(after))


def by_place(ops: int, candidates: Sequence[Candidate]) -> list[tuple[Candidate, ...]]:
    return [tuple(c for c in candidates if c.members[0] == place) for place in range(ops)]


def test_a_larger_pattern_later_beats_a_small_one_now() -> None:
    small, large = at(0, 2, seconds=1.0), at(1, 2, 3, seconds=5.0)
    assert search_beams(by_place(4, [small, large])) == [[large]]


def test_patterns_that_would_wait_for_each_other_are_not_both_chosen() -> None:
    """0 -> 2 and 1 -> 3; {0, 3} reads from {1, 2}, and {1, 2} from {0, 3}."""
    first = at(0, 3, seconds=2.0, before=[1], after=[2])
    second = at(1, 2, seconds=3.0, before=[0], after=[3])
    assert search_beams(by_place(4, [first, second])) == [[second]]


@pytest.mark.parametrize("seed", range(30))
def test_the_search_is_near_the_best_choice(seed: int) -> None:
    """Against every subset of the candidates, on frames small enough to try them all."""
    random = Random(seed)
    frame = random_dag(random, 14, reach=5)
    scorer = Scorer(tabulate_frame(frame, CPU_PROFILE))
    candidates = explore_patterns(scorer)
    known = [c for found in candidates for c in found]
    (chosen,) = search_beams(candidates)
    best = max(_acyclic(scorer, known), default=0.0)
    assert sum(c.seconds for c in chosen) >= 0.9 * best


def _acyclic(scorer: Scorer, candidates: Sequence[Candidate]) -> Iterator[float]:
    few = sorted(candidates, key=lambda c: -c.seconds)[:24]
    for count in (1, 2, 3):
        for plan in itertools.combinations(few, count):
            members = [m for c in plan for m in c.members]
            if len(members) == len(set(members)) and run_times(scorer.table, plan) is not None:
                yield sum(c.seconds for c in plan)


def small_frames(seed: int) -> Iterator[Graph]:
    yield random_dag(Random(seed), Random(seed).choice((12, 30, 70)), reach=Random(seed).choice((4, 12, 40)))
    yield run(make_graph(Random(seed), Limits(ops=40)), CPU)


def kernel_of(pattern: FusionPattern) -> Kernel:
    """Raises CannotLowerError if there is none."""
    inputs, _, outputs = contracted(pattern)
    return lower_kernel("k", pattern.ops, inputs, outputs, CPU_PROFILE, updates=pattern.updates)


def check_plans(frame: Graph) -> int:
    """The plans of dp and of the layers are right and can be built; dp's scores no less."""
    layered = PLANNERS["layers"](frame, CPU)
    plan = plan_dp(frame, CPU, (layered,))
    assert check_plan(layered) == check_plan(plan) == ()
    assert total(frame, plan, CPU) >= total(frame, layered, CPU) - 1e-12
    for pattern in (*absorb_updates(layered, CPU).patterns, *absorb_updates(plan, CPU).patterns):
        assert not check_kernel(kernel_of(pattern))
    return len(plan.patterns)


def total(frame: Graph, plan: FusionPlan, context: Context) -> float:
    scorer = Scorer(tabulate_frame(frame, context.profile))
    return sum(scorer.score(p.ops).seconds for p in plan.patterns)


@pytest.mark.parametrize("seed", range(40))
def test_plans_of_random_graphs(seed: int) -> None:
    for frame in small_frames(seed):
        check_plans(frame)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(50))
def test_plans_of_many_random_graphs(chunk: int) -> None:
    planned = sum(check_plans(frame) for k in range(100) for frame in small_frames(1000 + 100 * chunk + k))
    assert planned > 50


@pytest.mark.parametrize("seed", range(20))
def test_without_other_plans_the_search_stands_alone(seed: int) -> None:
    for frame in small_frames(seed):
        assert check_plan(plan_dp(frame, CPU)) == ()


def test_scores_are_kept_with_the_patterns() -> None:
    frame = random_dag(Random(5), 80)
    plan = plan_dp(frame, CPU)
    assert plan.patterns
    scorer = Scorer(tabulate_frame(frame, CPU_PROFILE))
    for pattern in plan.patterns:
        assert pattern.score is not None
        assert pattern.score.seconds == pytest.approx(scorer.score(pattern.ops).seconds)


def test_remote_fusion_packs_patterns_that_share_nothing() -> None:
    """Twenty small chains that nobody joins: one kernel, its call paid once."""
    frame = random_dag(Random(7), 40, opaque=0.3)
    scorer = Scorer(tabulate_frame(frame, CPU_PROFILE))
    (alone,) = search_beams(explore_patterns(scorer))
    packed = fuse_remote(scorer, alone)
    assert len(packed) < len(alone)
    assert {m for c in packed for m in c.members} == {m for c in alone for m in c.members}
    assert sum(c.seconds for c in packed) > sum(c.seconds for c in alone)
    assert run_times(scorer.table, packed) is not None


SMALL = ("layer_norm_vjp", "rms_norm_grad", "batch_norm_grad", "masked_softmax", "vae_step")


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("target", ["cpu", "h200"])
def test_never_below_the_layers_on_workloads(name: str, target: str) -> None:
    never_below_the_layers(name, target)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(WORKLOADS))
@pytest.mark.parametrize("target", ["cpu", "h200"])
def test_never_below_the_layers_on_all_workloads(name: str, target: str) -> None:
    never_below_the_layers(name, target)


def never_below_the_layers(name: str, target: str) -> None:
    context = Context(OPTIONS.replace(planner="dp"), PROFILES[target])
    for frame in workload_frames(name, context):
        layered = PLANNERS["layers"](frame, context)
        plan = plan_dp(frame, context, (layered,))
        assert check_plan(plan) == ()
        assert total(frame, plan, context) >= total(frame, layered, context) - 1e-12
        assert check_plan(plan_frame(frame, context)) == ()


def test_kernels_of_workloads_are_built() -> None:
    context = Context(OPTIONS.replace(planner="dp"), CPU_PROFILE)
    for frame in workload_frames("layer_norm_vjp", context):
        for pattern in plan_frame(frame, context).patterns:
            assert any(not is_free(op) for op in pattern.ops)
            kernel_of(pattern)
