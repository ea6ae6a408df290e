"""Layers that several of the papers' models share, in plain JAX: dense, norms, dropout, attention,
recurrence.

Weights are one flat dict; a layer finds its own by a prefix, and `*_shapes` says which ones it wants.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from benchmarks.workload import Shape
from benchmarks.workloads.papers.paper import Weights

EPSILON = 1e-6
HIDDEN = -1e9
Shapes = dict[str, Shape]


def dense_shapes(name: str, inputs: int, outputs: int) -> Shapes:
    return {name: (inputs, outputs), f"{name}_bias": (outputs,)}


def dense(weights: Weights, name: str, x: Array) -> Array:
    return x @ weights[name] + weights[f"{name}_bias"]


def norm_shapes(name: str, width: int) -> Shapes:
    return {f"{name}_scale": (width,), f"{name}_bias": (width,)}


def layer_norm(weights: Weights, name: str, x: Array) -> Array:
    return _normalised(weights, name, x, (-1,))


def batch_norm(weights: Weights, name: str, x: Array) -> Array:
    """Of the last dimension's channels, with the statistics of this batch."""
    return _normalised(weights, name, x, tuple(range(x.ndim - 1)))


def _normalised(weights: Weights, name: str, x: Array, axes: tuple[int, ...]) -> Array:
    centred = x - jnp.mean(x, axis=axes, keepdims=True)
    variance = jnp.mean(jnp.square(centred), axis=axes, keepdims=True)
    return centred * jax.lax.rsqrt(variance + EPSILON) * weights[f"{name}_scale"] + weights[f"{name}_bias"]


def dropout(key: Array | None, x: Array, rate: float = 0.1) -> Array:
    """Nothing is dropped without a key."""
    if key is None:
        return x
    return jnp.where(jax.random.bernoulli(key, 1 - rate, x.shape), x / (1 - rate), 0.0)


def cross_entropy(logits: Array, labels: Array) -> Array:
    """Per position: minus the log probability of the label."""
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], axis=-1)
    return -chosen[..., 0]


def attention_shapes(name: str, width: int) -> Shapes:
    shapes: Shapes = {}
    for part in ("query", "key", "value", "out"):
        shapes |= dense_shapes(f"{name}_{part}", width, width)
    return shapes


def split_heads(x: Array, heads: int) -> Array:
    """(batch, length, width) -> (batch, length, heads, width of a head)"""
    return x.reshape(*x.shape[:-1], heads, x.shape[-1] // heads)


def mix(query: Array, key: Array, value: Array, mask: Array, drop: Array | None = None) -> Array:
    """Softmax attention of (batch, length, heads, width); `mask` hides where it is False."""
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) * query.shape[-1] ** -0.5
    shares = dropout(drop, jax.nn.softmax(jnp.where(mask, scores, HIDDEN)))
    return jnp.einsum("bhqk,bkhd->bqhd", shares, value)


def attention(
    weights: Weights, name: str, x: Array, memory: Array, mask: Array, heads: int, drop: Array | None = None
) -> Array:
    """Of x over `memory`, both (batch, length, width); mask broadcasts to (batch, heads, length, length)."""
    query = split_heads(dense(weights, f"{name}_query", x), heads)
    key, value = (split_heads(dense(weights, f"{name}_{part}", memory), heads) for part in ("key", "value"))
    return dense(weights, f"{name}_out", mix(query, key, value, mask, drop).reshape(x.shape))


def lstm_shapes(name: str, inputs: int, width: int) -> Shapes:
    return {
        f"{name}_input": (inputs, 4 * width),
        f"{name}_hidden": (width, 4 * width),
        f"{name}_bias": (4 * width,),
    }


def lstm_gates(gates: Array, memory: Array) -> tuple[Array, Array]:
    """The next hidden state and memory cell."""
    i, f, g, o = jnp.split(gates, 4, axis=-1)
    memory = jax.nn.sigmoid(f + 1.0) * memory + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jax.nn.sigmoid(o) * jnp.tanh(memory), memory


def lstm(weights: Weights, name: str, xs: Array, *, reverse: bool = False) -> Array:
    """(length, batch, inputs) -> states (length, batch, width); inputs are projected before the loop."""
    projected = xs @ weights[f"{name}_input"] + weights[f"{name}_bias"]

    def cell(state: tuple[Array, Array], x: Array) -> tuple[tuple[Array, Array], Array]:
        hidden, memory = lstm_gates(x + state[0] @ weights[f"{name}_hidden"], state[1])
        return (hidden, memory), hidden

    zero = jnp.zeros((xs.shape[1], weights[f"{name}_hidden"].shape[0]))
    return jax.lax.scan(cell, (zero, zero), projected, reverse=reverse)[1]


def both_ways_shapes(name: str, inputs: int, width: int) -> Shapes:
    return lstm_shapes(f"{name}_forward", inputs, width) | lstm_shapes(f"{name}_backward", inputs, width)


def both_ways(weights: Weights, name: str, xs: Array) -> Array:
    """A bidirectional LSTM: (length, batch, inputs) -> (length, batch, 2 width)."""
    forward = lstm(weights, f"{name}_forward", xs)
    return jnp.concatenate([forward, lstm(weights, f"{name}_backward", xs, reverse=True)], axis=-1)


def gru_shapes(name: str, inputs: int, width: int) -> Shapes:
    return {
        f"{name}_input": (inputs, 3 * width),
        f"{name}_hidden": (width, 3 * width),
        f"{name}_bias": (3 * width,),
    }


def gru_gates(from_input: Array, from_hidden: Array, hidden: Array, attended: Array | None = None) -> Array:
    """The next hidden state. `attended` scales the update gate (DIEN's AUGRU), (batch, 1)."""
    reset_x, update_x, new_x = jnp.split(from_input, 3, axis=-1)
    reset_h, update_h, new_h = jnp.split(from_hidden, 3, axis=-1)
    reset, update = jax.nn.sigmoid(reset_x + reset_h), jax.nn.sigmoid(update_x + update_h)
    update = update if attended is None else attended * update
    return (1.0 - update) * hidden + update * jnp.tanh(new_x + reset * new_h)


def convolution(x: Array, kernel: Array, strides: tuple[int, int], padding: str = "SAME") -> Array:
    """(batch, height, width, channels) with a (height, width, inputs, outputs) kernel."""
    return jax.lax.conv_general_dilated(
        x, kernel, strides, padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
