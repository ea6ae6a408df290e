"""Passes of the CUDA profile: updates taken over by kernels, copies for them, values computed again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jstitch.codegen.interpret_kernel import interpret_kernel
from jstitch.frontend.importer import import_module
from jstitch.frontend.mlir import parse_module
from jstitch.inspection.numerics import difference
from jstitch.inspection.reference import reference
from jstitch.ir.graph import Graph
from jstitch.ir.interpret import interpret
from jstitch.ir.ops import KERNEL
from jstitch.options import PRESETS
from jstitch.passes.explore.savings import modelled_seconds
from jstitch.passes.fuse.absorb_updates import absorb_updates, contracted
from jstitch.passes.fuse.check_plan import check_plan
from jstitch.passes.fuse.contract_patterns import contract_patterns
from jstitch.passes.graph.copy_carried import copy_carried
from jstitch.passes.lower.check_kernel import check_kernel
from jstitch.passes.lower.lower_kernel import lower_kernel
from jstitch.passes.pipeline import frames, run
from jstitch.passes.plan_frame import plan_frame
from jstitch.passes.planners import PLANNERS
from tests.contexts import H200, H200_PROFILE, on
from tests.passes.random_graphs import Limits, arguments, make_graph


def graph_of(f: Callable[..., object], *shapes: tuple[int, ...]) -> Graph:
    args = [jnp.ones(shape, jnp.float32) for shape in shapes]
    return import_module(parse_module(jax.jit(f).lower(*args).as_text()))


def run_contracted(frame: Graph, args: list[np.ndarray]) -> tuple[list[np.ndarray], int, int]:
    """Outputs of the frame with its kernels interpreted; kernels; updates that they took over."""
    plan = plan_frame(copy_carried(frame, H200), on(H200_PROFILE, tune="off"))
    assert check_plan(plan) == ()
    updates = 0

    def build(pattern: Any) -> dict[str, Any]:
        nonlocal updates
        updates += len(pattern.updates)
        inputs, _, outputs = contracted(pattern)
        kernel = lower_kernel("k", pattern.ops, inputs, outputs, H200_PROFILE, updates=pattern.updates)
        assert check_kernel(kernel) == ()
        return {"kernel": kernel}

    graph = contract_patterns(absorb_updates(plan, H200), build)
    env = dict(zip(graph.inputs, args, strict=True))
    kernels = 0
    for op in graph.ops:
        values = [env[v] for v in op.uses]
        if op.name == KERNEL:
            kernels += 1
            found = interpret_kernel(op.attrs["kernel"], [env[v] for v in op.operands], Random(0))
        else:
            found = interpret(Graph(op.uses, (op,), op.results), values)
        env.update(zip(op.results, found, strict=True))
    return [env[v] for v in graph.outputs], kernels, updates


def body_of(cell: Callable[..., object], *shapes: tuple[int, ...]) -> Graph:
    """The body of a scan of it, over a carry and inputs of these shapes."""
    graph = graph_of(lambda c, xs: jax.lax.scan(cell, c, xs), *shapes)
    counting = [frame for frame in frames(run(graph, H200)) if any(v.tensor.size == 1 for v in frame.inputs)]
    (body,) = [frame for frame in counting if len(frame.outputs) > 3]
    return body


def body_of_scan() -> Graph:
    """The body of a scan that stacks what it computes, its carry and its input."""

    def cell(carry: jax.Array, x: jax.Array) -> tuple[jax.Array, tuple[jax.Array, ...]]:
        new = jnp.tanh(carry * 0.5 + x)
        return new, (new, carry, jnp.exp(new))

    return body_of(cell, (3, 4), (64, 3, 4))


@pytest.mark.parametrize("step", [0, 3, 63])
def test_a_scan_stacks_in_place(step: int) -> None:
    body = body_of_scan()
    rng = np.random.default_rng(0)
    args = [
        np.asarray(step, v.tensor.dtype.numpy)
        if v.tensor.dtype.is_integer
        else rng.standard_normal(v.shape).astype(v.tensor.dtype.numpy)
        for v in body.inputs
    ]
    found, kernels, updates = run_contracted(body, args)
    assert kernels
    assert updates == 3
    for a, b in zip(found, interpret(body, args), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("planner", sorted(PLANNERS.keys() - PRESETS.keys()))
def test_every_planner_counts_the_copies_that_updates_save(planner: str) -> None:
    """A cell after a product is no faster in a kernel of ours, but XLA would copy its result to the stack."""

    def cell(carry: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        new = jnp.tanh(carry @ jnp.ones((64, 64)) + x)
        return new, new

    body = copy_carried(body_of(cell, (256, 64), (64, 256, 64)), H200)
    turns = [op.name for op in body.ops].count("stablehlo.dot_general")
    plan = plan_frame(body, on(H200_PROFILE, planner=planner))
    assert [len(p.updates) for p in absorb_updates(plan, H200).patterns] == [1] * turns
    assert modelled_seconds(plan, H200) < modelled_seconds(replace(plan, patterns=()), H200)


def test_sums_over_rows_are_stacked_in_place() -> None:
    """A softmax over rows becomes one joint reduction; what is stacked is made by it, and by nothing else."""

    def cell(carry: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        shares = jax.nn.softmax(carry * x, axis=0)
        return carry * 0.5 + 1.0, shares

    body = body_of(cell, (50, 64), (32, 50, 64))
    args = [np.zeros((), np.int32) if v.tensor.dtype.is_integer else normal(v.shape) for v in body.inputs]
    found, kernels, updates = run_contracted(body, args)
    assert kernels
    assert updates == 1
    for a, b in zip(found, interpret(body, args), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def normal(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def test_residuals_are_computed_again() -> None:
    """Two kernels around a matrix product: the second reads x instead of what the first made of it."""

    def f(x: jax.Array, w: jax.Array) -> tuple[jax.Array, ...]:
        a = jnp.sin(x) * 2.0
        b, c = a + 1.0, a * a
        y = (a + b + c) @ w
        return y, (y * b - c) * a

    graph = run(graph_of(f, (64, 64), (64, 64)), H200)
    plan = plan_frame(graph, on(H200_PROFILE, tune="off"))
    assert check_plan(plan) == ()
    outputs = [len(p.outputs) for p in plan.patterns]
    assert outputs == [1, 1]


def test_what_is_computed_again_early_in_the_program_has_its_constants_before_it() -> None:
    """The second kernel begins with an op that stands before everything that it computes again."""

    def f(x: jax.Array, w: jax.Array, u: jax.Array) -> tuple[jax.Array, ...]:
        early = jnp.sin(u)
        a = jnp.sin(x) * 2.0
        b, c = a + 1.5, a * 3.5
        y = (a + b + c) @ w
        return y, (y * b - c) * early

    plan = plan_frame(run(graph_of(f, *[(64, 64)] * 3), H200), on(H200_PROFILE, tune="off"))
    assert check_plan(plan) == ()
    for pattern in plan.patterns:
        made = set(pattern.inputs)
        for op in pattern.ops:
            assert made.issuperset(op.operands)
            made.update(op.results)


def test_random_graphs_mean_the_same() -> None:
    total = 0
    for seed in range(60):
        graph = run(make_graph(Random(seed), Limits(ops=14, elements=64)), H200)
        args = arguments(graph, seed)
        found, kernels, _ = run_contracted(graph, args)
        total += kernels
        exact, other = reference(graph, args), interpret(graph, args)
        for n, (a, b, c) in enumerate(zip(found, other, exact, strict=True)):
            assert difference(a, b, c, b) is None, (seed, n)
    assert total > 20
