"""Chains of more than two products: layers behind one another, gates, heads, residuals, gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jstitch
from jstitch.codegen.kernel_ir import Nest, Store
from jstitch.codegen.map_kernel import map_lanes, map_nests
from jstitch.ir.expr import Ref
from jstitch.ir.index import const
from jstitch.passes.base.product_side import PRODUCT
from jstitch.passes.fuse.find_chains import MOST_PRODUCTS, find_chains
from jstitch.passes.lower.check_kernel import check_kernel
from jstitch.passes.lower.lower_kernel import lower_kernel
from jstitch.passes.schedule.kernel_passes import schedule_kernel
from jstitch.passes.schedule.tile_products import tile_products
from tests.contexts import CPU_PROFILE, on
from tests.passes.test_own_columns import graph_of

Array = Any
OFF = jstitch.CompileOptions(tune="off", strict=True, verify=True)


def _normed(x: Array) -> Array:
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5)


ACTIVATIONS = (jax.nn.relu, jnp.tanh, jax.nn.gelu, jax.nn.silu, _normed, lambda x: x)


def network(seed: int) -> tuple[Callable[..., Any], list[np.ndarray]]:
    """Dense layers, some with biases, gates or residuals, one or two heads; values, or gradients."""
    random, numbers = Random(seed), np.random.default_rng(seed)
    rows, width = random.choice((12, 48, 64, 100, 197)), random.choice((3, 8, 17, 32, 64))
    layers, shapes = [], [(rows, width)]
    for _ in range(random.randint(1, 5)):
        wide = width if random.random() < 0.4 else random.choice((1, 5, 16, 40, 96))
        layers.append(
            (random.choice(ACTIVATIONS), random.choice(("plain", "bias", "gate", "residual")), wide)
        )
        shapes += [(width, wide), (width, wide) if layers[-1][1] == "gate" else (wide,)]
        width = wide
    heads = [(width, random.choice((1, 7, 16))) for _ in range(random.randint(1, 2))]

    def f(x: Array, *weights: Array) -> Any:
        for n, (act, kind, _) in enumerate(layers):
            first, second = weights[2 * n : 2 * n + 2]
            y = x @ first + (second if kind == "bias" else 0.0)
            y = act(y) * (x @ second) if kind == "gate" else act(y)
            x = x + y if kind == "residual" and x.shape == y.shape else y
        return tuple(x @ head for head in weights[2 * len(layers) :])

    def gradient(*args: Array) -> Any:
        return jax.grad(lambda *args: sum(jnp.sum(jnp.sin(o)) for o in f(*args)), range(len(args)))(*args)

    args = [numbers.standard_normal(s).astype(np.float32) * s[0] ** -0.5 for s in (*shapes, *heads)]
    return gradient if random.random() < 0.4 else f, args


def close(found: Sequence[Array], f: Callable[..., Any], args: Sequence[np.ndarray]) -> None:
    """At most twice as far from what float64 has as `jax.jit` is, but for a few units."""
    with jax.enable_x64(True):
        exact = [np.asarray(x) for x in jax.tree.leaves(jax.jit(f)(*(np.float64(a) for a in args)))]
    for ours, theirs, best in zip(found, jax.tree.leaves(jax.jit(f)(*args)), exact, strict=True):
        error, allowed = (np.abs(np.float64(x) - best).max() for x in (ours, theirs))
        assert error <= 2 * allowed + 1e-5 * max(1.0, np.abs(best).max())


@pytest.mark.parametrize(
    "seed", [*range(10), *(pytest.param(n, marks=pytest.mark.slow) for n in range(10, 24))]
)
def test_drawn_networks(seed: int) -> None:
    """Every kernel is right to the check of kernels, and the whole on this machine."""
    f, args = network(seed)
    context = on(CPU_PROFILE, tune="off")
    for pattern in find_chains(graph_of(f, args, context), context).patterns:
        what = pattern.ops, pattern.inputs, pattern.outputs
        kernel = schedule_kernel(lower_kernel("chain", *what, context.profile), context)
        assert check_kernel(kernel) == ()
        assert kernel.products == sum(op.name == PRODUCT for op in pattern.ops) <= MOST_PRODUCTS
    close(jax.tree.leaves(jstitch.jit(f, options=OFF)(*args)), f, args)


def _layers(x: Array, *weights: Array) -> Array:
    for w in weights:
        x = jnp.tanh(x @ w)
    return x


def _heads(x: Array, up: Array, mean: Array, width: Array) -> Any:
    h = jax.nn.gelu(x @ up)
    return h @ mean, jnp.exp(h @ width)


def _gated(x: Array, gate: Array, up: Array, down: Array) -> Array:
    return (jax.nn.silu(x @ gate) * (x @ up)) @ down


@pytest.mark.parametrize(
    ("f", "shapes", "products"),
    [
        (_layers, [(256, 32), (32, 64), (64, 64), (64, 64), (64, 8)], 4),
        (_layers, [(256, 32), *[(32, 32)] * (MOST_PRODUCTS + 1)], MOST_PRODUCTS),
        (_heads, [(256, 32), (32, 64), (64, 16), (64, 16)], 3),
        (_gated, [(256, 32), (32, 64), (32, 64), (64, 32)], 3),
    ],
)
def test_all_products_of_a_chain_are_one_kernel(
    f: Callable[..., Any], shapes: Sequence[tuple[int, int]], products: int
) -> None:
    context = on(CPU_PROFILE, tune="off")
    args = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    first, *_ = find_chains(graph_of(f, args, context), context).patterns
    assert sum(op.name == PRODUCT for op in first.ops) == products


def test_what_waits_for_the_chain_outside_is_not_in_it() -> None:
    """The sort lies between: its result comes back to the last product, which no kernel could wait for."""

    def f(x: Array, a: Array, b: Array, c: Array) -> Array:
        h = jnp.tanh(x @ a)
        y = h @ b
        return (y + jnp.sort(y, axis=0)) @ c

    context = on(CPU_PROFILE, tune="off")
    shapes = (64, 32), (32, 48), (48, 48), (48, 16)
    args = [np.random.default_rng(0).standard_normal(s).astype(np.float32) for s in shapes]
    (pattern,) = find_chains(graph_of(f, args, context), context).patterns
    assert sum(op.name == PRODUCT for op in pattern.ops) == 2
    close(jax.tree.leaves(jstitch.jit(f, options=OFF)(*args)), f, args)


def test_a_chain_that_writes_more_than_xla_would_is_none() -> None:
    """Its backward pass reads elementwise results of a layer, which XLA makes again there."""

    def loss(x: Array, up: Array, bias: Array, gate: Array, other: Array) -> Array:
        h = jax.nn.gelu(x @ up + bias)
        return jnp.sum(jnp.sin(jnp.tanh(h @ gate) * (h @ other)))

    shapes = (1024, 8), (8, 128), (128,), (128, 128), (128, 128)
    args = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    graph = graph_of(jax.grad(loss, range(5)), args, on(CPU_PROFILE, without=("swap_products",)))
    assert any("would write" in str(why) for why in find_chains(graph, on(CPU_PROFILE)).refused.values())


def test_sums_with_another_store_beside_them_are_no_product() -> None:
    """What the inner loop stores would be lost."""
    context = on(CPU_PROFILE, tune="off")
    args = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((64, 32), (32, 48), (48, 16))]
    (pattern,) = find_chains(graph_of(_layers, args, context), context).patterns
    kernel = lower_kernel("chain", pattern.ops, pattern.inputs, pattern.outputs, context.profile)

    def with_store(nest: Nest) -> Nest:
        if not nest.accumulators:
            return nest
        store = Store(kernel.results[0], const(0), Ref(nest.accumulators[0].name), 3)
        return replace(nest, body=(*nest.body, store))

    assert tile_products(kernel, context).products == 2
    assert tile_products(map_lanes(kernel, lambda lane: map_nests(lane, with_store)), context).products == 0
