"""The element-wise glue of a transformer: GELU or dropout + residual + layer norm, rope, SwiGLU."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from benchmarks import twins
from benchmarks.workload import Problem, Workload, normal, sizes
from benchmarks.workloads.norms import layer_norm


def gelu_bias_residual_layer_norm(rows: int, features: int) -> Problem:
    def block(x: Array, bias: Array, residual: Array, gamma: Array, beta: Array) -> Array:
        return layer_norm(jax.nn.gelu(x + bias) + residual, gamma, beta)

    shape, vector = (rows, features), (features,)
    args = (normal(shape), normal(vector, 1), normal(shape, 2), normal(vector, 3), normal(vector, 4))
    return Problem(block, args)


def dropout_residual_layer_norm(rows: int, features: int) -> Problem:
    def block(key: Array, x: Array, residual: Array, gamma: Array, beta: Array) -> Array:
        keep = jax.random.bernoulli(key, 0.9, x.shape)
        return layer_norm(jnp.where(keep, x / 0.9, 0.0) + residual, gamma, beta)

    shape, vector = (rows, features), (features,)
    key = jnp.array([1, 2], jnp.uint32)
    return Problem(block, (key, normal(shape), normal(shape, 2), normal(vector, 3), normal(vector, 4)))


def rotate(x: Array, cosine: Array, sine: Array) -> Array:
    """Rotary position embedding of (batch, length, heads, width)."""
    first, second = jnp.split(x, 2, axis=-1)
    rotated = (first * cosine - second * sine, second * cosine + first * sine)
    return jnp.concatenate(rotated, axis=-1).astype(x.dtype)


def rope(batch: int, length: int, heads: int, width: int, dtype: object = jnp.float32) -> Problem:
    frequencies = 10000.0 ** (-jnp.arange(0, width, 2) / width)
    angles = (jnp.arange(length)[:, None] * frequencies)[:, None, :]
    x = normal((batch, length, heads, width), dtype=dtype)
    return Problem(rotate, (x, jnp.cos(angles).astype(x.dtype), jnp.sin(angles).astype(x.dtype)))


def swiglu_grad(rows: int, features: int) -> Problem:
    def swiglu(gate: Array, up: Array) -> Array:
        return jax.nn.silu(gate) * up

    def pullback(gate: Array, up: Array, upstream: Array) -> tuple[Array, ...]:
        return tuple(jax.vjp(swiglu, gate, up)[1](upstream))

    shape = (rows, features)
    return Problem(pullback, (normal(shape), normal(shape, 1), normal(shape, 2)))


ROWS = sizes((128, 768), (2048, 768), (32768, 768))
HEADS = sizes((1, 128, 8, 64), (2, 1024, 8, 64), (8, 2048, 16, 64))

WORKLOADS = (
    Workload(
        "gelu_bias_residual_layer_norm",
        gelu_bias_residual_layer_norm,
        ROWS,
        twins.gelu_bias_residual_layer_norm,
    ),
    Workload("dropout_residual_layer_norm", dropout_residual_layer_norm, ROWS),
    Workload("rope", rope, HEADS),
    Workload("swiglu_grad", swiglu_grad, sizes((64, 512), (512, 1024), (8192, 1024))),
)
