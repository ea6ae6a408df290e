"""Products and convolutions, between which all else lies."""

from __future__ import annotations

from random import Random

import jax
import jax.numpy as jnp

from benchmarks.grammar.program import Array, Extra, Shape, Step, odd

MOST = 1 << 31  # multiplications


def product(random: Random, shape: Shape, dtype: str) -> Step | None:
    """A dense layer."""
    width = odd(random, 2 * shape[-1], 8)
    elements = 1
    for n in shape:
        elements *= n
    if shape[-1] > 4096 or elements * width > MOST:
        return None
    extras = Extra((shape[-1], width), dtype), Extra((width,), dtype)
    scale = shape[-1] ** -0.5
    return Step(f"dense of {width}", lambda x, w, b: x @ (w * jnp.asarray(scale, w.dtype)) + b, extras)


def convolved(random: Random, shape: Shape, dtype: str) -> Step | None:
    """Of images, channels last; some channel by channel."""
    if len(shape) != 4 or shape[-1] > 256 or min(shape[1:3]) < 3:
        return None
    batch, height, columns, channels = shape
    alone = random.random() < 0.4
    width = channels if alone else odd(random, 64, 4)
    if batch * height * columns * 9 * (channels if alone else channels * width) > MOST:
        return None

    def apply(x: Array, w: Array) -> Array:
        return jax.lax.conv_general_dilated(
            x, w * jnp.asarray(0.2, w.dtype), (1, 1), "SAME",
            dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=channels if alone else 1,
        )  # fmt: skip

    extra = Extra((3, 3, 1 if alone else channels, width), dtype)
    return Step(f"convolved to {width} channels{', each alone' if alone else ''}", apply, (extra,))


def attention(random: Random, shape: Shape, dtype: str) -> Step | None:
    """Of itself, one head."""
    if (
        len(shape) != 3
        or shape[-1] > 256
        or shape[1] > 2048
        or shape[0] * shape[1] ** 2 * shape[2] > MOST // 4
    ):
        return None
    causal = random.random() < 0.5

    def apply(x: Array) -> Array:
        s = jnp.einsum("bqd,bkd->bqk", x, x).astype(jnp.float32) * x.shape[-1] ** -0.5
        if causal:
            s = jnp.where(jnp.tril(jnp.ones(s.shape[-2:], bool)), s, -jnp.inf)
        return jnp.einsum("bqk,bkd->bqd", jax.nn.softmax(s).astype(x.dtype), x)

    return Step(f"attention{', causal' if causal else ''}", apply)


MAKERS = (product, product, convolved, attention)
