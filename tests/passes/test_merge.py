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
from jstitch.passes.check_plan import check_plan
from jstitch.passes.merge_patterns import merge_patterns
from jstitch.passes.plan import FusionPlan, make_patterns
from jstitch.passes.plan_frame import plan_frame

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
    merged = merge_patterns(plan)
    assert not cycles(check_plan(merged))
    assert len(merged.patterns) < len(plan.patterns)


@pytest.mark.parametrize("seed", range(10))
def test_whole_plans_are_right(seed: int) -> None:
    assert not check_plan(plan_frame(random_frame(seed), jstitch.CompileOptions(gate="off")))


def test_packed_lanes_of_which_some_write_in_place() -> None:
    """One donated tensor is read elsewhere too, so its lane is not like its neighbours' of the same shape."""

    def step(kept: list[jax.Array], given: list[jax.Array]) -> tuple[list[jax.Array], list[jax.Array]]:
        moved = [g * 0.9 + k for g, k in zip(given, kept, strict=True)]
        return moved, [k - 0.1 * m for k, m in zip(kept, moved, strict=True)]

    def make(seed: int) -> list[jax.Array]:
        rng = np.random.default_rng(seed)
        return [jnp.asarray(rng.standard_normal(32, np.float32)) for _ in range(6)]

    want = jax.jit(step)(make(0), make(1))
    options = jstitch.CompileOptions(gate="off")
    for donated in ((), (0,), (1,), (0, 1)):
        got = jstitch.jit(step, donate_argnums=donated, options=options)(make(0), make(1))
        jax.tree.map(np.testing.assert_array_equal, got, want)
