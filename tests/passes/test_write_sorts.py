"""Sorts of a few elements become comparisons of neighbours, with the same results, on CPUs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from jstitch.passes.graph.write_sorts import SORT, write_sorts
from tests.codegen.cuda.stitched import PROFILES, interpreted, simulated, stitch
from tests.contexts import CPU, H200
from tests.passes.product_graphs import graph_of

OPTIONS = jstitch.CompileOptions(tune="off", strict=True, verify=True)
TYPES = (np.float32, np.float32, jnp.bfloat16, np.float16, np.int32, np.uint8, np.int16)


def sorts(graph: Graph) -> int:
    return sum(op.name == SORT for op in graph.walk())


def numbers(random: Random, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """With equal ones, both zeros, infinities and what is no number, of either sign."""
    made = np.random.default_rng(random.randrange(1 << 30))
    x = made.integers(0, 9, shape).astype(dtype)
    if not jnp.issubdtype(dtype, jnp.floating):
        return x
    x = np.where(
        made.random(shape) < 0.5, made.standard_normal(shape).astype(dtype), x - np.asarray(4, dtype)
    )
    for number in (0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan):
        x = np.where(made.random(shape) < 0.04, np.asarray(number, dtype), x)
    return np.asarray(x, dtype)


def drawn(
    random: Random, sizes: Sequence[int] = range(2, 10), most: int = 40, types: Sequence[Any] = TYPES
) -> tuple[Callable[..., Any], list[np.ndarray]]:
    """One to three operands, of which one or more are keys; ascending or not, along any dimension.

    sizes: along it. most: along others.
    """
    size, rank, operands = random.choice(sizes), random.randint(1, 3), random.randint(1, 3)
    shape = [random.randint(1, most) for _ in range(rank)]
    dim = random.randrange(rank)
    shape[dim] = size
    keys, kind = random.randint(1, operands), random.choice(("sort", "argsort", "descending"))
    args = [numbers(random, tuple(shape), random.choice(types)) for _ in range(operands)]

    def f(*xs: Any) -> Any:
        match kind:
            case "argsort":
                return jnp.argsort(xs[0], dim)
            case "descending":
                return jnp.sort(xs[0], dim, descending=True), jnp.argsort(xs[0], dim, descending=True)
        return lax.sort(xs, dimension=dim, num_keys=keys)

    return f, args if kind == "sort" else args[:1]


def check_same(found: Any, wanted: Any) -> None:
    """Equal bits, but for the payloads of what is no number."""
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert a.dtype == b.dtype
        if jnp.issubdtype(a.dtype, jnp.floating):
            a, b = a.astype(np.float64), b.astype(np.float64)
            np.testing.assert_array_equal(np.signbit(a), np.signbit(b))
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    "seed", [*range(30), *(pytest.param(n, marks=pytest.mark.slow) for n in range(30, 600))]
)
def test_drawn_sorts(seed: int) -> None:
    f, args = drawn(Random(seed))
    after = check(write_sorts(graph_of(f, args), CPU))
    assert sorts(after) == 0
    check_same(interpret(after, args), jax.tree.leaves(jax.jit(f)(*args)))


@pytest.mark.parametrize(
    "seed", [*range(12), *(pytest.param(n, marks=pytest.mark.slow) for n in range(12, 300))]
)
def test_drawn_kernels(seed: int) -> None:
    f, args = drawn(Random(1000 + seed))
    check_same(jstitch.jit(f, options=OPTIONS)(*args), jax.jit(f)(*args))


def median(x: Any) -> Any:
    return jnp.median(jnp.stack([x, jnp.roll(x, 1, -1), jnp.roll(x, -1, -1)]), 0)


def test_a_median_is_one_kernel() -> None:
    x = np.random.default_rng(0).standard_normal((64, 100)).astype(np.float32)
    np.testing.assert_array_equal(jstitch.jit(median, options=OPTIONS)(x), jax.jit(median)(x))
    record = jstitch.last_report()[-1]
    assert record.kernels == 1
    assert sorts(graph_of(median, [x])) == 1


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16, np.float16])
@pytest.mark.parametrize("machine", [simulated, interpreted])
def test_gpus_compare_by_total_order(dtype: Any, machine: Any) -> None:
    """Kernels for GPUs, of a graph whose sorts are written out."""

    def f(x: Any, y: Any) -> Any:
        return lax.sort((x, y), dimension=0, num_keys=1)

    args = [numbers(Random(n), (5, 64), kind) for n, kind in enumerate((dtype, np.int32))]
    made = stitch(graph_of(f, args), PROFILES["h200"])
    assert len(made.kernels) == 1
    check_same(made.run(args, machine), jax.jit(f)(*args))


def test_gradients_of_a_sort() -> None:
    """A gather by what was sorted along."""

    def loss(x: Any) -> Any:
        return jnp.sum(jnp.sort(x, 0) * jnp.arange(5.0)[:, None] ** 2)

    x = np.random.default_rng(1).standard_normal((5, 300)).astype(np.float32)
    np.testing.assert_allclose(jstitch.jit(jax.grad(loss))(x), jax.jit(jax.grad(loss))(x))


@pytest.mark.parametrize(
    "f",
    [
        lambda x: jnp.sort(x, 0),  # ten elements
        lambda x: jnp.sort(x[:1], 0),  # one
        lambda x: jnp.sort(x[:, :0].T, 1),  # none
        lambda x: jnp.sort(x.astype(jnp.complex64)[:3], 0),  # whose comparison no kernel has
    ],
)
def test_others_stay(f: Callable[[Any], Any]) -> None:
    graph = graph_of(f, [np.ones((10, 4), np.float32)])
    assert write_sorts(graph, CPU) is graph


def test_gpus_sort_in_one_kernel() -> None:
    graph = graph_of(median, [np.ones((4, 8), np.float32)])
    assert write_sorts(graph, H200) is graph
