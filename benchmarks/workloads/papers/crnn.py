"""CRNN, reading words in images at inference (FS-2021): convolutions, recurrence, greedy CTC decoding.

Batch 8 (FS-2021, Table 1). The paper says no more; the public network takes grey images of 32 x 100
through seven convolutions (64, 128, 256, 256, 512, 512, 512 channels, batch norm after the fifth and the
sixth, four maximum poolings) and two bidirectional LSTMs of 256, and gives 37 symbols at each of 24
positions.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from benchmarks.workloads.papers.layers import (
    EPSILON,
    Shapes,
    both_ways,
    both_ways_shapes,
    convolution,
    dense,
    dense_shapes,
    norm_shapes,
)
from benchmarks.workloads.papers.paper import Draw, Paper, Step, Weights, inference

WIDTHS = (1, 2, 4, 4, 8, 8, 8)  # channels, in units of the first layer's
NORMED = (4, 5)
POOLS = {0: (2, 2), 1: (2, 2), 3: (2, 1), 5: (2, 1)}


def pool(x: Array, window: tuple[int, int]) -> Array:
    """Maximum over 2 x 2 windows, or over 2 x 1."""
    shape = (1, *window, 1)
    pooled: Array = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, shape, shape, "VALID")
    return pooled


def known_norm(weights: Weights, name: str, x: Array) -> Array:
    """Batch norm with statistics from training."""
    scale = weights[f"{name}_scale"] * jax.lax.rsqrt(jnp.square(weights[f"{name}_spread_scale"]) + EPSILON)
    return (x - weights[f"{name}_mean"]) * scale + weights[f"{name}_bias"]


def features(weights: Weights, images: Array) -> Array:
    """(batch, 32, width, 1) -> (positions, batch, channels)"""
    x = images
    for layer in range(len(WIDTHS)):
        padding = "VALID" if layer == len(WIDTHS) - 1 else "SAME"
        x = convolution(x, weights[f"kernel{layer}"], (1, 1), padding) + weights[f"kernel{layer}_bias"]
        if layer in NORMED:
            x = known_norm(weights, f"norm{layer}", x)
        x = jax.nn.relu(x)
        x = pool(x, POOLS[layer]) if layer in POOLS else x
    return jnp.swapaxes(x[:, 0], 0, 1)


def greedy(logits: Array) -> tuple[Array, Array]:
    """(positions, batch, symbols) -> symbols, 0 where blank or repeated, and log probabilities."""
    chances = jax.nn.log_softmax(logits)
    best = jnp.argmax(chances, axis=-1)
    repeated = jnp.concatenate([jnp.zeros_like(best[:1], bool), best[1:] == best[:-1]])
    return jnp.where(repeated, 0, best).T, jnp.sum(jnp.max(chances, axis=-1), axis=0)


def reading(batch: int, height: int, columns: int, channels: int, width: int, symbols: int) -> Step:
    def read(weights: Weights, images: Array) -> tuple[Array, Array]:
        x = features(weights, images)
        x = dense(weights, "between", both_ways(weights, "lower", x))
        return greedy(dense(weights, "symbols", both_ways(weights, "upper", x)))

    shapes: Shapes = {}
    before = 1
    for layer, ratio in enumerate(WIDTHS):
        extent = 2 if layer == len(WIDTHS) - 1 else 3
        after = channels * ratio
        shapes |= {f"kernel{layer}": (extent, extent, before, after), f"kernel{layer}_bias": (after,)}
        before = after
    for layer in NORMED:
        after = channels * WIDTHS[layer]
        shapes |= norm_shapes(f"norm{layer}", after)
        shapes |= {f"norm{layer}_mean": (after,), f"norm{layer}_spread_scale": (after,)}
    shapes |= both_ways_shapes("lower", before, width) | dense_shapes("between", 2 * width, width)
    shapes |= both_ways_shapes("upper", width, width) | dense_shapes("symbols", 2 * width, symbols)

    def inputs(draw: Draw) -> tuple[Array, ...]:
        return (draw.normal(batch, height, columns, 1),)

    return inference(read, shapes, inputs)


PAPERS = (
    Paper(
        "crnn",
        "FS-2021",
        reading,
        {"batch": 8, "height": 32, "columns": 100, "channels": 64, "width": 256, "symbols": 37},
        {"batch": 2, "height": 32, "columns": 12, "channels": 2, "width": 4, "symbols": 5},
    ),
)
