"""Merging and packing keep plans disjoint and acyclic, on graphs large enough for patterns to interleave."""

from __future__ import annotations

import random
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jstitch
from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import build
from jstitch.ir.types import DType, TensorType
from jstitch.options import PRESETS
from jstitch.passes.base.plan import FusionPlan, make_patterns
from jstitch.passes.fuse import pack_patterns
from jstitch.passes.fuse.break_cycles import break_cycles
from jstitch.passes.fuse.check_plan import check_plan, waiting_patterns
from jstitch.passes.fuse.merge_patterns import merge_patterns
from jstitch.passes.fuse.plan_layers import plan_layers
from jstitch.passes.plan_frame import plan_frame
from jstitch.passes.planners import PLANNERS
from tests.contexts import CPU, CPU_PROFILE, on

TILE = TensorType((64, 32), DType.F32)


def random_frame(seed: int, size: int = 120) -> Graph:
    """Elementwise ops and opaque ones in random dependence."""
    rng = random.Random(seed)
    inputs = tuple(Value(TILE) for _ in range(4))
    values, ops = list(inputs), list[Op]()
    for _ in range(size):
        a, b = rng.choice(values[-30:]), rng.choice(values[-30:])
        name = rng.choice(("stablehlo.add", "stablehlo.multiply", "stablehlo.maximum", "test.opaque"))
        ops.append(build.op(name, (a, b), TILE))
        values.append(ops[-1].result)
    return Graph(inputs, tuple(ops), tuple(values[-6:]))


def scattered(frame: Graph, seed: int) -> FusionPlan:
    """An acyclic plan of small patterns: runs of ops between two opaque ones."""
    rng = random.Random(seed)
    groups: list[list[Op]] = [[]]
    for op in frame.ops:
        if op.name == "test.opaque" or rng.random() < 0.3:
            groups.append([])
        if op.name != "test.opaque":
            groups[-1].append(op)
    return FusionPlan(frame, make_patterns(frame, [g for g in groups if g], "test"))


def cycles(problems: Sequence[str]) -> list[str]:
    return [p for p in problems if "reason" not in p]


@pytest.mark.parametrize("seed", range(40))
def test_merged_plans_are_acyclic(seed: int) -> None:
    plan = scattered(random_frame(seed), seed)
    merged = merge_patterns(plan, CPU)
    assert not cycles(check_plan(merged))
    assert len(merged.patterns) < len(plan.patterns)


@pytest.mark.parametrize("seed", range(10))
def test_whole_plans_are_right(seed: int) -> None:
    assert not check_plan(plan_frame(random_frame(seed), on(CPU_PROFILE, tune="off")))


@pytest.mark.parametrize("part", ["JoinedNodes.between", "_longest_paths"])
def test_a_cycle_costs_only_the_patterns_on_it(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With merging or packing broken, cyclic joins are undone and nothing else is."""
    if part == "_longest_paths":
        monkeypatch.setattr(pack_patterns, part, lambda before: dict.fromkeys(before, 0))
        plans = [scattered(random_frame(seed), seed) for seed in range(10)]
        broken = [pack_patterns.pack_patterns(plan, CPU) for plan in plans]
    else:
        monkeypatch.setattr(f"jstitch.passes.fuse.merge_patterns.{part}", lambda *_: None)
        monkeypatch.setattr("jstitch.passes.fuse.merge_patterns.break_cycles", lambda plan, before: plan)
        plans = [plan_layers(random_frame(seed)) for seed in range(10)]
        broken = [merge_patterns(plan, CPU) for plan in plans]
    assert any("wait for each other" in p for plan in broken for p in check_plan(plan))
    for plan, cyclic in zip(plans, broken, strict=True):
        mended = break_cycles(cyclic, plan)
        assert not cycles(check_plan(mended))
        waiting = waiting_patterns(cyclic) or frozenset()
        untouched = {p.ops for n, p in enumerate(cyclic.patterns) if n not in waiting}
        assert untouched <= {p.ops for p in mended.patterns}
        assert _covered(mended) == _covered(plan)


def test_patterns_that_were_made_cyclic_are_left_out() -> None:
    x = Value(TILE)
    a = build.elementwise("stablehlo.exponential", x)
    b = build.elementwise("stablehlo.negate", a.result)
    c = build.add(a.result, b.result)
    frame = Graph((x,), (a, b, c), c.results)
    plan = FusionPlan(frame, make_patterns(frame, [[a, c], [b]], "test"))
    left = break_cycles(plan, plan)
    assert not check_plan(left)
    assert not left.patterns
    assert {r.rule for r in left.refusals} == {"cycle"}


def _covered(plan: FusionPlan) -> set[Op]:
    return {op for p in plan.patterns for op in p.ops}


def test_packed_lanes_of_which_some_write_in_place() -> None:
    """One donated tensor is read elsewhere too, so its lane is not like its neighbours' of the same shape."""

    def step(kept: list[jax.Array], given: list[jax.Array]) -> tuple[list[jax.Array], list[jax.Array]]:
        moved = [g * 0.9 + k for g, k in zip(given, kept, strict=True)]
        return moved, [k - 0.1 * m for k, m in zip(kept, moved, strict=True)]

    def make(seed: int) -> list[jax.Array]:
        rng = np.random.default_rng(seed)
        return [jnp.asarray(rng.standard_normal(32, np.float32)) for _ in range(6)]

    want = jax.jit(step)(make(0), make(1))
    options = jstitch.CompileOptions(tune="off")
    for donated in ((), (0,), (1,), (0, 1)):
        got = jstitch.jit(step, donate_argnums=donated, options=options)(make(0), make(1))
        jax.tree.map(np.testing.assert_array_equal, got, want)


@pytest.mark.parametrize("columns", [512, 64])
def test_sums_over_rows_that_find_no_room_on_chip_stay_apart(columns: int) -> None:
    """A program's sums over the first dimension are 128 x columns floats; an H200 has room for 58,112."""

    def f(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        y = jnp.exp(x)
        return y / y.sum(-1, keepdims=True), y.sum(0)

    options = jstitch.CompileOptions(target="h200", tune="off")
    made = jstitch.explain(f, options)(jax.ShapeDtypeStruct((32, 128, columns), jnp.float32))
    assert all(e.why is None for e in made.edge("exponential", "divide"))
    assert all(pattern.refused is None for pattern in made.patterns)
    assert len(made.patterns) == (1 if columns == 64 else 2)


@pytest.mark.parametrize("planner", sorted(PLANNERS.keys() - PRESETS.keys()))
def test_no_planner_relies_on_sums_that_find_no_room_on_chip(planner: str) -> None:
    def f(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        y = jnp.exp(x)
        return y / y.sum(-1, keepdims=True), y.sum(0)

    options = jstitch.CompileOptions(target="h200", planner=planner)
    made = jstitch.explain(f, options)(jax.ShapeDtypeStruct((32, 128, 512), jnp.float32))
    (pattern,) = made.patterns
    assert pattern.refused is None
    assert "divide" in {op.name.removeprefix("stablehlo.") for op in pattern.ops}
