"""Programs with large intermediates of which rows can be made apart, drawn at random, with their arguments.

losses of a linear layer's logits       several ways to pick labels, weights, smoothing, caps, z-loss, masks
attention, with its gradient            one or several heads, masks, dropout of a mask that is an argument
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

Array = Any
Program = tuple[Callable[..., Any], list[np.ndarray]]


def program(seed: int) -> Program:
    """A function and its arguments."""
    random, numbers = Random(seed), np.random.default_rng(seed)
    return (_loss if random.random() < 0.6 else _attention)(random, numbers)


def _by_axis(z: Array, y: Array) -> Array:
    return jnp.take_along_axis(z, y[..., None], -1)[..., 0]


def _one_hot(z: Array, y: Array) -> Array:
    return jnp.sum(z * jax.nn.one_hot(y, z.shape[-1], dtype=z.dtype), -1)


def _compared(z: Array, y: Array) -> Array:
    return jnp.sum(jnp.where(jnp.arange(z.shape[-1]) == y[..., None], z, 0), -1)


def _indexed(z: Array, y: Array) -> Array:
    if z.ndim == 2:
        return z[jnp.arange(z.shape[0]), y]
    return z[jnp.arange(z.shape[0])[:, None], jnp.arange(z.shape[1])[None], y]


PICKS = (_by_axis, _one_hot, _compared, _indexed)


def _loss(random: Random, numbers: np.random.Generator) -> Program:
    lead = random.choice(((96,), (64,), (97,), (4, 16), (3, 31)))
    width, classes = random.choice((3, 5)), random.choice((33, 40, 64))
    dtype = random.choice((jnp.float32, jnp.float32, jnp.bfloat16))
    pick, cap = random.choice(PICKS), random.choice((None, None, 3.0))
    smooth, z_loss = random.choice((0.0, 0.1)), random.choice((0.0, 1e-2))
    bias, tied, turned = (random.random() < 0.3 for _ in range(3))
    kind = random.choice(("value", "gradient", "gradient", "both"))

    def loss(x: Array, w: Array, b: Array, y: Array, weights: Array) -> Array:
        z = jnp.einsum("...h,vh->...v" if turned else "...h,hv->...v", x, w)
        z = (z + b if bias else z).astype(jnp.float32)
        z = cap * jnp.tanh(z / cap) if cap else z
        total = jax.nn.logsumexp(z, -1)
        each = total - pick(z, y) + z_loss * total**2
        each = (1 - smooth) * each + smooth * (total - z.mean(-1)) if smooth else each
        found = (each * weights).sum() / weights.sum()
        return found + 1e-3 * (w.astype(jnp.float32) ** 2).sum() if tied else found

    x, w = numbers.standard_normal((*lead, width)), numbers.standard_normal((width, classes))
    args = [
        *(np.asarray(a, dtype) for a in (x, w.T if turned else w, numbers.standard_normal(classes))),
        numbers.integers(0, classes, lead).astype(np.int32),
        numbers.uniform(0.0, 1.0, lead).astype(np.float32),
    ]
    argnums = (0, 1, 2)
    made = {"value": loss, "gradient": jax.grad(loss, argnums), "both": jax.value_and_grad(loss, argnums)}
    return made[kind], args


def _attention(random: Random, numbers: np.random.Generator) -> Program:
    """Of which the gradient computes the scores again, or not: then they are wanted as a whole."""
    lead = random.choice(((), (3,), (2, 2)))
    queries, keys = random.choice((24, 31)), random.choice((20, 31))
    width = random.choice((4, 6))
    mask = random.choice(("none", "causal", "bias", "keys", "kept"))
    again, wide = random.random() < 0.7, random.random() < 0.5

    def attend(q: Array, k: Array, v: Array, m: Array) -> Array:
        s = jnp.einsum("...qd,...kd->...qk", q, k) / math.sqrt(width)
        if mask == "causal":
            s = jnp.where(jnp.arange(queries)[:, None] >= jnp.arange(keys)[None], s, -1e9)
        s = s + m if mask == "bias" else jnp.where(m[..., :1, :] > 0, s, -1e9) if mask == "keys" else s
        p = jax.nn.softmax(s, -1)
        p = jnp.where(m > -1, p * 1.2, 0) if mask == "kept" else p
        return jnp.einsum("...qk,...kd->...qd", p, v)

    attend = jax.checkpoint(attend) if again else attend  # type: ignore[no-untyped-call]

    def loss(q: Array, k: Array, v: Array, m: Array) -> Array:
        out = attend(q, k, v, m)
        return (out**2).sum() if wide else (out * jnp.cos(jnp.arange(width))).sum()

    shapes = (*lead, queries, width), (*lead, keys, width), (*lead, keys, width), (*lead, queries, keys)
    args = [numbers.standard_normal(shape).astype(np.float32) for shape in shapes]
    return jax.value_and_grad(loss, (0, 1, 2)), args
