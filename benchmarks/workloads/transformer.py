"""One training step of a pre-norm transformer block with dropout and AdamW; parameters donated."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array

from benchmarks.workload import Problem, Workload, normal, sizes
from benchmarks.workloads.norms import layer_norm
from benchmarks.workloads.optimizers import warmed_up

Weights = dict[str, Array]


def dropout(key: Array, x: Array, rate: float = 0.1) -> Array:
    return jnp.where(jax.random.bernoulli(key, 1 - rate, x.shape), x / (1 - rate), 0.0)


def attention(weights: Weights, x: Array, heads: int) -> Array:
    """Causal self-attention of (batch, length, width)."""
    batch, length, width = x.shape
    qkv = (x @ weights["qkv"] + weights["qkv_bias"]).reshape(batch, length, 3, heads, width // heads)
    query, key, value = qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) * (width // heads) ** -0.5
    causal = jnp.tril(jnp.ones((length, length), bool))
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(jnp.where(causal, scores, -1e9)), value)
    return mixed.reshape(x.shape) @ weights["out"] + weights["out_bias"]


def block(weights: Weights, x: Array, key: Array, heads: int) -> Array:
    first, second = jax.random.split(key)
    normed = layer_norm(x, weights["norm1_scale"], weights["norm1_bias"])
    x = x + dropout(first, attention(weights, normed, heads))
    normed = layer_norm(x, weights["norm2_scale"], weights["norm2_bias"])
    hidden = jax.nn.gelu(normed @ weights["up"] + weights["up_bias"])
    return x + dropout(second, hidden @ weights["down"] + weights["down_bias"])


def initial_weights(width: int) -> Weights:
    matrices = {
        "qkv": (width, 3 * width),
        "out": (width, width),
        "up": (width, 4 * width),
        "down": (4 * width, width),
    }
    weights = {n: normal(s, i, s[0] ** -0.5) for i, (n, s) in enumerate(matrices.items())}
    biases = {f"{n}_bias": normal(s[1:], 10 + i, 0.1) for i, (n, s) in enumerate(matrices.items())}
    scales = {f"norm{i}_scale": 1 + normal((width,), 20 + i, 0.1) for i in (1, 2)}
    return weights | biases | scales | {f"norm{i}_bias": normal((width,), 30 + i, 0.1) for i in (1, 2)}


def training_step(batch: int, length: int, width: int, heads: int) -> Problem:
    adamw = optax.adamw(1e-3)

    def loss(weights: Weights, x: Array, target: Array, key: Array) -> Array:
        return jnp.mean(jnp.square(block(weights, x, key, heads) - target))

    def step(weights: Weights, state: Any, x: Array, target: Array, key: Array) -> tuple[Weights, Any, Array]:
        value, gradients = jax.value_and_grad(loss)(weights, x, target, key)
        updates, state = adamw.update(gradients, state, weights)
        return optax.apply_updates(weights, updates), state, value

    weights, shape = initial_weights(width), (batch, length, width)
    state = warmed_up(adamw, weights)
    args = (weights, state, normal(shape, 50), normal(shape, 51), jnp.array([0, 42], jnp.uint32))
    return Problem(step, args, donate=(0, 1), carry=lambda args, output: (*output[:2], *args[2:]))


SHAPES = sizes((2, 32, 32, 4), (4, 128, 192, 4), (4, 256, 512, 8))

WORKLOADS = (Workload("transformer_block_step", training_step, SHAPES),)
