"""Cumulative ops and recurrences with scalar, vector and matrix carries; what is scattered."""

from __future__ import annotations

from random import Random

import jax
import jax.numpy as jnp

from benchmarks.grammar.program import Array, Extra, Shape, Step

LONGEST = 4096  # turns of a loop


def cumulative(random: Random, shape: Shape, dtype: str) -> Step | None:
    axis, name = random.randrange(len(shape)), random.choice(("cumsum", "cumprod", "cummax", "cumlogsumexp"))
    reverse = random.random() < 0.3

    def apply(x: Array) -> Array:
        return getattr(jax.lax, name)(jnp.tanh(x), axis, reverse)

    return Step(f"{name} along {axis}{', reversed' if reverse else ''}", apply)


def recurrence(random: Random, shape: Shape, dtype: str) -> Step | None:
    """Along the first dimension, elementwise."""
    kind, unroll = random.choice(("linear", "discounted", "gate", "ema")), random.choice((1, 1, 1, 4))
    if not 1 < shape[0] <= LONGEST or len(shape) < 2:
        return None

    def turn(carry: Array, x: Array) -> tuple[Array, Array]:
        match kind:
            case "linear":
                carry = jax.nn.sigmoid(x) * carry + x
            case "discounted":
                carry = x + 0.99 * carry
            case "gate":
                gate = jax.nn.sigmoid(carry + x)
                carry = gate * carry + (1 - gate) * jnp.tanh(x)
            case _:
                carry = 0.9 * carry + 0.1 * x
        return carry, carry

    def apply(x: Array) -> Array:
        return jax.lax.scan(turn, jnp.zeros_like(x[0]), x, reverse=kind == "discounted", unroll=unroll)[1]

    return Step(f"recurrence along 0: {kind}{f', unroll={unroll}' if unroll > 1 else ''}", apply)


def cell(random: Random, shape: Shape, dtype: str) -> Step | None:
    """A recurrence with products: its state times a matrix, and often what comes in times another."""
    if len(shape) != 3 or not 1 < shape[0] <= 512 or shape[-1] > 512:
        return None
    gates, layout = random.choice((1, 3)), random.choice(("columns", "lines", "mapped"))
    width, matrices, scales = shape[-1], random.choice((1, 2)), random.choice((False, True))

    def times(rows: Array, weights: Array) -> Array:
        match layout:
            case "columns":
                return rows @ weights
            case "lines":
                return rows @ weights.T
            case _:
                return jax.vmap(lambda row: weights @ row)(rows)

    def scaled(weights: Array) -> Array:
        return weights * jnp.asarray(width**-0.5, weights.dtype)

    def turn(weights: Array, h: Array, x: Array) -> tuple[Array, Array]:
        weights = scaled(weights) if scales else weights
        z = times(h, weights[0])
        if matrices > 1:
            z += times(x, weights[1])
        if gates == 1:
            h = jnp.tanh(z + x)
        else:
            update, reset, new = jnp.split(z, 3, -1)
            gate = jax.nn.sigmoid(update + x)
            h = gate * h + (1 - gate) * jnp.tanh(new * jax.nn.sigmoid(reset) + x)
        return h, h

    def apply(x: Array, weights: Array) -> Array:
        weights = weights if scales else scaled(weights)
        return jax.lax.scan(lambda h, v: turn(weights, h, v), jnp.zeros_like(x[0]), x)[1]

    each = (width, gates * width) if layout == "columns" else (gates * width, width)
    name = f"cell of {gates} gates, {matrices} matrices{', scaled in turns' if scales else ''}, {layout}"
    return Step(name, apply, (Extra((matrices, *each), dtype),))


def scattered(random: Random, shape: Shape, dtype: str) -> Step | None:
    """Rows added up by a number of each, and given back."""
    segments = max(1, shape[0] // random.choice((2, 10, 100)))
    extra = Extra(shape[:1], "int32", segments)

    def apply(x: Array, i: Array) -> Array:
        return jax.ops.segment_sum(x, i, segments)[i] - x

    return Step(f"less the sums of {segments} segments", apply, (extra,))


MAKERS = (cumulative, recurrence, cell, scattered)
