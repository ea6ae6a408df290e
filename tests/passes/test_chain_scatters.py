"""Sums of scattered tensors become scatters into one; other sums stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jstitch.frontend.importer import import_module
from jstitch.frontend.mlir import parse_module
from jstitch.ir.graph import Graph
from jstitch.ir.interpret import interpret
from jstitch.ir.verify import check
from jstitch.passes.graph.canonicalize import canonicalize
from jstitch.passes.graph.chain_scatters import SCATTER, TERMS, chain_scatters
from jstitch.passes.graph.dce import dce
from jstitch.passes.graph.fold_constants import fold_constants
from tests.contexts import H200

TABLE = np.random.default_rng(0).standard_normal((9, 4)).astype(np.float32)
ROWS, PAIRS = np.array([3, 0, 3, 8], np.int32), np.array([[3, 1], [3, 2]], np.int32)


def names(f: Callable[..., Any], *args: Any) -> tuple[Graph, list[str], list[str]]:
    """The graph, its ops and those after the pass, which mean the same."""
    graph = import_module(parse_module(jax.jit(f).lower(*args).as_text()))
    before = dce(fold_constants(canonicalize(graph)))
    after = check(dce(chain_scatters(before, H200)), "chain_scatters")
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


def test_a_gradient_step_touches_only_rows_that_were_looked_up() -> None:
    """The step's factor goes to what is scattered, of both look-ups; zeros of the table's size are gone."""

    def step(table: Any) -> Any:
        gradient = jax.grad(lambda t: jnp.sum(jnp.sin(t[ROWS])) + jnp.sum(t[PAIRS] ** 3))(table)
        return table + -0.1 * gradient

    graph, before, after = names(step, TABLE)
    assert before.count("scatter") == after.count("scatter") == 2
    made = chain_scatters(graph, H200)
    kept = dce(made).ops
    assert next(op for op in kept if op.name == SCATTER).operands[0] in made.inputs
    assert not any(op.result.shape == TABLE.shape for op in kept if op.name != SCATTER)


def test_a_product_takes_what_is_scattered() -> None:
    """The gradient of a table that is the output's weights, too."""

    def f(a: Any, b: Any, u: Any) -> Any:
        return a @ b + jnp.zeros((9, 4)).at[ROWS].add(u)

    args = tuple(np.ones(shape, np.float32) for shape in ((9, 5), (5, 4), (4, 4)))
    assert "add" not in names(f, *args)[2]


def test_many_terms_are_summed_before_they_are_added_to_weights() -> None:
    """Each term on its own would lose half a unit in the last place of the weights."""
    many = np.zeros(TERMS + 1, np.int32)

    def f(x: Any, u: Any) -> Any:
        return x + jnp.zeros_like(x).at[many].add(u)

    before, _, _ = names(f, TABLE, np.full((TERMS + 1, 4), 1e-8, np.float32))
    assert chain_scatters(before, H200) is before


def test_sums_that_are_no_sums_of_scattered_terms_stay() -> None:
    def f(x: Any, u: Any, c: Any) -> Any:
        zeros = jnp.zeros_like(x)
        kept = zeros.at[ROWS].add(u)
        scaled = c * zeros.at[PAIRS[0]].add(u[:2])  # 0 * inf is no number in rows that nobody looked up
        return jnp.sin(x) + zeros.at[ROWS].max(u), kept, kept @ x.T @ x + kept, scaled

    before, _, _ = names(f, TABLE, np.ones((4, 4), np.float32), np.float32(2))
    assert chain_scatters(before, H200) is before


def test_narrow_floats_are_added_as_before() -> None:
    def f(table: Any) -> Any:
        return jax.grad(lambda t: jnp.sum(jnp.sin(t[ROWS])) + jnp.sum(t[PAIRS]))(table.astype(jnp.bfloat16))

    before, _, _ = names(f, TABLE)
    assert chain_scatters(before, H200) is before
