"""Programs whose XLA:GPU kernels are counted: name, function, arguments as shapes, least bytes.

least: what one kernel must move that reads every argument and writes every result once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array, ShapeDtypeStruct

EPSILON = 1e-5
VOCABULARY = 50257


@dataclass(frozen=True)
class Case:
    """launches: XLA's memory-intensive launches, (at least, at most). moved: XLA's bytes over the least.

    goal: the stitched program's launches and bytes over the least, at most.
    """

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    launches: tuple[int, int]
    moved: tuple[float, float]
    goal: tuple[int, float] | None = None
    donate: tuple[int, ...] = ()

    @property
    def least(self) -> int:
        return nbytes(self.args) + nbytes(jax.eval_shape(self.function, *self.args))


def nbytes(tree: Any) -> int:
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def shape(*dims: int, dtype: Any = jnp.float32) -> Any:
    return ShapeDtypeStruct(dims, jnp.dtype(dtype))  # type: ignore[no-untyped-call]


def layer_norm(x: Array, gamma: Array, beta: Array) -> Array:
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.var(x, axis=-1, keepdims=True) + EPSILON) * gamma + beta


def rms_residual(x: Array, residual: Array, gamma: Array) -> Array:
    y = x + residual
    return y * jax.lax.rsqrt(jnp.mean(jnp.square(y), axis=-1, keepdims=True) + EPSILON) * gamma


def gelu_residual_norm(x: Array, bias: Array, residual: Array, gamma: Array, beta: Array) -> Array:
    return layer_norm(jax.nn.gelu(x + bias) + residual, gamma, beta)


def batch_norm(x: Array, gamma: Array, beta: Array) -> Array:
    mean, variance = jnp.mean(x, axis=0), jnp.var(x, axis=0)
    return (x - mean) * jax.lax.rsqrt(variance + EPSILON) * gamma + beta


def group_norm(x: Array, gamma: Array, beta: Array) -> Array:
    grouped = x.reshape(*x.shape[:2], 32, -1)
    mean = jnp.mean(grouped, axis=(1, 3), keepdims=True)
    variance = jnp.var(grouped, axis=(1, 3), keepdims=True)
    return ((grouped - mean) * jax.lax.rsqrt(variance + EPSILON)).reshape(x.shape) * gamma + beta


def cross_entropy(logits: Array, labels: Array) -> Array:
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=-1)
    return -jnp.mean(chosen)


def smoothed_cross_entropy(logits: Array, labels: Array) -> Array:
    targets = optax.smooth_labels(jax.nn.one_hot(labels, logits.shape[-1]), 0.1)
    return jnp.mean(optax.softmax_cross_entropy(logits, targets))


def quantize_rows(x: Array) -> tuple[Array, Array]:
    scale = jnp.max(jnp.abs(x), axis=-1, keepdims=True) / 127.0
    return jnp.round(x / scale).astype(jnp.int8), scale


def pullback(f: Callable[..., Array], *args: Array) -> tuple[Array, ...]:
    """The gradient of f: the last argument is the upstream gradient."""
    return tuple(jax.vjp(f, *args[:-1])[1](args[-1]))


def optimizer(
    name: str, transform: optax.GradientTransformation, most: tuple[int, int], moved: Any, goal: Any
) -> Case:
    """One step over 190 tensors, in place."""
    params = {f"w{i}": shape(256, 64 + i) if i % 2 else shape(256 + i) for i in range(190)}

    def step(params: Any, state: Any, gradients: Any) -> tuple[Any, Any]:
        updates, state = transform.update(gradients, state, params)
        return optax.apply_updates(params, updates), state

    return Case(
        name, step, (params, jax.eval_shape(transform.init, params), params), most, moved, goal, (0, 1)
    )


def lstm_loss(weights: dict[str, Array], xs: Array) -> Array:
    def cell(state: tuple[Array, Array], x: Array) -> tuple[tuple[Array, Array], Array]:
        hidden, memory = state
        gates = x @ weights["input"] + hidden @ weights["hidden"] + weights["bias"]
        i, f, g, o = jnp.split(gates, 4, axis=-1)
        memory = jax.nn.sigmoid(f + 1.0) * memory + jax.nn.sigmoid(i) * jnp.tanh(g)
        hidden = jax.nn.sigmoid(o) * jnp.tanh(memory)
        return (hidden, memory), hidden

    zero = jnp.zeros(xs.shape[1:])
    return jnp.sum(jax.lax.scan(cell, (zero, zero), xs)[1] ** 2)


ROWS, FEATURES, TOKENS = shape(8192, 1024), shape(1024), shape(512, VOCABULARY)
IMAGES, CHANNELS, LABELS = shape(32, 784, 256), shape(256), shape(512, dtype=jnp.int32)
WEIGHTS = {"input": shape(256, 1024), "hidden": shape(256, 1024), "bias": shape(1024)}

CASES = (
    Case("layer norm", layer_norm, (ROWS, FEATURES, FEATURES), (1, 1), (1.0, 1.01), (1, 1.01)),
    Case(
        "layer norm gradient",
        partial(pullback, layer_norm),
        (ROWS, FEATURES, FEATURES, ROWS),
        (4, 6),
        (2.6, 2.8),
        (2, 1.15),
    ),
    Case("softmax of long rows", jax.nn.softmax, (TOKENS,), (5, 5), (1.9, 2.1), (1, 1.05)),
    Case(
        "cross-entropy gradient",
        jax.value_and_grad(cross_entropy),
        (TOKENS, LABELS),
        (10, 12),
        (3.4, 3.6),
        (2, 1.15),
    ),
    Case(
        "batch norm gradient",
        partial(pullback, batch_norm),
        (shape(100352, 256), CHANNELS, CHANNELS, shape(100352, 256)),
        (10, 17),
        (2.0, 3.1),
        (2, 1.7),
    ),
    Case("rows to int8", quantize_rows, (shape(8192, 4096),), (1, 3), (1.0, 1.9), (1, 1.05)),
)

SLOW = (
    Case(
        "RMS norm and residual gradient",
        partial(pullback, rms_residual),
        (ROWS, ROWS, FEATURES, ROWS),
        (3, 6),
        (1.3, 2.8),
        (2, 1.15),  # dx is the residual's gradient as well: two stores of one kernel
    ),
    Case(
        "GELU, bias, residual, norm gradient",
        partial(pullback, gelu_residual_norm),
        (ROWS, FEATURES, ROWS, FEATURES, FEATURES, ROWS),
        (6, 10),
        (2.5, 4.0),
        (2, 1.2),
    ),
    Case("log-softmax of long rows", jax.nn.log_softmax, (TOKENS,), (5, 5), (1.9, 2.1), (1, 1.05)),
    Case(
        "label-smoothed gradient",
        jax.value_and_grad(smoothed_cross_entropy),
        (TOKENS, LABELS),
        (10, 16),
        (1.9, 4.1),
        (2, 1.15),
    ),
    Case("batch norm", batch_norm, (shape(100352, 256), CHANNELS, CHANNELS), (3, 7), (1.4, 2.1), (2, 1.55)),
    Case("group norm", group_norm, (IMAGES, CHANNELS, CHANNELS), (3, 6), (1.4, 2.1), (2, 1.55)),
    Case(
        "group norm gradient",
        partial(pullback, group_norm),
        (IMAGES, CHANNELS, CHANNELS, IMAGES),
        (8, 14),
        (2.0, 3.1),
        (3, 2.4),
    ),
    Case(
        "softmax over a major axis",
        partial(jax.nn.softmax, axis=0),
        (shape(4096, 4096),),
        (3, 5),
        (1.9, 3.1),
        (2, 1.55),
    ),
    optimizer("AdamW", optax.adamw(1e-3), (190, 200), (0.95, 1.1), (4, 1.05)),
    optimizer("Lion", optax.lion(1e-4), (190, 200), (0.95, 1.1), (4, 1.05)),
    optimizer("SGD with momentum", optax.sgd(1e-2, momentum=0.9), (190, 200), (0.95, 1.1), (4, 1.05)),
    optimizer(
        "clipped AdamW",
        optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3)),
        (300, 500),
        (1.0, 1.3),
        (8, 1.2),
    ),
    optimizer("LAMB", optax.lamb(1e-3), (900, 1400), (1.2, 2.0), (16, 1.75)),
    optimizer("Adafactor", optax.adafactor(1e-3), (1700, 1900), (2.8, 3.0), (60, 2.3)),
    Case("LSTM gradient", jax.grad(lstm_loss), (WEIGHTS, shape(64, 32, 256)), (800, 2400), (1.0, 100.0)),
)
