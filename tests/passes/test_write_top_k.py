"""The few largest elements of rows are found by maxima, with the same results, on CPUs."""

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
from jstitch.passes.graph.write_top_k import TOP_K, write_top_k
from tests.contexts import CPU, H200
from tests.passes.product_graphs import graph_of
from tests.passes.test_write_sorts import check_same, numbers

OPTIONS = jstitch.CompileOptions(tune="off", strict=True, verify=True)
TYPES = (np.float32, np.float32, jnp.bfloat16, np.float16, np.int32)


def top_ks(graph: Graph) -> int:
    return sum(op.name == TOP_K for op in graph.walk())


def drawn(random: Random) -> tuple[Callable[..., Any], list[np.ndarray]]:
    """Rows with equal elements, both zeros, infinities and what is no number; up to all elements of them."""
    shape = tuple(random.choice((1, 2, 7, 33)) for _ in range(random.randint(0, 2)))
    size = random.choice((1, 2, 3, 8, 17, 64, 100, 1000))
    wanted = random.randint(1, min(8, size))
    x = numbers(random, (*shape, size), random.choice(TYPES))
    if x.dtype == np.int32 and random.random() < 0.5:
        x.flat[0], x.flat[-1] = -(1 << 31), (1 << 31) - 1
    return lambda x: lax.top_k(x, wanted), [x]


@pytest.mark.parametrize(
    "seed", [*range(30), *(pytest.param(n, marks=pytest.mark.slow) for n in range(30, 600))]
)
def test_drawn_rows(seed: int) -> None:
    f, args = drawn(Random(seed))
    after = check(write_top_k(graph_of(f, args), CPU))
    assert top_ks(after) == 0
    check_same(interpret(after, args), jax.tree.leaves(jax.jit(f)(*args)))


@pytest.mark.parametrize(
    "seed", [*range(12), *(pytest.param(n, marks=pytest.mark.slow) for n in range(12, 300))]
)
def test_drawn_kernels(seed: int) -> None:
    f, args = drawn(Random(1000 + seed))
    check_same(jstitch.jit(f, options=OPTIONS)(*args), jax.jit(f)(*args))


def gate(x: Any, w: Any) -> Any:
    """Of two of the experts, by what they weigh."""
    weights, experts = lax.top_k(jax.nn.softmax(x @ w), 2)
    return weights / weights.sum(-1, keepdims=True), experts


def test_a_gate_of_experts_is_a_kernel() -> None:
    x, w = (np.random.default_rng(n).standard_normal((512, 64)).astype(np.float32) for n in range(2))
    w = w[:64, :16]
    (weights, experts), (expected, chosen) = jstitch.jit(gate)(x, w), jax.jit(gate)(x, w)
    np.testing.assert_allclose(weights, expected, rtol=1e-5)
    np.testing.assert_array_equal(experts, chosen)
    assert jstitch.last_report()[-1].kernels == 1
    left = jstitch.jit(gate, options=jstitch.CompileOptions(without=("write_top_k",)))
    np.testing.assert_array_equal(left(x, w)[1], chosen)
    assert TOP_K.rpartition(".")[2] in left.lower(x, w).as_text()


def test_gradients_of_the_largest() -> None:
    def loss(x: Any) -> Any:
        return jnp.sum(lax.top_k(x, 3)[0] * jnp.arange(3.0) ** 2)

    x = np.random.default_rng(1).standard_normal((50, 300)).astype(np.float32)
    np.testing.assert_allclose(jstitch.jit(jax.grad(loss))(x), jax.jit(jax.grad(loss))(x))


@pytest.mark.parametrize(
    "f",
    [
        lambda x: lax.top_k(x, 9),  # many
        lambda x: lax.top_k(x, 0),  # none
        lambda x: lax.top_k(x[:0], 2),  # of no rows
        lambda x: lax.top_k(x.astype(jnp.uint8), 2),
        lambda x: lax.top_k(jnp.zeros((1, 1 << 19)) + x[0, 0], 2),  # no core's cache holds the row
    ],
)
def test_others_stay(f: Callable[[Any], Any]) -> None:
    graph = graph_of(f, [np.ones((10, 12), np.float32)])
    assert write_top_k(graph, CPU) is graph


def test_gpus_keep_their_library() -> None:
    graph = graph_of(lambda x: lax.top_k(x, 2), [np.ones((4, 8), np.float32)])
    assert write_top_k(graph, H200) is graph


@pytest.mark.parametrize(
    ("shape", "left"), [((5003, 5), 1), ((5003, 16), 0), ((800, 5), 0), ((40, 5003, 5), 0), ((2, 5003, 5), 1)]
)
def test_few_long_columns_are_left(shape: tuple[int, ...], left: int) -> None:
    """Each of twice as many reductions would read numbers that fill no vector."""
    x = np.zeros(shape, np.float32)
    graph = graph_of(lambda x: lax.top_k(jnp.swapaxes(2 * x, -1, -2), 3), [x])
    assert top_ks(write_top_k(graph, CPU)) == left
