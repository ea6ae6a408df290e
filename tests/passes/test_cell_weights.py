"""Weights of cells on a CPU: read where they are, turned once, or multiplied by before the loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jstitch
from jstitch.ir.graph import Graph, Op
from jstitch.ir.interpret import interpret
from jstitch.ir.verify import check
from jstitch.passes.base.context import Context
from jstitch.passes.base.product_side import PRODUCT, Side
from jstitch.passes.graph.cancel_transposes import cancel_transposes
from jstitch.passes.graph.canonicalize import canonicalize
from jstitch.passes.graph.dce import dce
from jstitch.passes.graph.fold_transposes import fold_transposes
from jstitch.passes.graph.hoist_products import FEW_ROWS, hoist_products
from jstitch.passes.graph.turn_weights import LEAST_TURNS, turn_weights
from tests.contexts import CPU, CPU_PROFILE, H200, on
from tests.passes.product_graphs import arrays
from tests.passes.product_graphs import graph_of as imported
from tests.passes.test_lower_cell import kernel_of

OPTIONS = jstitch.CompileOptions(tune="off", verify=True)


def lines(x: Any, w: Any, u: Any, h: Any) -> Any:
    """Weights [units, inputs] behind the rows."""

    def turn(h: Any, now: Any) -> Any:
        h = jnp.tanh(now @ w.T + h @ u.T)
        return h, h

    return lax.scan(turn, h, x)


def mapped(x: Any, w: Any, u: Any, h: Any) -> Any:
    """The same weights before the rows of a batch, each of which is a vector."""

    def turn(h: Any, now: Any) -> Any:
        h = jax.vmap(lambda now, h: jnp.tanh(w @ now + u @ h))(now, h)
        return h, h

    return lax.scan(turn, h, x)


def columns(x: Any, w: Any, u: Any, h: Any) -> Any:
    """Weights [inputs, units]."""

    def turn(h: Any, now: Any) -> Any:
        h = jnp.tanh(now @ w + h @ u)
        return h, h

    return lax.scan(turn, h, x)


def vector(x: Any, w: Any, u: Any, h: Any) -> Any:
    """No batch, weights before the vector."""

    def turn(h: Any, now: Any) -> Any:
        h = jnp.tanh(w @ now + u @ h)
        return h, h

    return lax.scan(turn, h[0], x[:, 0])


CELLS = {f.__name__: f for f in (lines, mapped, columns, vector)}


def inputs(turns: int, rows: int, units: int, given: int, f: Callable[..., Any]) -> list[Any]:
    x, w, u, h = arrays((turns, rows, given), (units, given), (units, units), (rows, units))
    w, u = w / given**0.5, u / units**0.5
    return [x, w.T, u.T, h] if f is columns else [x, w, u, h]


def crowded(nbytes: int) -> Context:
    """A core's cache of so many bytes."""
    return on(replace(CPU_PROFILE, machine=replace(CPU_PROFILE.machine, near_bytes=nbytes)))


def in_loops(graph: Graph) -> list[Op]:
    return [op for region in loop(graph).regions for op in region.ops if op.name == PRODUCT]


def graph_of(f: Callable[..., Any], args: Any) -> Graph:
    """As passes find it."""
    return dce(fold_transposes(canonicalize(imported(f, args))))


def loop(graph: Graph) -> Op:
    (found,) = (op for op in graph.ops if op.name == "stablehlo.while")
    return found


def after(change: Callable[[Graph, Context], Graph], graph: Graph, args: Any, context: Context) -> Graph:
    """The graph after the pass, which means the same."""
    found = check(change(graph, context), change.__name__)
    for a, b in zip(interpret(graph, args), interpret(found, args), strict=True):
        np.testing.assert_allclose(b, a, rtol=2e-5, atol=2e-5)
    return found


@pytest.mark.parametrize("f", CELLS.values(), ids=CELLS)
@pytest.mark.parametrize("rows", [1, 3, FEW_ROWS, 16])
@pytest.mark.parametrize("near", [1 << 14, 1 << 30])
def test_what_a_core_waits_for_is_multiplied_before_the_loop(
    f: Callable[..., Any], rows: int, near: int
) -> None:
    args = inputs(3, rows, 80, 64, f)
    graph = graph_of(f, args)
    found = after(hoist_products, graph, args, crowded(near))
    few = f is vector or rows < FEW_ROWS
    waits = few or (near == 1 << 14 and 4 * rows <= 64)
    assert len(in_loops(graph)) == 2
    assert len(in_loops(found)) == 2 - waits
    assert (found is graph) != waits


@pytest.mark.parametrize(
    ("turns", "units", "given", "why"),
    [(9, 40, 8, "few weights"), (9, 80, 3, "a stack as large as the weights"), (1, 80, 64, "one turn")],
)
def test_what_stays_in_the_turns(turns: int, units: int, given: int, why: str) -> None:
    args = inputs(turns, 1, units, given, lines)
    graph = graph_of(lines, args)
    assert hoist_products(graph, crowded(1 << 10)) is graph, why


def test_what_is_asked_for_one_operand_stays_with_it() -> None:
    def f(x: Any, w: Any, h: Any) -> Any:
        def turn(h: Any, now: Any) -> Any:
            made = lax.dot_general(w, now, (((1,), (0,)), ((), ())), precision=("highest", "default"))
            return h + made, h

        return lax.scan(turn, h, x)

    args = arrays((5, 64), (80, 64), (80,))
    graph = graph_of(f, args)
    assert hoist_products(graph, CPU) is graph


@pytest.mark.parametrize("turns", [LEAST_TURNS - 1, LEAST_TURNS])
@pytest.mark.parametrize("f", CELLS.values(), ids=CELLS)
def test_weights_lie_as_kernels_read_them(f: Callable[..., Any], turns: int) -> None:
    args = inputs(turns, 8, 48, 40, f)
    graph = dce(cancel_transposes(graph_of(f, args)))
    found = after(turn_weights, graph, args, CPU)
    across = [op for op in in_loops(found) if Side.of(op, 1).contracted == (1,)]
    assert len(across) == (2 if f in (lines, mapped) and turns < LEAST_TURNS else 0)
    assert turn_weights(graph, H200) is graph
    assert turn_weights(found, CPU) is found


def test_weights_that_two_products_read_are_turned_once() -> None:
    def f(x: Any, w: Any, h: Any) -> Any:
        return lax.scan(lambda h, now: (jnp.tanh(now @ w.T + h @ w.T), h), h, x)

    args = arrays((20, 4, 40), (40, 40), (4, 40))
    graph = graph_of(f, args)
    found = after(turn_weights, graph, args, CPU)
    assert len(loop(found).operands) == len(loop(graph).operands) + 1


def test_weights_of_more_dimensions_stay_as_they_are() -> None:
    def f(h: Any, w: Any) -> Any:
        return lax.fori_loop(0, LEAST_TURNS, lambda i, h: jnp.tanh(jnp.einsum("bk,nkm->bnm", h, w).sum(1)), h)

    h, w = arrays((4, 40), (3, 40, 40))
    args = h, w / 40  # turns that forget, or they would make any rounding larger
    graph = graph_of(f, args)
    assert turn_weights(graph, CPU) is graph
    np.testing.assert_allclose(jstitch.jit(f)(*args), jax.jit(f)(*args), rtol=2e-5, atol=2e-5)


def test_weights_that_stay_in_no_cache_stay_as_they_are() -> None:
    args = inputs(20, 4, 48, 40, lines)
    graph = graph_of(lines, args)
    assert turn_weights(graph, crowded(1 << 12)) is graph


@pytest.mark.parametrize(
    ("rows", "step"), [(1, 1), (2, 2), (3, 3), (4, 2), (8, 4), (16, 8), (24, 12), (48, 12), (96, 12)]
)
def test_no_core_is_idle(rows: int, step: int) -> None:
    args = inputs(20, rows, 48, 40, columns)
    kernel, _ = kernel_of(columns, args)
    (lane,) = kernel.phases[0].lanes
    assert lane.step == step


@pytest.mark.parametrize("f", CELLS.values(), ids=CELLS)
@pytest.mark.parametrize("shape", [(17, 1, 64, 64), (17, 5, 70, 33), (16, 8, 96, 200), (40, 3, 130, 130)])
@pytest.mark.parametrize("gradient", [False, True])
def test_results(f: Callable[..., Any], shape: tuple[int, int, int, int], gradient: bool) -> None:
    def g(*args: Any) -> Any:
        if not gradient:
            return f(*args)
        return jax.grad(lambda *args: sum(jnp.sum(v * v) for v in f(*args)), (0, 1, 2, 3))(*args)

    args = inputs(*shape, f)
    wanted, found = jax.jit(g)(*args), jstitch.jit(g, options=OPTIONS)(*args)
    for a, b in zip(jax.tree.leaves(wanted), jax.tree.leaves(found), strict=True):
        np.testing.assert_allclose(b, a, rtol=2e-4, atol=2e-4 * float(jnp.abs(a).max()))
