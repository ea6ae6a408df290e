"""Steps on rows of a few elements: points, quaternions, boxes, colours."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

import jax
import jax.numpy as jnp

from benchmarks.grammar.program import Array, Shape, Step

FEWEST, MOST = 2, 8  # elements of a row
PAIRS = 700  # points of which all pairs are made
Op = Callable[[Array], Array]


def normalised(x: Array) -> Array:
    return x / jnp.sqrt(jnp.sum(x * x, -1, keepdims=True) + jnp.asarray(1e-3, x.dtype))


def crossed(x: Array) -> Array:
    left, right = jnp.roll(x, 1, -1), jnp.roll(x, -1, -1)
    return left * jnp.tanh(right) - right * jnp.tanh(left)


def relative(x: Array) -> Array:
    return x - x[..., :1]


def in_a_box(x: Array) -> Array:
    low, high = x.min(-1, keepdims=True), x.max(-1, keepdims=True)
    return (x - low) / (high - low + 1)


def shares(x: Array) -> Array:
    return jax.nn.softmax(x, -1)


def mirrored(x: Array) -> Array:
    return jnp.where(x[..., :1] > 0, x, -x[..., ::-1])


def summed(x: Array) -> Array:
    return jnp.cumsum(x, -1)


def unstacked(x: Array) -> Array:
    """By components, joined in another order."""
    first, *rest = jnp.moveaxis(x, -1, 0)
    return jnp.stack([*(r * first for r in rest), jnp.cos(first)], -1)


def turned(x: Array) -> Array:
    """By a rotation of its first two."""
    a, b = x[..., 0], x[..., 1]
    made = jnp.stack([a * jnp.cos(b) - b * jnp.sin(b), a * jnp.sin(b) + b * jnp.cos(b)], -1)
    return jnp.concatenate([made, x[..., 2:]], -1)


def longer(x: Array) -> Array:
    return jnp.concatenate([x, jnp.ones_like(x[..., :1]), x[..., :1] * x[..., -1:]], -1)


def projected(x: Array) -> Array:
    return x[..., :-1] / (2 + jnp.sin(x[..., -1:]))


def halved(x: Array) -> Array:
    half = x.shape[-1] // 2
    return x[..., :half] * x[..., half : 2 * half]


def squared(x: Array) -> Array:
    """Rows of an outer product, added up."""
    return (x[..., None] * x[..., None, :]).sum(-2)


def padded(x: Array) -> Array:
    return jnp.pad(x, [(0, 0)] * (x.ndim - 1) + [(1, 0)])


def selected(x: Array) -> Array:
    return x[..., jnp.asarray([0, x.shape[-1] - 1, *range(x.shape[-1] - 1)])]


OPS: tuple[Op, ...] = (
    *(normalised, crossed, relative, in_a_box, shares, mirrored, summed, unstacked),
    *(turned, longer, projected, halved, squared, padded, selected),
)


def points(random: Random, shape: Shape, dtype: str) -> Step | None:
    """A few ops on rows of a few elements, which the array is cut into."""
    size = random.randint(FEWEST, MOST)
    count = math.prod(shape) // size
    whole = 1 < shape[-1] <= MOST
    if count < 1:
        return None
    ops = [random.choice(OPS) for _ in range(random.randint(1, 5))]

    def apply(x: Array) -> Array:
        x = x if whole else x.reshape(-1)[: count * size].reshape(count, size)
        for op in ops:
            x = op(x) if FEWEST <= x.shape[-1] <= MOST else x
        return x

    names = ", ".join(op.__name__ for op in ops)
    return Step(f"{shape[-1] if whole else size} a row: {names}", apply)


def pairs(random: Random, shape: Shape, dtype: str) -> Step | None:
    """Of each point what comes of all others."""
    size = random.randint(FEWEST, MOST)
    count = min(math.prod(shape) // size, PAIRS)
    if count < FEWEST:
        return None
    kind = random.choice((jnp.min, jnp.mean, jax.nn.logsumexp))
    back = random.random() < 0.5

    def apply(x: Array) -> Array:
        x = x.reshape(-1)[: count * size].reshape(count, size)
        apart = x[:, None] - x[None]
        squares = (apart * apart).sum(-1)
        return (jnp.exp(-squares)[..., None] * apart).mean(1) if back else kind(squares, 1)

    return Step(f"pairs of {count} points of {size}, {'forces' if back else kind.__name__}", apply)


MAKERS = (points, points, points, pairs)
