"""Reductions, windows, contractions and scatters: the NumPy reference equals XLA."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jstitch.frontend.importer import import_module
from jstitch.ir.graph import Graph
from jstitch.ir.interpret import interpret
from jstitch.ir.ops import MONOIDS
from jstitch.ir.types import DType
from jstitch.ir.verify import check
from tests.ir.test_elementwise import assert_same

X = np.random.default_rng(0).normal(size=(4, 5, 6)).astype(np.float32)
INTS = np.random.default_rng(1).integers(-50, 50, (4, 5, 6)).astype(np.int32)


def imported(f: Callable[..., object], *args: object) -> Graph:
    return check(import_module(jax.jit(f).lower(*args).compiler_ir("stablehlo")))


def assert_equals_jax(f: Callable[..., object], *args: np.ndarray) -> Graph:
    graph = imported(f, *args)
    expected = jax.tree.leaves(jax.jit(f)(*args))
    for mine, xla in zip(interpret(graph, args), expected, strict=True):
        assert_same(mine, np.asarray(xla), DType.of(mine.dtype), str(f))
    return graph


REDUCTIONS: dict[str, Callable[..., object]] = {
    "sum": jnp.sum,
    "prod": jnp.prod,
    "max": jnp.max,
    "min": jnp.min,
}


@pytest.mark.parametrize("axis", [None, 0, 1, 2, (0, 2), (1, 2), ()])
@pytest.mark.parametrize("name", sorted(REDUCTIONS))
def test_monoids(name: str, axis: int | tuple[int, ...] | None) -> None:
    f = REDUCTIONS[name]
    graph = assert_equals_jax(lambda x, i: (f(x, axis=axis), f(i, axis=axis)), X, INTS)
    assert all(op.attrs["monoid"] in MONOIDS for op in graph.ops if op.name == "stablehlo.reduce")


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, jnp.int8, jnp.uint32, jnp.bool_])
def test_reduced_dtypes(dtype: type) -> None:
    x = np.asarray(jnp.asarray(X).astype(dtype))
    assert_equals_jax(
        lambda x: (jnp.max(x, 1), jnp.min(x, 0), jnp.sum(x, (0, 1)), jnp.any(x), jnp.all(x, 0)), x
    )


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 1)])
def test_empty_reductions(shape: tuple[int, int]) -> None:
    assert_equals_jax(lambda x: (x.sum(0), x.sum(1), x.prod(), x.sum()), np.ones(shape, np.float32))


def test_nan_and_infinities() -> None:
    x = X.copy()
    x[0, 0, 0], x[1, 1, 1], x[2, 2, 2] = np.nan, np.inf, -np.inf
    assert_equals_jax(lambda x: (x.sum(2), x.max(2), x.min((0, 1)), jnp.argmax(x, 1), jnp.argmin(x, 2)), x)


def test_variadic_reductions_have_no_monoid() -> None:
    graph = assert_equals_jax(lambda x, i: (jnp.argmax(x, 1), jnp.argmin(i, 0), jnp.argmax(x)), X, INTS)
    reduces = [op for op in graph.ops if op.name == "stablehlo.reduce"]
    assert len(reduces) == 3
    assert all("monoid" not in op.attrs for op in reduces)


def test_general_combiner() -> None:
    def f(x: jax.Array) -> jax.Array:
        return lax.reduce(x, np.float32(0), lambda a, b: jnp.sqrt(a * a + b * b), (1,))

    assert_equals_jax(f, X)


def test_reduce_with_initial_value() -> None:
    assert_equals_jax(lambda x: (x.max(1, initial=1.5), lax.reduce(x, np.float32(3), lax.add, (0, 1))), X)


def test_windows() -> None:
    def pools(x: jax.Array) -> list[jax.Array]:
        return [
            lax.reduce_window(x, -np.inf, lax.max, (1, 2, 3), (1, 2, 2), "SAME"),
            lax.reduce_window(x, 0.0, lax.add, (2, 2, 2), (1, 1, 1), "VALID"),
            lax.reduce_window(
                x, 0.0, lax.add, (1, 2, 2), (1, 2, 1), ((0, 0), (1, 0), (2, 1)), (1, 2, 1), (1, 1, 2)
            ),
            jnp.cumsum(x, 1),
            jnp.cumprod(x, 2),
            lax.cummax(x, 0, reverse=True),
            lax.cumlogsumexp(x, 2),
        ]

    assert_equals_jax(pools, X)


def test_contractions() -> None:
    a, b = X, np.swapaxes(X, 1, 2).copy()
    assert_equals_jax(lambda a, b: (a @ b, jnp.einsum("bij,bjk->kib", a, b), jnp.tensordot(a, b, 0)), a, b)
    assert_equals_jax(lambda a: (a[0, 0] @ a[1, 1], jnp.dot(a[0], a[1].T)), a)
    assert_equals_jax(lambda i: jnp.einsum("abi,abj->aij", i, i), INTS)


def test_scatters() -> None:
    at = np.array([3, 0, 9, -1, 3])

    def f(x: jax.Array, at: jax.Array) -> list[jax.Array]:
        rows = jnp.arange(5)
        return [
            x[:, :, 0].at[jnp.array([1, 0, 2])].set(7.0),
            x[0].at[at].add(1.0, mode="drop"),
            x[0].at[rows, at % 6].add(2.0),
            x[0].at[at % 5].max(0.5),
            jax.grad(lambda x: jnp.take_along_axis(x[0], at[:, None] % 6, 1).sum())(x),
        ]

    assert_equals_jax(f, X, at.astype(np.int32))


def test_convolution_has_no_reference() -> None:
    graph = imported(
        lambda x, w: lax.conv(x, w, (1, 1), "SAME"), np.ones((1, 2, 5, 5)), np.ones((3, 2, 3, 3))
    )
    with pytest.raises(NotImplementedError, match=r"stablehlo\.convolution.* at .*test_reduce\.py"):
        interpret(graph, [np.ones((1, 2, 5, 5), np.float32), np.ones((3, 2, 3, 3), np.float32)])
