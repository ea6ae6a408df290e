"""LSTM and GRU layers: one cell under `jax.lax.scan`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from benchmarks.workload import Problem, Workload, normal, sizes

Weights = dict[str, Array]


def lstm(weights: Weights, xs: Array) -> Array:
    """(length, batch, width) -> hidden states (length, batch, width)."""

    def cell(state: tuple[Array, Array], x: Array) -> tuple[tuple[Array, Array], Array]:
        hidden, memory = state
        gates = x @ weights["input"] + hidden @ weights["hidden"] + weights["bias"]
        i, f, g, o = jnp.split(gates, 4, axis=-1)
        memory = jax.nn.sigmoid(f + 1.0) * memory + jax.nn.sigmoid(i) * jnp.tanh(g)
        hidden = jax.nn.sigmoid(o) * jnp.tanh(memory)
        return (hidden, memory), hidden

    zero = jnp.zeros(xs.shape[1:])
    return jax.lax.scan(cell, (zero, zero), xs)[1]


def gru(weights: Weights, xs: Array) -> Array:
    """(length, batch, width) -> hidden states (length, batch, width)."""

    def cell(hidden: Array, x: Array) -> tuple[Array, Array]:
        from_input = x @ weights["input"] + weights["bias"]
        from_hidden = hidden @ weights["hidden"]
        reset_x, update_x, new_x = jnp.split(from_input, 3, axis=-1)
        reset_h, update_h, new_h = jnp.split(from_hidden, 3, axis=-1)
        reset, update = jax.nn.sigmoid(reset_x + reset_h), jax.nn.sigmoid(update_x + update_h)
        hidden = (1.0 - update) * jnp.tanh(new_x + reset * new_h) + update * hidden
        return hidden, hidden

    return jax.lax.scan(cell, jnp.zeros(xs.shape[1:]), xs)[1]


def layer(cell: Any, gates: int, length: int, batch: int, width: int) -> Problem:
    weights = {
        "input": normal((width, gates * width), 1, width**-0.5),
        "hidden": normal((width, gates * width), 2, width**-0.5),
        "bias": normal((gates * width,), 3, 0.1),
    }
    return Problem(cell, (weights, normal((length, batch, width))))


SHAPES = sizes((32, 16, 64), (64, 256, 64), (128, 1024, 64))

WORKLOADS = (
    Workload("lstm_scan", lambda *shape: layer(lstm, 4, *shape), SHAPES),
    Workload("gru_scan", lambda *shape: layer(gru, 3, *shape), SHAPES),
)
