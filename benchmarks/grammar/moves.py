"""Steps that move elements: look-ups, one-hots, layouts, windows."""

from __future__ import annotations

from random import Random

import jax
import jax.numpy as jnp

from benchmarks.grammar.program import Array, Extra, Shape, Step, odd


def looked_up(random: Random, shape: Shape, dtype: str) -> Step | None:
    """Rows of a table, or of the array itself."""
    axis = random.randrange(len(shape))
    if random.random() < 0.5:
        count = odd(random, 2 * shape[axis])
        extra = Extra((count,), "int32", shape[axis])
        return Step(f"{count} of it along {axis}", lambda x, i: jnp.take(x, i, axis), (extra,))
    rows = odd(random, 30000)
    extras = Extra((rows, shape[-1]), dtype), Extra(shape[:-1], "int32", rows)
    return Step(f"plus rows of a table of {rows}", lambda x, t, i: x + t[i], extras)


def along(random: Random, shape: Shape, dtype: str) -> Step | None:
    """One element of each row, taken from all of it."""
    extra = Extra((*shape[:-1], 1), "int32", shape[-1])
    return Step("less one of its row", lambda x, i: x - jnp.take_along_axis(x, i, -1), (extra,))


def one_hot(random: Random, shape: Shape, dtype: str) -> Step | None:
    extra = Extra(shape[:-1], "int32", shape[-1])
    return Step("less a one-hot", lambda x, i: x - jax.nn.one_hot(i, x.shape[-1], dtype=x.dtype), (extra,))


def turned(random: Random, shape: Shape, dtype: str) -> Step | None:
    order = [*range(len(shape))]
    random.shuffle(order)
    return Step(f"transposed to {tuple(order)}", lambda x: jnp.transpose(x, order) * 2)


def reordered(random: Random, shape: Shape, dtype: str) -> Step | None:
    axis = random.randrange(len(shape))
    n = shape[axis]
    kind = random.choice(("flip", "roll", "concatenate", "pad", "slice", "stride", "difference", "repeat"))
    by = random.randrange(max(1, n))

    def apply(x: Array) -> Array:
        match kind:
            case "flip":
                return x + jnp.flip(x, axis)
            case "roll":
                return x - jnp.roll(x, by, axis)
            case "concatenate":
                return jnp.concatenate([x, jnp.square(x)], axis)
            case "pad":
                width = [(1, 2) if d == axis else (0, 0) for d in range(x.ndim)]
                return jnp.pad(x, width) * 2
            case "slice":
                return jax.lax.slice_in_dim(x, min(by, n - 1), n, axis=axis) + 1
            case "stride":
                return jax.lax.slice_in_dim(x, 0, n, 2, axis) + 1
            case "difference":
                return jnp.diff(x, axis=axis, prepend=0)
            case _:
                return jnp.repeat(x, 2, axis) + 1

    return Step(f"{kind} along {axis}", apply)


def rotary(random: Random, shape: Shape, dtype: str) -> Step | None:
    """Pairs rotated by where they are."""
    if len(shape) < 2 or shape[-1] % 2:
        return None
    halves = random.random() < 0.5

    def apply(x: Array) -> Array:
        t = jnp.arange(x.shape[-2], dtype=jnp.float32)[:, None]
        angle = t * 10000.0 ** (-jnp.arange(x.shape[-1] // 2) / (x.shape[-1] // 2))
        c, s = jnp.cos(angle).astype(x.dtype), jnp.sin(angle).astype(x.dtype)
        if halves:
            a, b = jnp.split(x, 2, -1)
            return jnp.concatenate([a * c - b * s, a * s + b * c], -1)
        a, b = x[..., ::2], x[..., 1::2]
        return jnp.stack([a * c - b * s, a * s + b * c], -1).reshape(x.shape)

    return Step(f"rotary, {'halves' if halves else 'neighbours'}", apply)


def pooled(random: Random, shape: Shape, dtype: str) -> Step | None:
    """Windows over one axis or two."""
    axes = [d for d in range(len(shape)) if shape[d] >= 4][: random.choice((1, 2))]
    if not axes:
        return None
    size, stride = random.choice(((2, 2), (3, 1), (3, 2)))
    kind = random.choice(("max", "sum"))
    window, strides = (tuple(n if d in axes else 1 for d in range(len(shape))) for n in (size, stride))

    def apply(x: Array) -> Array:
        f, init = (jax.lax.max, -jnp.inf) if kind == "max" else (jax.lax.add, 0.0)
        return jax.lax.reduce_window(x, jnp.asarray(init, x.dtype), f, window, strides, "VALID")

    return Step(f"{kind} of windows of {size} by {stride} over {tuple(axes)}", apply)


MAKERS = (looked_up, along, one_hot, turned, reordered, reordered, rotary, pooled)
