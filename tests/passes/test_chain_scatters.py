"""Sums of scattered tensors become scatters into one; other sums stay."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jstitch.device_spec import find_spec
from jstitch.frontend.importer import import_module
from jstitch.frontend.mlir import parse_module
from jstitch.frontend.target import cuda_profile
from jstitch.ir.graph import Graph
from jstitch.ir.interpret import interpret
from jstitch.ir.verify import check
from jstitch.passes import profile
from jstitch.passes.canonicalize import canonicalize
from jstitch.passes.chain_scatters import chain_scatters
from jstitch.passes.dce import dce
from jstitch.passes.fold_constants import fold_constants

TABLE = np.random.default_rng(0).standard_normal((9, 4)).astype(np.float32)
ROWS, PAIRS = np.array([3, 0, 3, 8], np.int32), np.array([[3, 1], [3, 2]], np.int32)


@pytest.fixture(autouse=True)
def cuda() -> Iterator[None]:
    with profile.using(cuda_profile(find_spec("h200"))):
        yield


def names(f: Callable[..., Any], *args: Any) -> tuple[Graph, list[str], list[str]]:
    """The graph, its ops and those after the pass, which mean the same."""
    graph = import_module(parse_module(jax.jit(f).lower(*args).as_text()))
    before = dce(fold_constants(canonicalize(graph)))
    after = check(dce(chain_scatters(before)), "chain_scatters")
    for a, b in zip(interpret(before, args), interpret(after, args), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
    first, second = ([op.name.removeprefix("stablehlo.") for op in g.ops] for g in (before, after))
    return before, first, second


def test_a_table_that_is_looked_up_twice_has_one_gradient() -> None:
    def loss(table: Any) -> Any:
        return jnp.sum(jnp.sin(table[ROWS])) + jnp.sum(table[PAIRS] ** 3)

    _, before, after = names(jax.grad(loss), TABLE)
    assert after.count("scatter") == before.count("scatter") == 2
    assert after.count("add") == before.count("add") - 1


def test_sums_that_are_not_gradients_of_tables_stay() -> None:
    def f(x: Any, u: Any) -> Any:
        zeros = jnp.zeros_like(x)
        kept = zeros.at[ROWS].add(u)
        return x + zeros.at[ROWS].add(u * 2), jnp.sin(x) + zeros.at[ROWS].max(u), kept, kept @ x.T @ x + kept

    before, _, _ = names(f, TABLE, np.ones((4, 4), np.float32))
    assert chain_scatters(before) is before


def test_narrow_floats_are_added_as_before() -> None:
    def f(table: Any) -> Any:
        return jax.grad(lambda t: jnp.sum(jnp.sin(t[ROWS])) + jnp.sum(t[PAIRS]))(table.astype(jnp.bfloat16))

    before, _, _ = names(f, TABLE)
    assert chain_scatters(before) is before
