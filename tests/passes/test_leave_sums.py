"""Sums that are left to XLA's library, which may make them while it multiplies matrices."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
from jax import lax

from jstitch.ir.graph import Graph
from jstitch.passes.graph.keep_counters import LEFT
from jstitch.passes.graph.leave_sums import leave_sums
from tests.contexts import H200
from tests.passes.product_graphs import arrays, changed


def block(x: Any, a: Any, b: Any, bias: Any) -> Any:
    """A residual block: what comes in is added to the second product, and wanted no more."""
    y = jnp.tanh(x)
    return jnp.exp(y + (jnp.sin(y @ a) @ b + lax.broadcast_in_dim(bias, x.shape, (1,))))


def left(graph: Graph) -> list[str]:
    return [op.name.removeprefix("stablehlo.") for op in graph.walk() if LEFT in op.attrs]


def test_the_sum_around_a_block_is_left_to_the_library() -> None:
    shapes = arrays((4, 8), (8, 6), (6, 8), (8,))
    assert left(changed(leave_sums, block, *shapes)) == ["broadcast_in_dim", "add", "add"]


def test_the_sum_around_a_block_without_a_bias_is_left_too() -> None:
    def f(x: Any, a: Any, b: Any) -> Any:
        y = jnp.tanh(x)
        return jnp.exp(jnp.sin(y @ a) @ b + y) * 2

    assert left(changed(leave_sums, f, *arrays((4, 8), (8, 6), (6, 8)))) == ["add"]


def test_a_bias_is_left_to_the_library() -> None:
    def f(x: Any, a: Any, bias: Any) -> Any:
        return jnp.tanh(lax.broadcast_in_dim(bias, (4, 6), (1,)) + x @ a)

    assert left(changed(leave_sums, f, *arrays((4, 8), (8, 6), (6,)))) == ["broadcast_in_dim", "add"]


def test_a_row_that_others_read_too_is_not_left_with_its_sum() -> None:
    def f(x: Any, a: Any, bias: Any) -> Any:
        row = lax.broadcast_in_dim(bias, (4, 6), (1,))
        return jnp.tanh(x @ a + row) * row

    assert left(changed(leave_sums, f, *arrays((4, 8), (8, 6), (6,)))) == ["add"]


def test_a_bias_of_batches_or_of_columns_or_of_what_is_read_twice_stays() -> None:
    def batch(x: Any, a: Any, bias: Any) -> Any:
        product = jnp.stack([x, x]) @ jnp.stack([a, a])
        return jnp.tanh(product + lax.broadcast_in_dim(bias[:6], product.shape, (2,)))

    def columns(x: Any, a: Any, bias: Any) -> Any:
        return jnp.tanh(x @ a + lax.broadcast_in_dim(bias, (8, 6), (0,)))

    def twice(x: Any, a: Any, bias: Any) -> Any:
        product = x @ a
        return jnp.tanh(product + lax.broadcast_in_dim(bias[:6], product.shape, (1,))) * product

    for f in (batch, columns, twice):
        assert not left(changed(leave_sums, f, *arrays((8, 8), (8, 6), (8,)))), f


def test_sums_of_products_are_left_to_the_library() -> None:
    """The gates of a recurrent cell, and what a tensor that is read three times is told by its gradient."""

    def gates(x: Any, a: Any, b: Any) -> Any:
        return jnp.tanh(x @ a + jnp.sin(x) @ b)

    def thrice(x: Any, a: Any, b: Any) -> Any:
        return jnp.tanh(x @ a + x @ b + jnp.sin(x) @ a)

    for f, sums in ((gates, 1), (thrice, 2)):
        assert left(changed(leave_sums, f, *arrays((4, 8), (8, 6), (8, 6)))) == ["add"] * sums


def test_sums_of_what_is_in_memory_anyway_are_left_whoever_wants_it() -> None:
    def wanted(x: Any, a: Any, b: Any) -> Any:
        y = jnp.tanh(x)
        s = y + jnp.sin(y @ a) @ b
        return jnp.exp(s) * y

    def returned(x: Any, a: Any, b: Any) -> Any:
        y = jnp.tanh(x)
        return y, jnp.exp(y + jnp.sin(x @ a) @ b)

    def given(x: Any, a: Any, b: Any) -> Any:
        return jnp.exp(x + jnp.sin(x @ a) @ b)

    for f in (wanted, returned, given):
        assert left(changed(leave_sums, f, *arrays((4, 8), (8, 6), (6, 8)))) == ["add"], f


def test_sums_of_what_is_not_in_memory_or_of_a_product_that_others_read_stay() -> None:
    """Somebody would have to write the one first, and has written the other."""

    def nowhere(x: Any, a: Any, b: Any) -> Any:
        return jnp.exp(jnp.tanh(x) + jnp.sin(x @ a) @ b)

    def spread(x: Any, a: Any, b: Any) -> Any:
        return jnp.exp(jnp.ones((4, 8)) + jnp.sin(x @ a) @ b)

    def twice(x: Any, a: Any, b: Any) -> Any:
        y = jnp.tanh(x)
        p = jnp.sin(y @ a) @ b
        return jnp.exp(y + p), p

    for f in (nowhere, spread, twice):
        assert not left(changed(leave_sums, f, *arrays((4, 8), (8, 6), (6, 8)))), f


def test_no_sum_is_left_where_the_profile_leaves_none() -> None:
    shapes = arrays((4, 8), (8, 6), (6, 8), (8,))
    kept = replace(H200, profile=replace(H200.profile, sums=False))
    assert not left(changed(lambda graph, _: leave_sums(graph, kept), block, *shapes))
