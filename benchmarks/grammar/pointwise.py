"""Elementwise steps: activations, gated units, masks, quantization, random numbers."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import jax
import jax.numpy as jnp

from benchmarks.grammar.program import Array, Extra, Shape, Step, wide

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    **{
        name: getattr(jax.nn, name) for name in ("gelu", "silu", "relu", "elu", "softplus", "sigmoid", "selu")
    },
    **{name: getattr(jax.nn, name) for name in ("leaky_relu", "hard_swish", "mish", "celu", "log_sigmoid")},
    **{name: getattr(jnp, name) for name in ("tanh", "sin", "exp2", "square", "abs")},
    "exact gelu": lambda x: jax.nn.gelu(x, approximate=False),
    "snake": lambda x: x + jnp.sin(3 * x) ** 2 / 3,
    "cubic": lambda x: 0.5 * x * (1 + jnp.tanh(0.79 * (x + 0.0447 * x**3))),
}


def activation(random: Random, shape: Shape, dtype: str) -> Step | None:
    name = random.choice(sorted(ACTIVATIONS))
    return Step(name, lambda x: ACTIVATIONS[name](x).astype(x.dtype))


def affine(random: Random, shape: Shape, dtype: str) -> Step | None:
    """Scale and shift along one axis, or by a whole array."""
    axis = random.randrange(len(shape))
    along = tuple(n if d == axis else 1 for d, n in enumerate(shape))
    extras = Extra(random.choice((along, shape)), dtype), Extra(along, dtype)
    return Step(f"scaled and shifted along {axis}", lambda x, a, b: x * a + b, extras)


def gated(random: Random, shape: Shape, dtype: str) -> Step | None:
    """One half times what another is made of."""
    if shape[-1] % 2:
        return None
    name = random.choice(("silu", "gelu", "sigmoid", "relu", "tanh"))
    f = ACTIVATIONS[name]
    halves = shape[-1] // 2
    evens = random.random() < 0.3

    def apply(x: Array) -> Array:
        a, b = (x[..., ::2], x[..., 1::2]) if evens else (x[..., :halves], x[..., halves:])
        return a * f(b).astype(x.dtype)

    return Step(f"gated by {name}{', even and odd' if evens else ''}", apply)


def masked(random: Random, shape: Shape, dtype: str) -> Step | None:
    kind = random.choice(("given", "lengths", "causal", "clip", "threshold"))
    if kind == "causal" and len(shape) < 2:
        return None
    extras = {"given": (Extra(shape, "bool"),), "lengths": (Extra(shape[:1], "int32", max(2, shape[-1])),)}

    def apply(x: Array, *given: Array) -> Array:
        if kind == "clip":
            return jnp.clip(x, -1, 1)
        if kind == "given":
            keep = given[0]
        elif kind == "lengths":
            lengths = given[0].reshape(-1, *(1 for _ in x.shape[1:]))
            keep = jnp.arange(x.shape[-1]) < lengths
        elif kind == "causal":
            keep = jnp.arange(x.shape[-2])[:, None] >= jnp.arange(x.shape[-1])
        else:
            keep = x > x.mean()
        return jnp.where(keep, x, jnp.zeros((), x.dtype))

    return Step(f"masked: {kind}", apply, extras.get(kind, ()))


def quantized(random: Random, shape: Shape, dtype: str) -> Step | None:
    """To int8 and back, each row, column or tensor with a scale of its own."""
    axis = random.choice((None, *range(len(shape))))

    def apply(x: Array) -> Array:
        y = wide(x)
        scale = jnp.abs(y).max(axis, keepdims=True) / 127 + 1e-6
        q = jnp.clip(jnp.round(y / scale), -127, 127).astype(jnp.int8)
        return (q.astype(jnp.float32) * scale).astype(x.dtype)

    return Step(f"int8 and back, scales over {axis}", apply)


def noise(random: Random, shape: Shape, dtype: str) -> Step | None:
    kind = random.choice(("dropout", "normal", "uniform"))

    def apply(x: Array, key: Array) -> Array:
        if kind == "dropout":
            return jnp.where(jax.random.bernoulli(key, 0.9, x.shape), x / 0.9, 0)
        made = getattr(jax.random, kind)(key, x.shape, jnp.float32)
        return (x + 0.1 * made).astype(x.dtype)

    return Step(f"{kind} noise", apply, (Extra((2,), "uint32"),))


def residual(random: Random, shape: Shape, dtype: str) -> Step | None:
    """With what else there is of that shape."""
    scale = random.choice((1.0, 0.5))
    return Step("with a residual", lambda x, r: x + jnp.asarray(scale, x.dtype) * r, (Extra(shape, dtype),))


MAKERS = (
    activation,
    activation,
    activation,
    affine,
    affine,
    gated,
    masked,
    masked,
    quantized,
    noise,
    residual,
)
