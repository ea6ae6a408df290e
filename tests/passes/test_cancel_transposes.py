"""What lies between transposes goes in the order that needs fewer of them, and means the same."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jstitch
from jstitch.ir.graph import Graph
from jstitch.ir.interpret import interpret
from jstitch.ir.verify import check
from jstitch.passes.graph.cancel_transposes import cancel_transposes
from jstitch.passes.graph.canonicalize import canonicalize
from jstitch.passes.graph.dce import dce
from jstitch.passes.graph.dim_orders import is_in_place
from jstitch.passes.graph.turn_region import TRANSPOSE
from tests.passes.product_graphs import arrays, graph_of

OPTIONS = jstitch.CompileOptions(tune="off", strict=True, verify=True)


def transposed(graph: Graph) -> int:
    """Bytes that transposes move."""
    found = [
        op.result for op in graph.ops if op.name == TRANSPOSE and not _stays(op.attrs["permutation"], op)
    ]
    return sum(v.tensor.nbytes for v in found)


def _stays(permutation: tuple[int, ...], op: Any) -> bool:
    return is_in_place(permutation, op.result.shape)


def cancelled(f: Callable[..., Any], *args: Any) -> tuple[Graph, Graph]:
    """Before and after, which mean the same."""
    before = dce(canonicalize(graph_of(f, args)))
    after = dce(canonicalize(check(cancel_transposes(before), "cancel_transposes")))
    for want, found in zip(interpret(before, args), interpret(after, args), strict=True):
        np.testing.assert_allclose(found, want, rtol=2e-4, atol=2e-5)
    return before, after


def last(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """f of rows along axis 1."""
    return lambda x: jnp.moveaxis(f(jnp.moveaxis(x, 1, -1)), -1, 1)


def layer_norm(x: Any) -> Any:
    d = x - x.mean(-1, keepdims=True)
    return d * jax.lax.rsqrt((d * d).mean(-1, keepdims=True) + 1e-5) * jnp.arange(1.0, x.shape[-1] + 1)


def group_norm(x: Any) -> Any:
    y = x.reshape(x.shape[0], -1, 2, x.shape[-1] // 2)
    return layer_norm(y / (1 + y.std((1, 3), keepdims=True))).reshape(x.shape)


def masked(x: Any) -> Any:
    """Numbers of rows, and a table."""
    table = np.arange(math.prod(x.shape[1:]), dtype=np.float32).reshape(x.shape[1:])
    return jnp.where(jnp.argmax(x, -1, keepdims=True) > jnp.arange(x.shape[-1]), x, x * table)


BETWEEN = {"softmax": jax.nn.softmax, "layer norm": layer_norm, "group norm": group_norm, "masked": masked}


@pytest.mark.parametrize("shape", [(3, 6, 5, 4), (1, 6, 5, 1), (2, 6, 7)])
@pytest.mark.parametrize("name", BETWEEN)
def test_no_transpose_is_left(name: str, shape: tuple[int, ...]) -> None:
    f, (x,) = last(BETWEEN[name]), arrays(shape)
    before, after = cancelled(f, x)
    assert transposed(before) >= 2 * x.nbytes
    assert transposed(after) < x.nbytes  # a table, if any
    gradient = jax.grad(lambda x: (f(x) ** 2).sum())
    before, after = cancelled(gradient, x)
    assert transposed(after) < transposed(before)
    np.testing.assert_allclose(
        jstitch.jit(gradient, options=OPTIONS)(x), jax.jit(gradient)(x), rtol=1e-3, atol=1e-4
    )


def test_rows_that_are_summed_are_read_as_they_lie() -> None:
    before, after = cancelled(lambda x: jnp.exp(x.transpose(0, 2, 3, 1)).sum((1, 2)), *arrays((4, 6, 5, 7)))
    assert transposed(before) > transposed(after) == 0


def test_what_must_be_transposed_stays() -> None:
    """A result in another order; a product of it; two orders of one tensor."""
    x, w = arrays((4, 6, 5), (6, 3))
    for f in (
        lambda x: jnp.tanh(x.transpose(0, 2, 1)),
        lambda x: jnp.tanh(x.transpose(0, 2, 1)) @ w,
        lambda x: x[:, :5] + x[:, :5].transpose(0, 2, 1),
    ):
        before, after = cancelled(f, x)
        assert 0 < transposed(after) == transposed(before)


def test_two_regions_do_not_turn_towards_each_other() -> None:
    """The norm in memory's order is enough for what is made of it, too."""
    f = last(layer_norm)
    before, after = cancelled(jax.grad(lambda x: (jax.nn.relu(f(x)) ** 2).sum()), *arrays((3, 8, 9)))
    assert transposed(before) > transposed(after) == 0


def test_inside_a_loop() -> None:
    def f(x: Any) -> Any:
        return jax.lax.fori_loop(0, 3, lambda _, c: last(layer_norm)(c), x)

    (x,) = arrays((3, 8, 9))
    found = cancel_transposes(canonicalize(graph_of(f, (x,))))
    assert not any(transposed(dce(canonicalize(region))) for op in found.ops for region in op.regions)
    np.testing.assert_allclose(jstitch.jit(f)(x), jax.jit(f)(x), rtol=1e-3, atol=1e-4)


# -- drawn programs ----------------------------------------------------------------------------------------


STEPS = ("turn", "turn", "merge", "split", "mean", "max", "scale", "iota", "sum", "unit", "turned", "turn")


def _step(draw: Random, x: Any) -> Any:
    """One step of a drawn program."""
    rank = x.ndim
    axes = tuple(sorted(draw.sample(range(rank), draw.randint(1, rank))))
    match draw.choice(STEPS):
        case "turn":
            return x.transpose(draw.sample(range(rank), rank))
        case "merge" if rank > 2:
            d = draw.randrange(rank - 1)
            return x.reshape(*x.shape[:d], -1, *x.shape[d + 2 :])
        case "split":
            d = draw.randrange(rank)
            by = next((n for n in (2, 3, 5) if x.shape[d] % n == 0), 1)
            return x.reshape(*x.shape[:d], by, x.shape[d] // by, *x.shape[d + 1 :]) if rank < 6 else x
        case "mean":
            return x - x.mean(axes, keepdims=True)
        case "max":
            return jnp.where(x >= x.max(axes, keepdims=True), x, x * 0.5)
        case "scale":
            d = draw.randrange(rank)
            return x * jnp.expand_dims(jnp.linspace(0.5, 1.5, x.shape[d]), [a for a in range(rank) if a != d])
        case "iota":
            return x + jax.lax.broadcasted_iota(jnp.float32, x.shape, draw.randrange(rank)) / 8
        case "sum" if rank > 2 and len(axes) < rank:
            return x.sum(axes) if x.size > 40 else x
        case "unit":
            return jnp.expand_dims(x, draw.randint(0, rank)) if rank < 6 else x
        case "turned":
            order = draw.sample(range(rank), rank)
            return (x.transpose(order) * 2).transpose(np.argsort(order)) + x
    return jnp.tanh(x)


def _drawn(seed: int) -> tuple[Callable[..., Any], Any]:
    draw = Random(seed)
    shape = [draw.choice([1, 2, 3, 4, 6]) for _ in range(draw.randint(2, 4))]

    def f(x: Any) -> Any:
        draw = Random(seed + 1)
        found = []
        for _ in range(draw.randint(3, 9)):
            x = _step(draw, x)
            if draw.random() < 0.2:
                found.append(x)
        return *found, x

    return f, arrays(tuple(shape))


@pytest.mark.parametrize("first", range(0, 120, 20))
def test_drawn_programs_mean_the_same(first: int) -> None:
    changed = 0
    for seed in range(first, first + 20):
        f, args = _drawn(seed)
        before, after = cancelled(f, *args)
        assert transposed(after) <= transposed(before)
        changed += transposed(after) < transposed(before)
    assert changed


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 3000, 50))
def test_many_drawn_programs_mean_the_same(first: int) -> None:
    for seed in range(first, first + 50):
        f, args = _drawn(seed)
        before, after = cancelled(f, *args)
        assert transposed(after) <= transposed(before)


def cell(w: Any, u: Any, x: Any, h: Any) -> Any:
    """Weights before vectors, of all rows of a batch at once."""
    return jax.vmap(lambda x, h: jnp.tanh(w @ x + u @ h))(x, h)


def test_products_that_are_turned_together_have_their_operands_exchanged() -> None:
    args = arrays((7, 5), (7, 6), (3, 5), (3, 6))
    before, after = cancelled(cell, *args)
    assert transposed(before) == 4 * 3 * 7
    assert transposed(after) == 0


def test_a_product_that_others_read_too_stays_as_it_is() -> None:
    def f(w: Any, u: Any, x: Any, h: Any) -> Any:
        left, right = w @ x.T, u @ h.T
        return jnp.tanh(left + right).T, left

    before, after = cancelled(f, *arrays((7, 5), (7, 6), (3, 5), (3, 6)))
    assert transposed(after) == transposed(before)
