"""What is the same in every turn of a loop is computed before it, once; what only moves, or grows, is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jstitch
from jstitch.frontend.importer import import_module
from jstitch.ir.graph import Graph, Op
from jstitch.ir.interpret import interpret
from jstitch.ir.verify import check
from jstitch.passes.graph.dce import dce
from jstitch.passes.graph.hoist_invariants import LEAST_ELEMENTS, hoist_invariants
from tests.passes.product_graphs import arrays, graph_of

OPTIONS = jstitch.CompileOptions(tune="off", verify=True)
X, W, H = arrays((9, 4, 16), (16, 16), (4, 16))
W = W / 4  # turns that forget, or they would make any rounding larger


def scanned(weights: Callable[[Any], Any]) -> Callable[..., Any]:
    """A recurrence whose turns make their weights."""

    def f(x: Any, w: Any, h: Any) -> Any:
        def turn(h: Any, now: Any) -> Any:
            h = jnp.tanh(now + h @ weights(w))
            return h, h

        return lax.scan(turn, h, x)

    return f


def hoisted(f: Callable[..., Any], *args: Any) -> Graph:
    """The graph after the pass, which means the same."""
    before = graph_of(f, args)
    after = check(dce(hoist_invariants(before)), "hoist_invariants")
    for a, b in zip(interpret(before, args), interpret(after, args), strict=True):
        np.testing.assert_array_equal(a, b)
    return after


def names(ops: Any) -> set[str]:
    return {op.name.removeprefix("stablehlo.") for op in ops}


def body(graph: Graph) -> tuple[Op, ...]:
    (loop,) = (op for op in graph.ops if op.name == "stablehlo.while")
    return loop.regions[1].ops


@pytest.mark.parametrize(
    ("weights", "gone"),
    [
        (lambda w: w * 0.5, {"multiply"}),
        (lambda w: w / jnp.linalg.norm(w, axis=0), {"divide", "sqrt", "reduce"}),
        (lambda w: jax.nn.softmax(w), {"exponential", "divide", "reduce"}),
        (lambda w: w @ w.T / 64, {"divide"}),
        (lambda w: jnp.concatenate([w[:, 8:], w[:, :8]], 1), {"concatenate"}),
        (lambda w: jnp.where(jnp.tri(16) > 0, w, 0), {"select"}),
        (lambda w: w.astype(jnp.bfloat16).astype(jnp.float32), {"convert"}),
    ],
    ids=["scaled", "normalized", "softmax", "product", "joined", "masked", "rounded"],
)
def test_weights_that_turns_make(weights: Callable[[Any], Any], gone: set[str]) -> None:
    f = scanned(weights)
    after = hoisted(f, X, W, H)
    assert names(body(after)).isdisjoint(gone)
    assert gone <= names(after.ops)
    assert sum(op.name == "stablehlo.dot_general" for op in body(after)) == 1
    for a, b in zip(
        jax.tree.leaves(jax.jit(f)(X, W, H)),
        jax.tree.leaves(jstitch.jit(f, options=OPTIONS)(X, W, H)),
        strict=True,
    ):
        np.testing.assert_allclose(b, a, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    "weights",
    [lambda w: w.T, lambda w: w[:16], lambda w: w.reshape(16, 16)],
    ids=["turned", "part", "shaped"],
)
def test_what_only_moves_stays(weights: Callable[[Any], Any]) -> None:
    graph = graph_of(scanned(weights), (X, W, H))
    assert hoist_invariants(graph) is graph


def test_what_grows_stays_but_for_what_it_is_made_of() -> None:
    (bias,) = arrays((LEAST_ELEMENTS,))

    def f(x: Any, b: Any) -> Any:
        return lax.fori_loop(0, 9, lambda i, c: c * jnp.exp(b)[None] + 1.0, x)

    after = hoisted(f, *arrays((50, LEAST_ELEMENTS)), bias)
    assert "exponential" in names(after.ops)
    assert {"broadcast_in_dim", "multiply"} <= names(body(after))
    assert "exponential" not in names(body(after))


@pytest.mark.parametrize(("size", "stays"), [(LEAST_ELEMENTS - 1, True), (LEAST_ELEMENTS, False)])
def test_a_few_numbers_that_are_no_work_stay(size: int, stays: bool) -> None:
    def f(x: Any, b: Any) -> Any:
        return lax.fori_loop(0, 9, lambda i, c: c + (b + b), x)

    after = hoisted(f, *arrays((size,), (size,)))
    assert sum(op.name == "stablehlo.add" for op in body(after)) == (3 if stays else 2)


def test_what_one_turn_changes_stays() -> None:
    """Weights that are carried and learn."""

    def f(x: Any, w: Any, h: Any) -> Any:
        def turn(carry: Any, now: Any) -> Any:
            h, w = carry
            h = jnp.tanh(now + h @ (w * 0.5))
            return (h, w + 0.1 * h.T @ h), h

        return lax.scan(turn, (h, w), x)

    graph = graph_of(f, (X, W, H))
    assert hoist_invariants(graph) is graph


def test_out_of_two_loops() -> None:
    def f(x: Any, w: Any, h: Any) -> Any:
        inner = scanned(lambda w: w * 0.5)
        return lax.fori_loop(0, 3, lambda i, h: inner(x, w, h)[0], h)

    after = hoisted(f, X, W, H)
    (loop,) = (op for op in after.ops if op.name == "stablehlo.while")
    assert "multiply" in names(after.ops)
    assert "multiply" not in names(op for region in loop.regions for op in region.walk())


def test_no_turn_at_all() -> None:
    def f(n: Any, w: Any, h: Any) -> Any:
        return lax.fori_loop(0, n, lambda i, h: h @ jnp.exp(w), h)

    for n in (0, 2):
        after = hoisted(f, np.int32(n), W, H)
        assert "exponential" in names(after.ops)
        np.testing.assert_allclose(jstitch.jit(f, options=OPTIONS)(n, W, H), jax.jit(f)(n, W, H), rtol=2e-5)


def test_what_the_user_wants_in_one_kernel_stays_there() -> None:
    @jstitch.fuse_together
    def step(h: Any, w: Any) -> Any:
        return jnp.sum(h * jnp.exp(w)[:4], -1, keepdims=True) + h

    def f(w: Any, h: Any) -> Any:
        return lax.fori_loop(0, 9, lambda i, h: step(h, w), h)

    graph = import_module(jax.jit(f).lower(W, H).compiler_ir("stablehlo"))
    assert hoist_invariants(graph) is graph
