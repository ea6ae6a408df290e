"""Equal structures cost the same, and what changes a cost changes the structure."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import build
from jstitch.ir.types import DType, TensorType
from jstitch.passes.base.plan import FusionPattern, FusionPlan, make_pattern
from jstitch.passes.base.profile import Profile
from jstitch.passes.cost import cost_model
from jstitch.passes.cost import structure as structures
from jstitch.passes.cost.structure import per_structure, structure
from jstitch.passes.fuse.fuse_subgraph import FusionOptions
from jstitch.passes.fuse.plan_layers import plan_layers
from jstitch.passes.pipeline import run
from tests.contexts import CPU, CPU_PROFILE
from tests.passes.random_dags import random_dag
from tests.passes.random_graphs import Limits, make_graph

TILE = TensorType((64, 32), DType.F32)
SCALAR = TensorType((), DType.F32)
COSTS: list[tuple[Any, Any]] = [
    (cost_model.kernel_cost, CPU_PROFILE),
    (cost_model.xla_cost, CPU_PROFILE.machine),
]


def whole(graph: Graph) -> FusionPattern:
    return make_pattern(graph, graph.ops, "test")


def plan(seed: int) -> FusionPlan:
    random = Random(seed)
    graph = random_dag(random, 60) if seed % 2 else run(make_graph(random, Limits(ops=25)), CPU)
    return plan_layers(graph, FusionOptions(footprint=0))


@pytest.mark.parametrize("seed", range(20))
def test_remembered_costs_are_those_of_the_pattern(seed: int) -> None:
    """The same graph made twice: its patterns share structures, and every cost is as if worked out anew."""
    for first, second in zip(plan(seed).patterns, plan(seed).patterns, strict=True):
        assert structure(first) == structure(second)
        for cost, key in COSTS:
            anew = cost.__wrapped__.__wrapped__
            assert cost(first, key) == cost(second, key) == anew(second, key)


def test_different_patterns_of_one_size_differ() -> None:
    x, y = Value(TILE), Value(TILE)
    zero, one = (build.splat(SCALAR, number) for number in (0.0, 1.0))

    def chain(*ops: Op, outputs: tuple[Value, ...] = ()) -> FusionPattern:
        return whole(Graph((x, y), ops, outputs or ops[-1].results))

    def two(name: str, second: Value | None = None) -> tuple[Op, Op]:
        first = build.elementwise("stablehlo.exponential", x)
        return first, build.elementwise(
            f"stablehlo.{name}", first.result, first.result if second is None else second
        )

    a, b = two("add")
    patterns = [
        chain(a, b),
        chain(a, b, outputs=(a.result, b.result)),
        chain(*two("multiply")),
        chain(*two("add", x)),
        chain(*two("add", y)),
        chain(zero, build.reduce("stablehlo.add", x, zero.result, (0,))),
        chain(zero, build.reduce("stablehlo.add", x, zero.result, (1,))),
        chain(one, build.reduce("stablehlo.add", x, one.result, (1,))),
        chain(zero, build.reduce("stablehlo.maximum", x, zero.result, (1,))),
    ]
    assert len({structure(p) for p in patterns}) == len(patterns)


def test_an_op_with_a_region_of_its_own_is_like_no_other() -> None:
    x = Value(TILE)
    op = Op("test.map", (x,), (Value(TILE),), regions=(Graph((), (), ()),))
    assert structure(whole(Graph((x,), (op,), op.results))) is None


def test_each_profile_remembers_its_own() -> None:
    seen = []

    @per_structure
    def count(pattern: FusionPattern, profile: Profile) -> int:
        seen.append(pattern)
        return len(seen)

    x, other = Value(TILE), Profile(row_step=7)
    made = [build.elementwise("stablehlo.negate", x) for _ in range(2)]
    one, two = (whole(Graph((x,), (op,), op.results)) for op in made)
    assert count(one, CPU_PROFILE) == count(two, CPU_PROFILE) == 1
    assert count(one, other) == count(two, other) == 2
    assert count(two, CPU_PROFILE) == 1


def test_old_structures_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(structures, "MOST", 3)

    @per_structure
    def count(pattern: FusionPattern, key: None) -> int:
        seen.append(pattern)
        return len(seen)

    x = Value(TILE)
    made = [build.elementwise(f"stablehlo.{name}", x) for name in ("negate", "exponential", "tanh")]
    patterns = [whole(Graph((x,), (op,), op.results)) for op in made]
    assert len(structure(patterns[0]) or ()) > 3
    assert [count(p, None) for p in (*patterns, patterns[2], patterns[0])] == [1, 2, 3, 3, 4]


def test_kinds_are_forgotten_and_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that plans for days keeps a bounded number of them, and two kinds never share a number."""
    monkeypatch.setattr(structures, "MOST_KINDS", 5)
    seen = set()
    for n in range(50):
        x = Value(TensorType((n + 1, 3), DType.F32))
        op = build.elementwise("stablehlo.exponential", x)
        found = structure(whole(Graph((x,), (op,), op.results)))
        assert found is not None
        assert found[0] not in seen
        seen.add(found[0])
        assert len(structures._kinds) <= 5
