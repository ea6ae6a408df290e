"""Norms over any axes, softmaxes, statistics."""

from __future__ import annotations

from random import Random

import jax
import jax.numpy as jnp

from benchmarks.grammar.program import Array, Extra, Shape, Step, axes_of, expand, wide

SOFTMAXES = ("softmax", "log_softmax", "by hand", "minus lse")


def norm(random: Random, shape: Shape, dtype: str) -> Step | None:
    """Layer, batch or instance norm, by which axes it goes over; gains along the others or the same ones."""
    axes = axes_of(random, len(shape))
    kind = random.choice(("mean and variance", "rms", "l2", "deviation"))
    own = tuple(d for d in range(len(shape)) if d not in axes) or axes
    along = random.choice((axes, own[-1:]))
    extras = tuple(Extra(tuple(shape[d] for d in along), dtype) for _ in range(random.choice((0, 1, 2))))

    def apply(x: Array, *weights: Array) -> Array:
        y = wide(x)
        if kind in ("mean and variance", "deviation"):
            y = y - y.mean(axes, keepdims=True)
        square = (y * y).sum(axes, keepdims=True) if kind == "l2" else (y * y).mean(axes, keepdims=True)
        y = y / (jnp.sqrt(square) + 1e-3) if kind in ("l2", "deviation") else y * jax.lax.rsqrt(square + 1e-5)
        for n, v in enumerate(weights):
            v = expand(v, along, x.ndim)
            y = y * v if n == 0 else y + v
        return y.astype(x.dtype)

    return Step(f"norm by {kind} over {axes}, {len(extras)} weights along {along}", apply, extras)


def group_norm(random: Random, shape: Shape, dtype: str) -> Step | None:
    """Of channels last or first."""
    last = random.random() < 0.5
    channels = shape[-1] if last else shape[1] if len(shape) > 2 else 0
    sizes = [g for g in range(2, 65) if channels and channels % g == 0 and channels > g]
    if len(shape) < 3 or not sizes:
        return None
    groups = random.choice(sizes)

    def apply(x: Array, gain: Array, bias: Array) -> Array:
        y = wide(x)
        y = jnp.moveaxis(y, 1, -1) if not last else y
        parts = y.reshape(y.shape[0], -1, groups, channels // groups)
        mean = parts.mean((1, 3), keepdims=True)
        var = parts.var((1, 3), keepdims=True)
        y = ((parts - mean) * jax.lax.rsqrt(var + 1e-5)).reshape(y.shape) * gain + bias
        return (y if last else jnp.moveaxis(y, -1, 1)).astype(x.dtype)

    where = "last" if last else "first"
    return Step(f"group norm of {groups} groups, channels {where}", apply, (Extra((channels,), dtype),) * 2)


def softmax(random: Random, shape: Shape, dtype: str) -> Step | None:
    """Over one axis, in one of the ways that people write it; some behind a mask."""
    hidden = random.random() < 0.3
    axis, way = (
        random.randrange(len(shape)),
        random.choice(SOFTMAXES),
    )

    def apply(x: Array, *seen: Array) -> Array:
        y = wide(x)
        if hidden:
            y = jnp.where(seen[0], y, -1e9)
        if way == "by hand":
            e = jnp.exp(y - y.max(axis, keepdims=True))
            y = e / e.sum(axis, keepdims=True)
        elif way == "minus lse":
            y = y - jax.scipy.special.logsumexp(y, axis, keepdims=True)
        else:
            y = getattr(jax.nn, way)(y, axis)
        return y.astype(x.dtype)

    extras = (Extra(shape, "bool"),) if hidden else ()
    return Step(f"{way} over {axis}{', masked' if hidden else ''}", apply, extras)


def statistics(random: Random, shape: Shape, dtype: str) -> Step | None:
    """A reduction that is put back."""
    axes = axes_of(random, len(shape))
    name = random.choice(("mean", "sum", "max", "min", "std", "var", "prod"))

    def apply(x: Array) -> Array:
        y = wide(x)
        y = jnp.tanh(y) if name == "prod" else y
        return (y - getattr(jnp, name)(y, axes, keepdims=True)).astype(x.dtype)

    return Step(f"less its {name} over {axes}", apply)


MAKERS = (norm, norm, group_norm, softmax, statistics)
