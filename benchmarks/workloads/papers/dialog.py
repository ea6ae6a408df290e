"""Dialog generation (FS-2019's aiwriter): training of a sequence-to-sequence decoder with attention.

The network is in-house and the largest of the paper (27,428 ops, 398,265 kernels), by its kernel count a
recurrent one. Here a bidirectional LSTM of 512 reads 50 words, and an LSTM of 512 that is fed its
attention over them (additive, as Bahdanau's) answers in 50; 64 dialogs, 20,000 words, dropout on the
outputs, Adam with clipping by the global norm.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
from jax import Array

from benchmarks.workload import Arguments
from benchmarks.workloads.papers.layers import (
    HIDDEN,
    Shapes,
    both_ways,
    both_ways_shapes,
    cross_entropy,
    dense,
    dense_shapes,
    dropout,
    lstm_gates,
    lstm_shapes,
)
from benchmarks.workloads.papers.paper import Draw, Paper, Step, Weights, training


def answer(weights: Weights, words: Array, read: Array, present: Array) -> Array:
    """States with their contexts, (length, batch, 3 width), of embedded words (length, batch, width)."""
    keys = read @ weights["keys"]
    zero = jnp.zeros_like(words[0])

    def cell(
        state: tuple[Array, Array, Array], x: Array
    ) -> tuple[tuple[Array, Array, Array], tuple[Array, Array]]:
        hidden, memory, context = state
        gates = jnp.concatenate([x, context], axis=-1) @ weights["decoder_input"] + weights["decoder_bias"]
        hidden, memory = lstm_gates(gates + hidden @ weights["decoder_hidden"], memory)
        energy = jnp.tanh(keys + hidden @ weights["query"]) @ weights["energy"]
        shares = jax.nn.softmax(jnp.where(present, energy, HIDDEN), axis=0)
        context = jnp.einsum("lb,lbf->bf", shares, read)
        return (hidden, memory, context), (hidden, context)

    start = (zero, zero, jnp.zeros_like(read[0]))
    return jnp.concatenate(jax.lax.scan(cell, start, words)[1], axis=-1)


def dialog(batch: int, length: int, width: int, words: int) -> Step:
    def loss(weights: Weights, said: Array, lengths: Array, answered: Array, key: Array) -> Array:
        read = both_ways(weights, "encoder", weights["word_table"][said.T])
        present = jnp.arange(length)[:, None] < lengths
        states = answer(weights, weights["word_table"][answered.T[:-1]], read, present)
        hidden = dropout(key, jnp.tanh(dense(weights, "hidden", states)))
        labels = answered.T[1:]
        counts = (labels != 0).astype(jnp.float32)
        return jnp.sum(cross_entropy(dense(weights, "words", hidden), labels) * counts) / jnp.sum(counts)

    def inputs(draw: Draw) -> Arguments:
        said, answered = draw.integers(words, batch, length), draw.integers(words, batch, length + 1)
        return said, 1 + draw.integers(length, batch), answered, draw.key()

    shapes: Shapes = {"word_table": (words, width), "keys": (2 * width, width)}
    shapes |= {"query": (width, width), "energy": (width,)}
    shapes |= both_ways_shapes("encoder", width, width) | lstm_shapes("decoder", 3 * width, width)
    shapes |= dense_shapes("hidden", 3 * width, width) | dense_shapes("words", width, words)
    adam = optax.chain(optax.clip_by_global_norm(5.0), optax.adam(1e-3))
    return training(loss, adam, shapes, inputs)


PAPERS = (
    Paper(
        "dialog",
        "FS-2019",
        dialog,
        {"batch": 64, "length": 50, "width": 512, "words": 20_000},
        {"batch": 2, "length": 5, "width": 6, "words": 20},
    ),
)
