"""Sums that wait for a mean or a maximum: what becomes one reduction, and that it means the same."""

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
from jstitch.ir.graph import Graph
from jstitch.ir.interpret import interpret
from jstitch.ir.verify import check
from jstitch.passes.base import profile
from jstitch.passes.base.row_access import IDENTITY
from jstitch.passes.lower.check_kernel import check_kernel
from jstitch.passes.lower.factor_sums import factor_sums
from jstitch.passes.lower.lower_kernel import lower_kernel
from jstitch.passes.lower.one_pass_sums import one_pass_sums
from jstitch.passes.pipeline import run
from tests.contexts import CPU

ON = replace(profile.CPU, one_pass=True)
MANY = replace(ON, program_work=16, partial_rows=2, max_programs=6)
ALONE = replace(MANY, row_step=1, kept_first=True)


def traced(f: Callable[..., Any], *shapes: tuple[int, ...], dtype: Any = np.float32) -> Graph:
    arrays = [np.zeros(shape, dtype) for shape in shapes]
    return run(import_module(jax.jit(f, keep_unused=True).lower(*arrays).compiler_ir("stablehlo")), CPU)


def one_pass(graph: Graph, chosen: profile.Profile = ON) -> Graph:
    ops = one_pass_sums(factor_sums(graph.ops, graph.outputs), graph.outputs, chosen)
    return Graph(graph.inputs, tuple(ops), graph.outputs)


def joint(graph: Graph) -> list[int]:
    """Values of each reduction of several."""
    return [len(op.results) for op in graph.ops if IDENTITY in op.attrs]


def arrays_for(graph: Graph, seed: int = 0) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [random.normal(2, 1, v.shape).astype(v.tensor.dtype.numpy) for v in graph.inputs]


def norm(x: Any) -> Any:
    return (x - x.mean(0)) * jax.lax.rsqrt(x.var(0) + 1e-5)


def gradient(x: Any, dy: Any) -> Any:
    return jax.vjp(norm, x)[1](dy)


def weighted_twice(x: Any, y: Any, z: Any) -> Any:
    d = x - x.mean(0)
    return (d * y).sum(0), (z * d * y).sum(0), y.sum(0), (d * d).sum(0)


def of_residuals(x: Any) -> Any:
    """The second statistics' operand is made from the first's: two reductions, one after the other."""
    return norm(jnp.tanh(norm(x)))


def of_squares(x: Any) -> Any:
    return jnp.square(x - x.mean(0)).var(0)


CASES: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]], list[int]]] = {
    "norm": (norm, [(24, 6)], [4]),
    "gradient": (gradient, [(24, 6), (24, 6)], [6]),
    "weights": (weighted_twice, [(24, 6)] * 3, [8]),
    "two in turn": (of_residuals, [(24, 6)], [4, 4]),
    "of squares": (of_squares, [(24, 6)], [4]),
    "all elements": (lambda x: (x.mean(), x.var()), [(24, 6)], [4]),
    "outer and inner": (lambda x: x.var((0, 2)), [(6, 5, 4)], [4]),
    "softmax": (lambda x: jax.nn.softmax(x, 0), [(24, 6)], [2]),
    "logsumexp": (lambda x: jax.nn.logsumexp(x, 0), [(24, 6)], [2]),
}


@pytest.mark.parametrize("name", CASES)
def test_one_reduction_means_the_same(name: str) -> None:
    f, shapes, values = CASES[name]
    graph = traced(f, *shapes, dtype=np.float32)
    new = check(one_pass(graph))
    assert joint(new) == values
    args = arrays_for(graph)
    for a, b in zip(interpret(new, args), interpret(graph, args), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("which", [ON, MANY, ALONE])
@pytest.mark.parametrize("name", CASES)
def test_the_kernel_means_the_same(name: str, which: profile.Profile) -> None:
    f, shapes, _ = CASES[name]
    graph = traced(f, *shapes)
    kernel = lower_kernel("k", graph.ops, graph.inputs, graph.outputs, which)
    assert check_kernel(kernel) == ()
    args = arrays_for(graph, 1)
    found = interpret_kernel(kernel, args, Random(0))
    for a, b in zip(found, interpret(graph, args), strict=True):
        np.testing.assert_allclose(a, b, rtol=5e-5, atol=5e-5)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x.var(1),  # inside a row: the row is at hand a second time
        lambda x: jax.nn.softmax(x, 1),
        lambda x: ((x - x[0]) ** 2).sum(0),  # waits for no reduction
        lambda x: (x - x.mean(0)).max(0),
        lambda x: ((x - x.mean(0)) ** 3).sum(0),
    ],
)
def test_others_stay(f: Callable[..., Any]) -> None:
    assert joint(one_pass(traced(f, (24, 6)))) == []


def test_only_where_the_profile_wants_it() -> None:
    graph = traced(norm, (24, 6))
    assert joint(one_pass(graph, profile.CPU)) == []


def test_what_is_subtracted_need_not_be_the_mean() -> None:
    graph = traced(lambda x: ((x - (x.sum(0) * 0.01 + 3)) ** 2).sum(0), (24, 6))
    new = one_pass(graph)
    assert joint(new) == [4]
    args = arrays_for(graph)
    np.testing.assert_allclose(interpret(new, args)[0], interpret(graph, args)[0], rtol=1e-5)


def test_partial_counts_are_one_number_for_each_program() -> None:
    graph = traced(norm, (24, 6))
    kernel = lower_kernel("k", graph.ops, graph.inputs, graph.outputs, MANY)
    programs = kernel.phases[0].lanes[0].programs
    assert [b.type.shape for b in kernel.scratch][:4] == [(programs,), *[(programs, 6)] * 3]
    assert len(kernel.phases) == 3
