"""Chains of two products drawn at random, and how close to float64 a kernel of one is to be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests.tf32 import as_tf32

Array = Any
Program = tuple[Callable[..., Any], list[np.ndarray]]


def _softmax(s: Array) -> Array:
    return jax.nn.softmax(s, -1)


def _hand_written(s: Array) -> Array:
    e = jnp.exp(s - jnp.max(s, -1, keepdims=True))
    return e / jnp.sum(e, -1, keepdims=True)


def _squared(s: Array) -> Array:
    return jnp.square(jax.nn.relu(s)) / s.shape[-1]


def _normalised(s: Array) -> Array:
    return s * jax.lax.rsqrt(jnp.mean(s * s, -1, keepdims=True) + 1e-5)


BETWEEN = (_softmax, _softmax, _hand_written, _squared, _normalised, jax.nn.gelu, jnp.tanh, lambda s: s)


def _masks(random: Random, rows: int, columns: int) -> Callable[[Array], Array]:
    """One of those that attention has."""
    far = random.choice((-1e9, -jnp.inf, float(np.finfo(np.float32).min)))
    i, j = np.arange(rows)[:, None], np.arange(columns)[None]
    window = random.randint(1, columns)
    return random.choice(
        (
            lambda s: s,
            lambda s: jnp.where(jnp.arange(rows)[:, None] >= jnp.arange(columns)[None], s, far),
            lambda s: jnp.where(jnp.asarray(abs(i - j) < window), s, -1e9),
            lambda s: s - 0.1 * jnp.abs(jnp.arange(rows)[:, None] - jnp.arange(columns)[None]),
        )
    )


Kinds = Sequence[tuple[Any, Any]]
FLOATS: Kinds = ((jnp.float32, None), (jnp.bfloat16, None), (jnp.bfloat16, jnp.float32))
"""Types of operands, and of the first product's result where it is another."""
HALVES: Kinds = tuple((half, wide) for half in (jnp.float16, jnp.bfloat16) for wide in (None, jnp.float32))


COLUMNS = (7, 32, 70, 128, 300)  # of what is between two products


ROWS = (8, 24, 60, 64, 128, 195)


def program(
    seed: int, kinds: Kinds = FLOATS, widths: Sequence[int] = COLUMNS, lengths: Sequence[int] = ROWS
) -> Program:
    """Products with batches of any number of dimensions, what is between their rows, and arguments."""
    random, numbers = Random(seed), np.random.default_rng(seed)
    lead = random.choice(((), (2,), (2, 3), (1, 5)))
    rows, columns = random.choice(lengths), random.choice(widths)
    depth, width = random.choice((8, 16, 33, 64)), random.choice((5, 16, 40, 64))
    between, masked = random.choice(BETWEEN), _masks(random, rows, columns)
    turned, scale = random.random() < 0.5, random.choice((1.0, 0.125))
    kind, wide = random.choice(kinds)

    def f(q: Array, k: Array, v: Array, bias: Array) -> Array:
        what = "...qd,...kd->...qk" if turned else "...qd,...dk->...qk"
        s = jnp.einsum(what, q, k, preferred_element_type=wide) * scale
        return jnp.einsum("...qk,...kh->...qh", between(masked(s + bias)).astype(v.dtype), v)

    right = (columns, depth) if turned else (depth, columns)
    shapes = (*lead, rows, depth), (*lead, *right), (*lead, columns, width), (columns,)
    return f, [numbers.standard_normal(shape).astype(kind) for shape in shapes]


def close(
    found: Sequence[Array], f: Callable[..., Any], args: Sequence[np.ndarray], tf32: bool = False
) -> None:
    """As float64 has it; of bf16, and tf32, at most twice as far from it as XLA is, or by a unit."""
    with jax.enable_x64(True):
        exact = [np.float64(x) for x in jax.tree.leaves(jax.jit(f)(*(np.float64(a) for a in args)))]
    theirs = jax.tree.leaves((as_tf32 if tf32 else jax.jit)(f)(*args))
    for a, b, c in zip(found, theirs, exact, strict=True):
        assert a.dtype == b.dtype
        largest = float(np.nanmax(np.abs(c), initial=1.0))
        if a.dtype == np.float32 and not tf32:
            np.testing.assert_allclose(a, c, rtol=2e-5, atol=2e-5 * largest)
        else:
            np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
            error, allowed = (float(np.nanmax(np.abs(np.float64(x) - c), initial=0.0)) for x in (a, b))
            assert error <= 2 * allowed + largest / (2048 if tf32 else 256)
