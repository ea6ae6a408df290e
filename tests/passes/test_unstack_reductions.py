"""Reductions over a stack of few arrays: op by op, where nothing else is made of the stack."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
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
from jstitch.passes.graph.canonicalize import canonicalize
from jstitch.passes.graph.dce import dce
from jstitch.passes.graph.unstack_reductions import MOST_PARTS, unstack_reductions
from tests.passes.product_graphs import arrays, graph_of

OPTIONS = jstitch.CompileOptions(tune="off", strict=True, verify=True)
X, Y, Z = arrays((6, 5), (6, 5), (6, 5))


def unstacked(f: Callable[..., Any], *args: Any) -> Graph:
    """The graph after the pass, which means the same."""
    before = canonicalize(graph_of(f, args))
    after = check(dce(unstack_reductions(before)), "unstack_reductions")
    for a, b in zip(interpret(before, args), interpret(after, args), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-6, atol=1e-6)
    return after


def count(graph: Graph, name: str) -> int:
    return sum(op.name == f"stablehlo.{name}" for op in graph.walk())


def mean(*parts: Any) -> Any:
    return jnp.stack([jnp.tanh(p) for p in parts]).mean(0)


def length(*parts: Any) -> Any:
    return jnp.linalg.norm(jnp.stack(parts, -1), axis=-1)


def spread(*parts: Any) -> Any:
    return jnp.stack(parts, 1).std(1)


def product(x: Any, y: Any, z: Any) -> Any:
    return jnp.sum(jnp.stack([x, y, z]) * jnp.stack([y, z, x]), 0)


def weighted(x: Any, y: Any, z: Any) -> Any:
    return (jnp.stack([x, y], 0) * z[:2, :1, None]).max(0)


def both(x: Any, y: Any, z: Any) -> Any:
    """Over the parts and another dimension."""
    return jnp.stack([x, y, z], 1).sum((1, 2))


def log_total(*parts: Any) -> Any:
    return jax.nn.logsumexp(jnp.stack(parts), 0)


@pytest.mark.parametrize("f", [mean, length, spread, product, log_total])
def test_no_stack_is_left(f: Callable[..., Any]) -> None:
    after = unstacked(f, X, Y, Z)
    assert (count(after, "concatenate"), count(after, "reduce")) == (0, 0)
    np.testing.assert_allclose(
        jstitch.jit(f, options=OPTIONS)(X, Y, Z), jax.jit(f)(X, Y, Z), rtol=2e-6, atol=1e-6
    )


def test_what_is_not_stacked_is_taken_apart() -> None:
    after = unstacked(weighted, X, Y, np.broadcast_to(X[:, :5], (6, 5)).copy())
    assert (count(after, "concatenate"), count(after, "reduce")) == (0, 0)


def test_other_dimensions_are_reduced_after_the_parts() -> None:
    after = unstacked(both, X, Y, Z)
    (reduce,) = (op for op in after.walk() if op.name == "stablehlo.reduce")
    assert reduce.operands[0].shape == (6, 5)


@pytest.mark.parametrize(
    "f",
    [
        lambda x, y: jax.nn.softmax(jnp.stack([x, y]), 0),
        lambda x, y: (lambda s: (s.sum(0), s))(jnp.stack([x, y])),
        lambda x, y: jnp.stack([x, y]).sum(1),
        lambda x, y: jnp.concatenate([x, y]).sum(0),
        lambda x, y: jnp.stack([x, y]).argmax(0),
        lambda x, y: jnp.stack([x] * (MOST_PARTS + 1)).sum(0) + y,
    ],
    ids=["softmax", "returned", "along another", "of rows", "with places", "many"],
)
def test_stacks_that_are_needed_stay(f: Callable[..., Any]) -> None:
    before = canonicalize(graph_of(f, (X, Y)))
    assert unstack_reductions(before) is before


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_narrow_floats_are_rounded_once(dtype: Any) -> None:
    parts = [jnp.asarray(x, dtype) for x in (X, Y, Z)]
    zero = jnp.zeros((), dtype)

    def f(*parts: Any) -> Any:
        return lax.reduce(jnp.stack(parts), zero, lax.add, (0,))

    exact = sum(np.asarray(p, np.float32) for p in parts)
    found = interpret(unstacked_of(f, parts), [np.asarray(p) for p in parts])[0]
    np.testing.assert_array_equal(np.asarray(found), np.asarray(jnp.asarray(exact, dtype)))


def unstacked_of(f: Callable[..., Any], parts: Any) -> Graph:
    return dce(unstack_reductions(canonicalize(graph_of(f, tuple(parts)))))


def _stacked(f: Callable[..., Any], *parts: Any) -> Any:
    return f(jnp.stack(parts), 0)


def test_signs_and_infinities_are_those_of_the_reduction() -> None:
    special = [np.array(v, np.float32) for v in ([-0.0, np.inf, np.nan, 1], [-0.0, -np.inf, 1, -1])]
    for f in (jnp.sum, jnp.min, jnp.prod):
        g = partial(_stacked, f)
        found, theirs = jstitch.jit(g, options=OPTIONS)(*special), jax.jit(g)(*special)
        np.testing.assert_array_equal(found, theirs)
        np.testing.assert_array_equal(np.signbit(found[:2]), np.signbit(theirs[:2]))


@pytest.mark.parametrize("seed", range(12))
def test_drawn_stacks(seed: int) -> None:
    """Of several shapes, along any dimension, reduced over it and perhaps others, in loops and gradients."""
    random, numbers = Random(seed), np.random.default_rng(seed)
    shape = random.choice([(), (1,), (7,), (3, 4), (2, 1, 5), (0, 3)])
    many, axis = random.randint(2, 6), random.randrange(len(shape) + 1)
    over = tuple(sorted({axis, *random.sample(range(len(shape) + 1), random.randint(0, len(shape)))}))
    kind = random.choice([jnp.sum, jnp.mean, jnp.max, jnp.std, jnp.prod, jnp.any])
    args = [numbers.standard_normal(shape).astype(np.float32) for _ in range(many)]
    if not all(shape) and kind in (jnp.max, jnp.mean, jnp.std):
        kind = jnp.sum

    def f(*parts: Any) -> Any:
        stack = jnp.stack([jnp.sin(p) * k for k, p in enumerate(parts)], axis)
        return kind(stack * (1 + jnp.arange(stack.shape[-1])), over)

    def turned(*parts: Any) -> Any:
        return lax.fori_loop(0, 3, lambda n, c: c + f(*parts).astype(np.float32).sum() * n, 0.0)

    for g in (f, turned, *([jax.grad(turned)] if kind is jnp.sum else [])):
        found, theirs = jstitch.jit(g, options=OPTIONS)(*args), jax.jit(g)(*args)
        np.testing.assert_allclose(found, theirs, rtol=2e-5, atol=2e-5)
