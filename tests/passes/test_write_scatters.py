"""Scatters to one known place, written as selects: the same numbers, and kernels compute them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

import jstitch
from jstitch.frontend.importer import import_module
from jstitch.ir.graph import Graph
from jstitch.ir.interpret import interpret
from jstitch.ir.verify import check
from jstitch.passes.base.plan import make_pattern
from jstitch.passes.cost.cost_model import xla_cost
from jstitch.passes.graph.canonicalize import canonicalize
from jstitch.passes.graph.fold_constants import fold_constants
from jstitch.passes.graph.write_scatters import SCATTER, write_scatters
from tests.contexts import CPU

OPTIONS = jstitch.CompileOptions(tune="off", strict=True, verify=True)
X = np.random.default_rng(0).standard_normal((7, 9, 5)).astype(np.float32)

PLACES: dict[str, Callable[[Array], Array]] = {
    "a row": lambda x: x.at[0].set(5),
    "the last column": lambda x: x.at[:, :, -1].set(x[:, :, -2]),
    "an element": lambda x: x.at[3, 4, 2].set(7),
    "what is inside": lambda x: x.at[1:-1, 1:-1, 1:-1].set(jnp.exp(-x[1:-1, 1:-1, 1:-1])),
    "added inside": lambda x: x.at[:, 2:].add(x[:, :-2]),
    "multiplied": lambda x: x.at[:3, 4].multiply(2),
    "the least": lambda x: x.at[2:4].min(1),
    "the most": lambda x: x.at[..., 1].max(x[..., 0]),
    "a row of rows": lambda x: x.at[2:3, :, 1:].set(x[:1, :, :-1]),
    "all but one": lambda x: x.at[:-1].set(x[1:]),
    "one after the other": lambda x: x.at[0].set(1).at[:, 0].set(2).at[6, 8].add(3),
    "numbers that are none": lambda x: x.at[0].set(jnp.nan).at[:, 1].set(jnp.inf),
}
KEPT: dict[str, Callable[[Array], Array]] = {
    "several places": lambda x: x.at[jnp.array([0, 5])].set(1.0),
    "a place that data say": lambda x: x.at[jnp.argmax(x[:, 0, 0])].set(1.0),
    "outside": lambda x: x.at[np.int32(9)].set(1.0, mode="drop"),
}


def imported(f: Callable[..., Any], *args: Any) -> Graph:
    graph = import_module(jax.jit(f).lower(*args).compiler_ir("stablehlo"))
    return fold_constants(canonicalize(graph))


def scatters(graph: Graph) -> int:
    return sum(op.name == SCATTER for op in graph.walk())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
@pytest.mark.parametrize("name", PLACES)
def test_the_same_numbers(name: str, dtype: str) -> None:
    f = lambda x: PLACES[name](x * 2)  # noqa: E731
    x = jnp.asarray(X * 3).astype(dtype)
    if "int" in dtype and name in ("what is inside", "numbers that are none"):
        pytest.skip("of floats")
    graph = imported(f, x)
    found = check(write_scatters(graph), "write_scatters")
    assert scatters(graph) >= 1
    assert scatters(found) == 0
    np.testing.assert_array_equal(
        np.asarray(interpret(found, [np.asarray(x)])[0], float),
        np.asarray(interpret(graph, [np.asarray(x)])[0], float),
    )


@pytest.mark.parametrize("name", KEPT)
def test_other_scatters_stay(name: str) -> None:
    graph = imported(lambda x: KEPT[name](x * 2), X)
    assert scatters(write_scatters(graph)) == scatters(graph) == 1


def test_what_nobody_computes_is_written_in_its_place() -> None:
    """A loop's state, an argument: XLA writes the place alone."""
    for f in (PLACES["a row"], lambda x: jax.lax.fori_loop(0, 3, lambda _, x: PLACES["a row"](x), x)):
        graph = imported(f, X)
        assert scatters(write_scatters(graph)) == scatters(graph) == 1


def test_bits_of_truth() -> None:
    f = lambda x: (x > 0).at[1].set(True).at[:, 3].min(x[:, 4] > 1)  # noqa: E731
    np.testing.assert_array_equal(jstitch.jit(f, options=OPTIONS)(X), jax.jit(f)(X))


@pytest.mark.parametrize("name", PLACES)
def test_kernels_compute_them(name: str) -> None:
    """Values and gradients; with the pass there is nothing between two kernels."""

    def f(x: Array) -> Array:
        return jnp.tanh(PLACES[name](jnp.sin(x)))

    made = jstitch.jit(f, options=OPTIONS)
    np.testing.assert_allclose(made(X), jax.jit(f)(X), 1e-5, 1e-6)
    if name not in ("what is inside", "added inside", "all but one"):
        assert len(made.plan(X).patterns) == 1

    def total(x: Array) -> Array:
        return jnp.where(jnp.isfinite(y := f(x)), y, 0.0).sum()

    np.testing.assert_allclose(
        jstitch.jit(jax.grad(total), options=OPTIONS)(X), jax.jit(jax.grad(total))(X), 1e-5, 1e-5
    )


def test_without_it_there_is_no_kernel() -> None:
    f = lambda x: jnp.tanh(jnp.sin(x).at[0].set(0.5))  # noqa: E731
    without = jstitch.CompileOptions(tune="off", without=("write_scatters",))
    assert not jstitch.jit(f, options=without).plan(X).patterns
    assert jstitch.jit(f, options=OPTIONS).plan(X).patterns


def test_the_model_knows_what_xla_runs() -> None:
    """Three kernels, of which the second writes a row; no comparison of every element."""
    graph = write_scatters(imported(lambda x: jnp.tanh(jnp.sin(x).at[0].set(0.5)), X))
    plain = imported(lambda x: jnp.tanh(jnp.sin(x)), X)
    found, one = (xla_cost(make_pattern(g, g.ops, "test"), CPU.profile.machine) for g in (graph, plain))
    assert found.launches == one.launches + 2
    assert found.nbytes == one.nbytes + 2 * X.nbytes + 2 * X[0].nbytes
    assert found.cycles == one.cycles
