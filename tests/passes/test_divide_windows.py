"""Large windows are reduced along one dimension after the other, with the same results."""

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
from jstitch.passes.graph.divide_windows import divide_windows
from jstitch.passes.graph.unroll_windows import unroll_windows
from jstitch.runtime.report import last_report
from tests.contexts import CPU, H200
from tests.passes.product_graphs import graph_of

OPTIONS = jstitch.CompileOptions(tune="off", strict=True, verify=True)
MONOIDS: dict[str, tuple[Callable[..., Any], float]] = {
    "add": (lax.add, 0.0),
    "max": (lax.max, -jnp.inf),
    "min": (lax.min, jnp.inf),
    "mul": (lax.mul, 1.0),
}


def windows(graph: Graph) -> list[tuple[int, ...]]:
    return [op.attrs["window_dimensions"] for op in graph.walk() if op.name == "stablehlo.reduce_window"]


def drawn(random: Random) -> tuple[Callable[[Any], Any], np.ndarray]:
    """Any rank, strides, dilations and padding, also negative; some with NaN and infinities."""
    rank = random.randint(2, 3)
    shape = tuple(random.randint(7, 12) for _ in range(rank))
    reduce, init = MONOIDS[random.choice(list(MONOIDS))]
    sizes = tuple(random.randint(1, 6) for _ in range(rank))
    strides, dilations = ([random.choice((1, 1, 2)) for _ in range(rank)] for _ in range(2))
    base = [random.choice((1, 1, 2)) for _ in range(rank)]
    padding = [(random.randint(-1, 5), random.randint(0, 6)) for _ in range(rank)]
    x = np.random.default_rng(random.randrange(1 << 30)).uniform(0.7, 1.3, shape).astype(np.float32)
    for number in (np.nan, np.inf, -np.inf)[: random.choice((0, 0, 3))]:
        x[tuple(random.randrange(n) for n in shape)] = number
    return lambda x: lax.reduce_window(x, init, reduce, sizes, strides, padding, base, dilations), x


@pytest.mark.parametrize("seed", range(40))
def test_drawn_windows(seed: int) -> None:
    f, x = drawn(Random(seed))
    before = graph_of(f, [x])
    after = check(unroll_windows(check(divide_windows(before, CPU))))
    for found, wanted in zip(interpret(after, [x]), interpret(before, [x]), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=2e-5)


@pytest.mark.parametrize("seed", range(12))
def test_drawn_kernels(seed: int) -> None:
    f, x = drawn(Random(100 + seed))
    found = jstitch.jit(lambda x: jnp.tanh(f(x)) * 2, options=OPTIONS)(x)
    np.testing.assert_allclose(found, jnp.tanh(jax.jit(f)(x)) * 2, rtol=2e-5, atol=1e-6)


def box(x: Any, size: int = 7, dtype: Any = jnp.float32) -> Any:
    return lax.reduce_window(x.astype(dtype), dtype(0), lax.add, (1, size, size, 1), (1, 2, 2, 1), "SAME")


X = np.ones((2, 16, 16, 3), np.float32)


def test_one_dimension_after_the_other() -> None:
    graph = graph_of(box, [X])
    assert windows(divide_windows(graph, CPU)) == [(1, 7, 1, 1), (1, 1, 7, 1)]
    jax.block_until_ready(jstitch.jit(box, options=OPTIONS)(X))
    assert last_report()[-1].kernels == 1


@pytest.mark.parametrize(
    "f",
    [
        lambda x: box(x, 3),  # small: written out whole
        lambda x: box(x, 7, jnp.bfloat16),  # rounded once
        lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 40, 1, 1), (1, 1, 1, 1), "SAME"),  # one dimension
        lambda x: lax.reduce_window(x, 1.0, lax.add, (1, 7, 7, 1), (1, 1, 1, 1), "SAME"),  # adds 1 once
        lambda x: lax.reduce_window(x, 0.0, lambda a, b: a + b * b, (1, 7, 7, 1), (1, 1, 1, 1), "SAME"),
    ],
)
def test_others_stay(f: Callable[[Any], Any]) -> None:
    graph = graph_of(f, [X])
    assert divide_windows(graph, CPU) is graph


def test_gpus_read_windows_whole() -> None:
    graph = graph_of(box, [X])
    assert divide_windows(graph, H200) is graph
