"""Row-wise int8: quantise with the row's largest magnitude, and back."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from benchmarks.workload import Problem, Workload, normal, sizes


def quantize_rows(x: Array) -> tuple[Array, Array]:
    scale = jnp.max(jnp.abs(x), axis=-1, keepdims=True) / 127.0
    return jnp.clip(jnp.round(x / scale), -127, 127).astype(jnp.int8), scale


def dequantize_rows(q: Array, scale: Array) -> Array:
    return q.astype(jnp.float32) * scale


def quantize(*shape: int) -> Problem:
    return Problem(quantize_rows, (normal(shape),))


def dequantize(*shape: int) -> Problem:
    return Problem(dequantize_rows, quantize_rows(normal(shape)))


ROWS = sizes((128, 768), (2560, 1024), (32768, 1024))

WORKLOADS = (
    Workload("quantize_rows", quantize, ROWS),
    Workload("dequantize_rows", dequantize, ROWS),
)
