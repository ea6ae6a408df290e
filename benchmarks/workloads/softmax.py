"""Softmax, log-softmax, and the masked softmax of attention scores."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

from benchmarks import twins
from benchmarks.workload import Problem, Workload, normal, sizes


def softmax(*shape: int) -> Problem:
    return Problem(partial(jax.nn.softmax, axis=-1), (normal(shape, scale=3),))


def log_softmax(*shape: int) -> Problem:
    return Problem(partial(jax.nn.log_softmax, axis=-1), (normal(shape, scale=3),))


def masked_softmax(batch: int, heads: int, length: int) -> Problem:
    """Causal attention weights with padded keys."""

    def weights(scores: Array, lengths: Array) -> Array:
        causal = jnp.tril(jnp.ones((length, length), bool))
        valid = jnp.arange(length) < lengths[:, None, None, None]
        return jax.nn.softmax(jnp.where(causal & valid, scores * 0.125, -1e9), axis=-1)

    lengths = jnp.arange(batch, dtype=jnp.int32) % (length // 2) + length // 2
    return Problem(weights, (normal((batch, heads, length, length), scale=8), lengths))


ROWS = sizes((128, 768), (4096, 1024), (32768, 1024))

WORKLOADS = (
    Workload("softmax", softmax, ROWS, twins.softmax),
    Workload("log_softmax", log_softmax, ROWS, twins.log_softmax),
    Workload("masked_softmax", masked_softmax, sizes((1, 4, 128), (2, 12, 256), (8, 16, 512))),
)
