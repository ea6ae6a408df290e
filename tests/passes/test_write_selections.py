"""Gradients of pools of maxima become comparisons and sums, with the same results, on CPUs."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jstitch
from jstitch.ir.graph import Graph
from jstitch.ir.interpret import interpret
from jstitch.ir.verify import check
from jstitch.passes.graph.unroll_windows import unroll_windows
from jstitch.passes.graph.write_selections import SELECTION, write_selections
from tests.contexts import CPU, H200
from tests.passes.product_graphs import graph_of

OPTIONS = jstitch.CompileOptions(tune="off", strict=True, verify=True)
Function = Callable[[Any], Any]


def selections(graph: Graph) -> int:
    return sum(op.name == SELECTION for op in graph.walk())


def pool(x: Any, sizes: tuple[int, ...], strides: tuple[int, ...], padding: Any, least: bool = False) -> Any:
    combine, init = (lax.min, jnp.inf) if least else (lax.max, -jnp.inf)
    return lax.reduce_window(x, np.asarray(init, x.dtype), combine, sizes, strides, padding)


def drawn(random: Random, largest: int = 9) -> tuple[Function, np.ndarray]:
    """Maxima or minima, of any rank; among few numbers, so that many are equal; some infinite, or none."""
    rank = random.randint(1, 4)
    shape = tuple(random.randint(4, largest) for _ in range(rank))
    sizes = [random.choice((1, 2, 3)) for _ in range(rank)]
    while np.prod(sizes) > 16:
        sizes[random.randrange(rank)] = 1
    strides = tuple(random.choice((1, 2, 3)) for _ in range(rank))
    padding = random.choice(("VALID", "SAME"))
    least = random.random() < 0.3
    made = np.random.default_rng(random.randrange(1 << 30))
    x = made.integers(-3, 4, shape).astype(np.float32)
    weights = made.standard_normal(shape).astype(np.float32)
    for number in (np.inf, -np.inf, np.nan)[: random.choice((0, 0, 3))]:
        x[tuple(random.randrange(n) for n in shape)] = number

    def f(x: Any) -> Any:
        made = pool(x, tuple(sizes), strides, padding, least)
        cut = tuple(slice(0, n) for n in made.shape)
        return jnp.sum(jnp.where(jnp.isfinite(made), made, 0) * weights[cut])

    return jax.grad(f), x


@pytest.mark.parametrize(
    "seed", [*range(40), *(pytest.param(n, marks=pytest.mark.slow) for n in range(40, 1000))]
)
def test_drawn_selections(seed: int) -> None:
    f, x = drawn(Random(seed))
    after = check(write_selections(check(unroll_windows(graph_of(f, [x]))), CPU))
    assert selections(after) == 0
    np.testing.assert_allclose(interpret(after, [x])[0], jax.jit(f)(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "seed", [*range(12), *(pytest.param(n, marks=pytest.mark.slow) for n in range(12, 300))]
)
def test_drawn_kernels(seed: int) -> None:
    f, x = drawn(Random(1000 + seed), largest=14)
    found = jstitch.jit(f, options=OPTIONS)(x)
    np.testing.assert_allclose(found, jax.jit(f)(x), rtol=1e-5, atol=1e-6)


X = np.random.default_rng(0).standard_normal((2, 12, 12, 4)).astype(np.float32)


def gradient(x: Any) -> Any:
    return jax.grad(lambda x: jnp.sum(jnp.sin(pool(x, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"))))(x)


def test_a_gradient_is_one_kernel() -> None:
    np.testing.assert_allclose(jstitch.jit(gradient, options=OPTIONS)(X), jax.jit(gradient)(X), rtol=1e-6)
    assert jstitch.last_report()[-1].kernels == 1


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_narrow_sources_are_added_up_in_float32(dtype: Any) -> None:
    def f(x: Any) -> Any:
        return jax.grad(lambda x: jnp.sum(pool(x, (1, 3, 3, 1), (1, 1, 1, 1), "SAME") * 3))(x)

    x = jnp.asarray(X, dtype)
    found = jstitch.jit(f, options=OPTIONS)(x)
    assert found.dtype == dtype
    np.testing.assert_array_equal(np.float32(found), np.float32(jax.jit(f)(x)))  # of whole numbers


def test_large_windows_stay() -> None:
    def f(x: Any) -> Any:
        return jax.grad(lambda x: jnp.sum(pool(x, (1, 5, 5, 1), (1, 2, 2, 1), "VALID") ** 2))(x)

    graph = graph_of(f, [X])
    assert selections(graph) == 1
    assert write_selections(graph, CPU) is graph


def test_gpus_select_in_one_kernel() -> None:
    graph = graph_of(gradient, [X])
    assert write_selections(graph, H200) is graph
