"""Random boundaries and groups in random graphs and programs: the results stay, and plans keep to them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

import jstitch
from jstitch.frontend.observe import observing
from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.interpret import interpret
from jstitch.ir.ops import NO_FUSE
from jstitch.ir.scope import together, together_scope
from jstitch.passes.base.context import Context
from jstitch.passes.base.plan import FusionPlan, is_free
from jstitch.passes.fuse.check_plan import check_plan
from jstitch.passes.fuse.contract_patterns import contract_patterns
from jstitch.passes.fuse.hold_together import demanded
from jstitch.passes.fuse.stand_ins import TOGETHER
from jstitch.passes.pipeline import run
from jstitch.passes.plan_frame import plan_frame
from tests.contexts import CPU, CPU_PROFILE
from tests.passes.random_graphs import Limits, arguments, make_graph

OPTIONS = jstitch.CompileOptions(tune="off", strict=True, verify=True)
EXACT = Limits(ops=30, exact=True, empty=False)
RANDOM = st.randoms(use_true_random=False)


def with_boundaries(graph: Graph, random: Random) -> Graph:
    """The graph with a boundary behind some values; their later readers read that, or the value itself."""
    ops: list[Op] = []
    cut: dict[Value, Value] = {}
    for op in graph.ops:
        operands = tuple(cut[v] if v in cut and random.random() < 0.8 else v for v in op.operands)
        ops.append(replace(op, operands=operands))
        if len(op.results) == 1 and random.random() < 0.25:
            boundary = Op(NO_FUSE, op.results, (Value(op.result.type),))
            ops.append(boundary)
            cut[op.result] = boundary.result
    return Graph(graph.inputs, tuple(ops), tuple(cut.get(v, v) for v in graph.outputs))


def with_groups(graph: Graph, random: Random) -> Graph:
    """The graph with some runs of its ops in calls of fuse_together."""
    ops, call = [], 0
    for op in graph.ops:
        if random.random() < 0.2:
            call += 1
        scope = together_scope(call, "f", strict=False) if call % 2 else ""
        ops.append(replace(op, scope=scope))
    return Graph(graph.inputs, tuple(ops), graph.outputs)


def keeps_to(plan: FusionPlan) -> None:
    owner = {op: n for n, p in enumerate(plan.patterns) for op in p.ops if not is_free(op)}
    producers, users = plan.frame.producers(), plan.frame.users()
    for op in plan.frame.ops:
        if op.name == NO_FUSE:
            assert op not in owner
            maker = producers.get(op.operands[0])
            made = None if maker is None else owner.get(maker)
            assert made is None or all(owner.get(user) != made for user in users.get(op.result, ()))
    for pattern in plan.patterns:
        groups = {together(op.scope) for op in pattern.ops if not is_free(op)}
        assert pattern.origin != TOGETHER or groups == {demanded(pattern)}
    assert check_plan(plan) == ()


@pytest.mark.parametrize("planner", ["layers", "ilp", "dp"])
def test_plans_keep_to_boundaries_and_groups(planner: str) -> None:
    options = OPTIONS.replace(planner=planner)
    held = boundaries = 0

    for seed in range(25):
        random = Random(seed)
        graph = make_graph(random, EXACT)
        marked = run(with_groups(with_boundaries(graph, random), random), CPU)
        plan = plan_frame(marked, Context(options, CPU_PROFILE))
        keeps_to(plan)
        held += sum(p.origin == TOGETHER for p in plan.patterns)
        boundaries += sum(op.name == NO_FUSE for op in marked.ops)
        stitched = contract_patterns(plan, lambda pattern: {"name": "k"})
        args = arguments(graph, 0)
        for found, expected in zip(interpret(stitched, args), interpret(graph, args), strict=True):
            np.testing.assert_array_equal(found.astype(np.float64), expected.astype(np.float64))
    assert held
    assert boundaries


STEPS: tuple[Callable[[Any], Any], ...] = (
    lambda x: jnp.exp(-jnp.abs(x)),
    lambda x: x - x.mean(-1, keepdims=True),
    lambda x: x / (1 + jnp.abs(x).max(0)),
    lambda x: x * 0.5 + x.T,
)


def compare(seed: int) -> None:
    random = Random(seed)
    recipe = [(random.choice(STEPS), random.random() < 0.5, random.random() < 0.5) for _ in range(4)]

    def program(x: Any, control: bool) -> Any:
        for step, cut, together_ in recipe:
            x = jstitch.fuse_together(step)(x) if together_ and control else step(x)
            x = jstitch.no_fuse(x) if cut and control else x
        return x

    def gradient(control: bool) -> Callable[[Any], Any]:
        return lambda x: jax.value_and_grad(lambda x: (program(x, control) ** 2).sum())(x)

    x = jnp.asarray(np.random.default_rng(seed).standard_normal((24, 24), np.float32))
    with observing() as calls:
        found = jstitch.jit(gradient(True), options=OPTIONS)(x)
    for a, b in zip(found, jax.jit(gradient(False))(x), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    for call in calls:
        for plan in call.plans:
            keeps_to(plan)


@pytest.mark.parametrize("seed", range(3))
def test_programs_compute_the_same(seed: int) -> None:
    compare(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3, 40))
def test_many_programs_compute_the_same(seed: int) -> None:
    compare(seed)
