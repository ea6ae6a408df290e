"""What ends a program: losses, and steps of optimizers."""

from __future__ import annotations

from random import Random

import jax
import jax.numpy as jnp

from benchmarks.grammar.program import Array, Extra, Shape, Step, wide


def cross_entropy(random: Random, shape: Shape, dtype: str) -> Step | None:
    way = random.choice(("labels", "smoothed", "z", "focal"))
    extra = Extra(shape[:-1], "int32", shape[-1])

    def apply(x: Array, i: Array) -> Array:
        y = wide(x)
        lse = jax.scipy.special.logsumexp(y, -1)
        loss = lse - jnp.take_along_axis(y, i[..., None], -1)[..., 0]
        if way == "smoothed":
            loss = 0.9 * loss + 0.1 * (lse - y.mean(-1))
        elif way == "z":
            loss = loss + 1e-4 * lse**2
        elif way == "focal":
            loss = (1 - jnp.exp(-loss)) ** 2 * loss
        return loss.mean()

    return Step(f"cross entropy, {way}", apply, (extra,))


def distance(random: Random, shape: Shape, dtype: str) -> Step | None:
    """To another array: squared, absolute, Huber's, the angle between rows, a divergence."""
    way = random.choice(("squared", "absolute", "huber", "cosine", "kl", "bce"))

    def apply(x: Array, y: Array) -> Array:
        a, b = wide(x), wide(y)
        d = a - b
        match way:
            case "squared":
                return jnp.mean(d**2)
            case "absolute":
                return jnp.mean(jnp.abs(d))
            case "huber":
                return jnp.mean(jnp.where(jnp.abs(d) < 1, 0.5 * d**2, jnp.abs(d) - 0.5))
            case "cosine":
                norms = jnp.sqrt((a * a).sum(-1) * (b * b).sum(-1) + 1e-6)
                return jnp.mean(1 - (a * b).sum(-1) / norms)
            case "kl":
                p = jax.nn.log_softmax(a)
                return jnp.mean((jnp.exp(p) * (p - jax.nn.log_softmax(b))).sum(-1))
            case _:
                target = jax.nn.sigmoid(b)
                return jnp.mean(jnp.logaddexp(0, a) - a * target)

    return Step(f"distance, {way}", apply, (Extra(shape, dtype),))


def optimizer(random: Random, shape: Shape, dtype: str) -> Step | None:
    """The array is a gradient; weights and moments come out new, beside each other."""
    kind = random.choice(("momentum", "adam", "lion", "rms"))
    clipped = random.random() < 0.4

    def apply(x: Array, weights: Array, first: Array, second: Array) -> Array:
        g = wide(x)
        if clipped:
            g = g * jnp.minimum(1.0, 1 / (jnp.sqrt((g * g).sum()) + 1e-6))
        m, v = 0.9 * first + 0.1 * g, 0.99 * jnp.abs(second) + 0.01 * g * g
        match kind:
            case "momentum":
                update = 0.9 * first + g
            case "adam":
                update = m / (jnp.sqrt(v) + 1e-8) + 0.01 * weights
            case "lion":
                update = jnp.sign(m)
            case _:
                update = g * jax.lax.rsqrt(v + 1e-8)
        return jnp.stack([weights - 0.001 * update, m, v])

    extras = (Extra(shape),) * 3
    return Step(f"a step of {kind}{', clipped' if clipped else ''}", apply, extras)


def summed(random: Random, shape: Shape, dtype: str) -> Step | None:
    """Over some axes, or all."""
    axes = random.choice((None, 0, -1, *range(len(shape))))
    name = random.choice(("sum", "mean", "max", "argmax", "std"))
    return Step(f"its {name} over {axes}", lambda x: getattr(jnp, name)(wide(x), axes))


MAKERS = (cross_entropy, cross_entropy, distance, distance, optimizer, summed)
