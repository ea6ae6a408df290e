"""Sums of iotas that number elements become one iota, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jstitch
from jstitch.ir.graph import Graph
from jstitch.ir.interpret import interpret
from jstitch.ir.verify import check
from jstitch.passes.graph.canonicalize import canonicalize
from jstitch.passes.graph.dce import dce
from jstitch.passes.graph.linearize_iotas import linearize_iotas
from tests.passes.product_graphs import graph_of
from tests.shares import one_in

SHAPE = (3, 5, 7)


def iota(dim: int, dtype: Any = jnp.int32, shape: tuple[int, ...] = SHAPE) -> Any:
    return jax.lax.broadcasted_iota(dtype, shape, dim)


def graphs(f: Callable[..., Any], *args: Any) -> tuple[Graph, Graph]:
    """Before and after the pass, which mean the same."""
    before = canonicalize(graph_of(f, args))
    after = check(dce(linearize_iotas(before)), "linearize_iotas")
    for a, b in zip(interpret(before, args), interpret(after, args), strict=True):
        np.testing.assert_array_equal(a, b)
    return before, after


def sums(graph: Graph) -> int:
    return sum(op.name == "stablehlo.add" for op in graph.walk())


NUMBERED: dict[str, Callable[[], Any]] = {
    "all": lambda: iota(0) * 35 + iota(1) * 7 + iota(2),
    "the last two": lambda: iota(1) * 7 + iota(2),
    "the first two": lambda: iota(0) * 5 + iota(1),
    "unsigned": lambda: iota(0, jnp.uint32) * jnp.uint32(35) + iota(1, jnp.uint32) * 7 + iota(2, jnp.uint32),
    "around one of one element": lambda: iota(0, shape=(3, 1, 7)) * 7 + iota(2, shape=(3, 1, 7)),
    "converted": lambda: (iota(1) * 7 + iota(2)).astype(jnp.uint32),
}
OTHERS: dict[str, Callable[[], Any]] = {
    "turned": lambda: iota(0) + iota(1) * 3,
    "apart": lambda: iota(0) * 7 + iota(2),
    "twice": lambda: iota(1) * 14 + iota(2) * 2,
    "backwards": lambda: iota(2) - iota(1) * 7,
    "padded": lambda: iota(1) * 8 + iota(2),
    "negative, and converted": lambda: (iota(1) * -7 + iota(2)).astype(jnp.uint32),
}


@pytest.mark.parametrize("case", NUMBERED)
def test_one_iota_numbers_elements(case: str) -> None:
    _, after = graphs(NUMBERED[case])
    assert sums(after) == 0


@pytest.mark.parametrize("case", OTHERS)
def test_other_sums_stay(case: str) -> None:
    before, after = graphs(OTHERS[case])
    assert sums(after) == sums(before)


@pytest.mark.parametrize("shape", one_in(2, [(3, 5, 7), (4, 1, 9), (0, 3), ()]))
def test_random_numbers_are_the_same_bits(shape: tuple[int, ...]) -> None:
    def f(key: Any) -> Any:
        return jax.random.uniform(key, shape), jax.random.bits(jax.random.split(key)[0], (*shape, 3))

    def per_row(keys: Any) -> Any:
        return jax.vmap(f)(keys)

    key = jax.random.key(3)
    options = jstitch.CompileOptions(tune="off", verify=True)
    for g, arg in ((f, key), (per_row, jax.random.split(key, 4))):
        found, theirs = jstitch.jit(g, options=options)(arg), jax.jit(g)(arg)
        jax.tree.map(np.testing.assert_array_equal, found, theirs)


def test_kernels_of_random_numbers_divide_nothing() -> None:
    """A division of indices keeps LLVM from vectors: it took three times as long."""
    graph = canonicalize(graph_of(lambda key: jax.random.normal(key, SHAPE), (jax.random.PRNGKey(0),)))
    assert not any(
        op.name == "stablehlo.multiply" and op.result.tensor.dtype.is_integer
        for op in dce(linearize_iotas(graph)).walk()
    )
