"""B1, B2: substitution is acyclic by construction; exploration finds every convex pattern, or stops early."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import build
from jstitch.ir.types import DType, TensorType
from jstitch.passes.base.plan import FusionPlan, is_free, make_patterns
from jstitch.passes.explore import explore_substitution as substitution
from jstitch.passes.explore.contracted_cycles import Contraction
from jstitch.passes.explore.explore_seeds import EVERYTHING, SeedOptions, explore_seeds
from jstitch.passes.explore.explore_substitution import (
    STEPS,
    ReductionKind,
    explore_substitution,
    reduction_kind,
)
from jstitch.passes.explore.op_graph import Members, OpGraph, grouped, op_graph
from jstitch.passes.fuse.check_plan import waiting_patterns
from tests.counting import calls, exponent
from tests.passes import small_dags
from tests.passes.random_dags import random_dag

SCALAR = TensorType((), DType.F32)


def is_acyclic(graph: OpGraph, patterns: Sequence[Members]) -> bool:
    made = make_patterns(graph.frame, [graph.ops(p) for p in patterns], "test")
    return waiting_patterns(FusionPlan(graph.frame, made)) is None


def cuts(seed: int) -> tuple[OpGraph, list[tuple[Members, ...]]]:
    random = Random(seed)
    graph = op_graph(random_dag(random, random.randint(5, 150), random.choice((2, 6, 30)), opaque=0.15))
    return graph, explore_substitution(graph)


@pytest.mark.parametrize("seed", range(60))
def test_substitution_is_disjoint_and_acyclic(seed: int) -> None:
    graph, found = cuts(seed)
    for patterns in found:
        held = [place for p in patterns for place in p]
        assert len(held) == len(set(held))
        assert all(graph.fusible[place] for place in held)
        assert is_acyclic(graph, patterns)


def test_a_level_that_ignores_partition_ops_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_early", "_late"):
        monkeypatch.setattr(substitution, name, lambda graph, partition: [0] * len(partition))
    found = [cuts(seed) for seed in range(20)]
    assert any(not is_acyclic(graph, patterns) for graph, all_cuts in found for patterns in all_cuts)


@pytest.mark.parametrize("seed", range(20))
def test_every_step_holds_all_but_its_partition_ops(seed: int) -> None:
    graph, found = cuts(seed)
    left = {n for n, fusible in enumerate(graph.fusible) if fusible}
    expected = []
    for step in STEPS:
        left = {n for n in left if not step(graph.frame.ops[n])}
        expected.append(left)
    held = [{place for p in patterns for place in p} for patterns in found]
    assert held[0] == expected[0]
    assert held[-1] == expected[-1]
    assert all(h in expected for h in held)


def softmax_between_dots() -> Graph:
    """mul, max over rows, subtract between two opaque ops; tanh behind the second."""
    t = TensorType((64, 64), DType.F32)
    x = Value(t)
    low = build.splat(SCALAR, -float("inf"))
    first = Op("test.dot", (x,), (Value(t),))
    scaled = build.add(first.result, first.result)
    top = build.reduce("stablehlo.maximum", scaled.result, low.result, (1,))
    spread = build.broadcast(top.result, t.shape, (0,))
    centred = build.elementwise("stablehlo.subtract", scaled.result, spread.result)
    second = Op("test.dot", centred.results, (Value(t),))
    end = build.elementwise("stablehlo.tanh", second.result)
    return Graph((x,), (low, first, scaled, top, spread, centred, second, end), end.results)


def test_steps_of_a_small_frame() -> None:
    graph = op_graph(softmax_between_dots())
    names = [
        [[graph.frame.ops[n].name.removeprefix("stablehlo.") for n in p] for p in cut]
        for cut in explore_substitution(graph)
    ]
    whole = [["add", "reduce", "broadcast_in_dim", "subtract"], ["tanh"]]
    assert names[0] == whole
    assert [["add"], ["broadcast_in_dim", "subtract"], ["tanh"]] in names


@pytest.mark.parametrize(
    ("shape", "dims", "kind"),
    [
        ((8, 16), (1,), ReductionKind.ROW),
        ((8, 16), (0,), ReductionKind.COLUMN),
        ((8, 16), (0, 1), ReductionKind.SCALAR),
        ((8, 4, 16), (1,), ReductionKind.COLUMN),
        ((8, 4, 16), (0, 2), ReductionKind.COLUMN),
        ((8, 4, 16), (1, 2), ReductionKind.ROW),
        ((8, 16, 1), (1,), ReductionKind.ROW),
        ((1, 16), (1,), ReductionKind.SCALAR),
    ],
)
def test_reduction_kinds(shape: tuple[int, ...], dims: tuple[int, ...], kind: ReductionKind) -> None:
    zero = build.splat(SCALAR, 0.0)
    op = build.reduce("stablehlo.add", Value(TensorType(shape, DType.F32)), zero.result, dims)
    assert reduction_kind(op) is kind


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_exploration_finds_every_convex_connected_pattern(size: int) -> None:
    for dag in small_dags.connected_dags(size):
        graph = op_graph(small_dags.frame_of(dag))
        found = explore_seeds(graph, EVERYTHING)
        expected = {small_dags.members(s) for s in small_dags.patterns(dag) if s.bit_count() > 1}
        assert len(found) == len(set(found))
        assert set(found) == expected


def test_an_exploration_that_forgets_paths_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jstitch.passes.explore.explore_seeds._Search._leads", lambda *_: False)
    triangle = (0, 0b1, 0b11)
    found = explore_seeds(op_graph(small_dags.frame_of(triangle)), EVERYTHING)
    assert not {*found} <= {small_dags.members(s) for s in small_dags.patterns(triangle)}


@pytest.mark.parametrize("seed", range(30))
def test_exploration_is_convex_bounded_and_deterministic(seed: int) -> None:
    random = Random(seed)
    frame = random_dag(random, random.randint(20, 200), random.choice((3, 10, 40)))
    graph = op_graph(frame)
    options = SeedOptions(patterns=6, share=0.5, max_ops=12)
    found = explore_seeds(graph, options)
    assert found == explore_seeds(op_graph(frame), options)
    assert len(found) <= 0.5 * len(frame.ops) + 6
    contraction = Contraction(graph, found)
    for n, pattern in enumerate(found):
        assert 2 <= len(pattern) <= 12
        assert all(graph.fusible[place] for place in pattern)
        assert not contraction.cycles([n])


def test_seeds_have_few_operands_and_large_tensors() -> None:
    small, large = Value(TensorType((4,), DType.F32)), Value(TensorType((64, 64), DType.F32))
    ops = []
    for x in (small, large):
        ops.append(build.elementwise("stablehlo.exponential", x))
        ops.append(build.elementwise("stablehlo.negate", ops[-1].result))
    graph = op_graph(Graph((small, large), tuple(ops), (ops[1].result, ops[3].result)))
    assert explore_seeds(graph, SeedOptions(nbytes=1 << 10)) == [(2, 3)]
    star = op_graph(small_dags.frame_of((*[0] * 11, (1 << 11) - 1)))
    few = SeedOptions(operands=0, patterns=100, share=100.0, max_ops=3)
    assert all(11 in p for p in explore_seeds(star, few))
    assert {len(p) for p in explore_seeds(star, few)} == {2, 3}


def test_groups_stay_together() -> None:
    graph = op_graph(softmax_between_dots())
    joined = grouped(graph, [(2, 3), (4, 5)])
    assert explore_seeds(joined, EVERYTHING) == [(2, 3, 4, 5)]
    with pytest.raises(ValueError, match="4 nodes on or behind cycles"):
        grouped(graph, [(2, 5), (3, 4)])


def test_free_ops_are_no_members() -> None:
    graph = op_graph(random_dag(Random(1), 40))
    free = {n for n, op in enumerate(graph.frame.ops) if is_free(op)}
    found = [*explore_seeds(graph), *(p for cut in explore_substitution(graph) for p in cut)]
    assert free
    assert all(free.isdisjoint(p) for p in found)


def explore(graph: OpGraph) -> None:
    explore_substitution(graph)
    explore_seeds(graph)


def test_the_work_of_exploring_is_near_linear() -> None:
    sizes = (1_000, 8_000)
    few, many = (calls(explore, op_graph(random_dag(Random(0), ops))) for ops in sizes)
    assert exponent(sizes, (few, many)) < 1.15
