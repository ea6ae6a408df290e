"""The composition matrix's functions of x (4, 16) and w (16,)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

X = np.random.default_rng(0).standard_normal((4, 16)).astype(np.float32)
W = np.random.default_rng(1).standard_normal(16).astype(np.float32)


def norm(x: jax.Array, w: jax.Array) -> jax.Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred * lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * w


def softmax(x: jax.Array, w: jax.Array) -> jax.Array:
    return jax.nn.softmax(x * w)


def cross_entropy(x: jax.Array, w: jax.Array) -> jax.Array:
    labels = jnp.arange(x.shape[0]) * 3 % x.shape[1]
    return -jnp.take_along_axis(jax.nn.log_softmax(x + w), labels[:, None], 1)[:, 0]


def with_matmul(x: jax.Array, w: jax.Array) -> jax.Array:
    return jax.nn.gelu((x * w) @ jnp.ones((16, 8)) * 0.1 + 1)


def with_scan(x: jax.Array, w: jax.Array) -> jax.Array:
    return lax.scan(lambda carry, row: (jnp.tanh(carry * w + row), jnp.exp(-(carry**2))), w, x)[1]


def with_fori(x: jax.Array, w: jax.Array) -> jax.Array:
    return lax.fori_loop(0, 3, lambda i, y: jnp.tanh(y * w) + i, x)


def with_cond(x: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.exp(-lax.cond(w[0] > 0, lambda y: jnp.sin(y) * w, lambda y: y * jnp.cos(w), x))


def with_remat(x: jax.Array, w: jax.Array) -> jax.Array:
    return jnp.tanh(jax.checkpoint(lambda y: jnp.sin(jnp.sin(y) * w))(x)) * 2


@jax.custom_vjp
def _clipped(x: jax.Array) -> jax.Array:
    return jnp.exp(jnp.minimum(x, 1.0))


_clipped.defvjp(lambda x: (_clipped(x), x), lambda x, ct: (jnp.clip(ct * jnp.exp(x), -1, 1),))


def with_custom_vjp(x: jax.Array, w: jax.Array) -> jax.Array:
    return _clipped(x * w) + x


@jax.custom_jvp
def _log1pexp(x: jax.Array) -> jax.Array:
    return jnp.log1p(jnp.exp(x))


_log1pexp.defjvp(lambda x, t: (_log1pexp(x[0]), t[0] * jax.nn.sigmoid(x[0])))


def with_custom_jvp(x: jax.Array, w: jax.Array) -> jax.Array:
    return _log1pexp(x * w) * x


def with_jit(x: jax.Array, w: jax.Array) -> jax.Array:
    return jax.jit(jnp.tanh)(x) * jax.jit(lambda v: jnp.exp(-v))(w)


def dropout(x: jax.Array, w: jax.Array) -> jax.Array:
    keep = jax.random.bernoulli(jax.random.key(3), 0.8, x.shape)
    return jnp.where(keep, x / 0.8, 0) * w


def old_keys(x: jax.Array, w: jax.Array) -> jax.Array:
    return x + w * jax.random.uniform(jax.random.PRNGKey(3), x.shape)


def several(x: jax.Array, w: jax.Array) -> Any:
    total = jnp.tanh(x).sum(0)
    return {"sum": total * w, "none": None, "same": x, "parts": (total, [x.max(1)])}


PLAIN = (norm, softmax, cross_entropy, with_matmul, dropout, old_keys, several)
NESTED = (with_scan, with_fori, with_cond, with_remat, with_custom_vjp, with_custom_jvp, with_jit)
