"""BERT-base and the Transformer of FS-2021 (Table 1).

BERT: batch 32 (Table 1). The paper says no more; the public BERT-base has 12 layers of width 768, 12
heads, 3,072 inside, 30,522 word pieces; sequences of 128 with 20 masked positions are the first phase of
its own training. Training is masked words and next sentence, AdamW with clipping by the global norm and a
linear schedule; inference ends in a classifier of the first position.

Transformer: a batch of 4,096 tokens (Table 1), here 64 sentences of 64; the public base model has 6 and 6
layers of width 512, 8 heads, 2,048 inside, one table of 32,000 words for both sides and the output.
Training with label smoothing of 0.1 and Adam under the inverse square root schedule.
"""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import optax
from jax import Array

from benchmarks.workload import Arguments
from benchmarks.workloads.papers.layers import (
    Shapes,
    attention,
    attention_shapes,
    cross_entropy,
    dense,
    dense_shapes,
    dropout,
    layer_norm,
    norm_shapes,
)
from benchmarks.workloads.papers.paper import Draw, Paper, Step, Weights, inference, training

Keys = Iterator[Array | None]


def keys(key: Array | None, count: int) -> Keys:
    """`count` keys from one, or no key for ever."""
    return iter([None] * count if key is None else jax.random.split(key, count))


def layer_shapes(name: str, width: int, inside: int, *, crosses: bool = False) -> Shapes:
    shapes = attention_shapes(f"{name}_self", width) | norm_shapes(f"{name}_self_norm", width)
    if crosses:
        shapes |= attention_shapes(f"{name}_cross", width) | norm_shapes(f"{name}_cross_norm", width)
    shapes |= dense_shapes(f"{name}_up", width, inside) | dense_shapes(f"{name}_down", inside, width)
    return shapes | norm_shapes(f"{name}_norm", width)


def attend(
    weights: Weights, name: str, x: Array, memory: Array, mask: Array, heads: int, drop: Keys
) -> Array:
    """Attention, dropout, residual, norm."""
    mixed = attention(weights, name, x, memory, mask, heads, next(drop))
    return layer_norm(weights, f"{name}_norm", x + dropout(next(drop), mixed))


def feed_forward(weights: Weights, name: str, x: Array, drop: Keys) -> Array:
    hidden = jax.nn.gelu(dense(weights, f"{name}_up", x))
    return layer_norm(
        weights, f"{name}_norm", x + dropout(next(drop), dense(weights, f"{name}_down", hidden))
    )


def bert_shapes(width: int, layers: int, inside: int, words: int, length: int) -> Shapes:
    shapes: Shapes = {"word_table": (words, width), "position_table": (length, width)}
    shapes |= {"segment_table": (2, width)} | norm_shapes("embedding", width)
    for layer in range(layers):
        shapes |= layer_shapes(f"layer{layer}", width, inside)
    return shapes | dense_shapes("pooler", width, width) | dense_shapes("classifier", width, 2)


def bert(
    weights: Weights,
    words: Array,
    segments: Array,
    lengths: Array,
    key: Array | None,
    layers: int,
    heads: int,
) -> Array:
    """Hidden states (batch, length, width) of token numbers (batch, length)."""
    drop = keys(key, 1 + 3 * layers)
    x = weights["word_table"][words] + weights["position_table"] + weights["segment_table"][segments]
    x = dropout(next(drop), layer_norm(weights, "embedding", x))
    mask = (jnp.arange(words.shape[1]) < lengths[:, None])[:, None, None]
    for layer in range(layers):
        x = attend(weights, f"layer{layer}_self", x, x, mask, heads, drop)
        x = feed_forward(weights, f"layer{layer}", x, drop)
    return x


def first_position(weights: Weights, hidden: Array) -> Array:
    pooled = jnp.tanh(dense(weights, "pooler", hidden[:, 0]))
    return dense(weights, "classifier", pooled)


def bert_inference(
    batch: int, length: int, width: int, layers: int, heads: int, inside: int, words: int
) -> Step:
    def classify(weights: Weights, tokens: Array, segments: Array, lengths: Array) -> Array:
        hidden = bert(weights, tokens, segments, lengths, None, layers, heads)
        return jax.nn.softmax(first_position(weights, hidden))

    shapes = bert_shapes(width, layers, inside, words, length)
    return inference(classify, shapes, lambda draw: sentences(draw, words, batch, length))


def sentences(draw: Draw, words: int, batch: int, length: int) -> Arguments:
    """Token numbers, segments, lengths."""
    tokens, segments = draw.integers(words, batch, length), draw.integers(2, batch, length)
    return tokens, segments, 1 + draw.integers(length, batch)


def bert_training(
    batch: int, length: int, width: int, layers: int, heads: int, inside: int, words: int, masked: int
) -> Step:
    def loss(weights: Weights, *inputs: Array) -> Array:
        tokens, segments, lengths, places, missing, follows, key = inputs
        hidden = bert(weights, tokens, segments, lengths, key, layers, heads)
        chosen = jnp.take_along_axis(hidden, places[..., None], axis=1)
        chosen = layer_norm(weights, "guess_norm", jax.nn.gelu(dense(weights, "guess", chosen)))
        logits = chosen @ weights["word_table"].T + weights["word_bias"]
        return jnp.mean(cross_entropy(logits, missing)) + jnp.mean(
            cross_entropy(first_position(weights, hidden), follows)
        )

    def inputs(draw: Draw) -> Arguments:
        places, missing = draw.integers(length, batch, masked), draw.integers(words, batch, masked)
        return (
            *sentences(draw, words, batch, length),
            *(places, missing, draw.integers(2, batch), draw.key()),
        )

    shapes = bert_shapes(width, layers, inside, words, length) | dense_shapes("guess", width, width)
    shapes |= norm_shapes("guess_norm", width) | {"word_bias": (words,)}
    schedule = optax.warmup_cosine_decay_schedule(0.0, 1e-4, 10_000, 1_000_000)
    adamw = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=0.01))
    return training(loss, adamw, shapes, inputs)


def transformer_shapes(width: int, layers: int, inside: int, words: int) -> Shapes:
    shapes: Shapes = {"word_table": (words, width)}
    for layer in range(layers):
        shapes |= layer_shapes(f"encoder{layer}", width, inside)
        shapes |= layer_shapes(f"decoder{layer}", width, inside, crosses=True)
    return shapes


def positions(length: int, width: int) -> Array:
    """Sines and cosines (length, width)."""
    rates = jnp.exp(jnp.arange(width // 2) * (-jnp.log(10_000.0) / (width // 2)))
    angles = jnp.arange(length)[:, None] * rates
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)


def embed(weights: Weights, tokens: Array) -> Array:
    width = weights["word_table"].shape[1]
    embedded: Array = weights["word_table"][tokens] * width**0.5 + positions(tokens.shape[1], width)
    return embedded


def encode(weights: Weights, source: Array, mask: Array, layers: int, heads: int, drop: Keys) -> Array:
    x = dropout(next(drop), embed(weights, source))
    for layer in range(layers):
        x = attend(weights, f"encoder{layer}_self", x, x, mask, heads, drop)
        x = feed_forward(weights, f"encoder{layer}", x, drop)
    return x


def decode(
    weights: Weights, target: Array, memory: Array, mask: Array, layers: int, heads: int, drop: Keys
) -> Array:
    """Logits (batch, length, words) for the token after each one of `target`."""
    x = dropout(next(drop), embed(weights, target))
    causal = jnp.tril(jnp.ones((target.shape[1], target.shape[1]), bool))
    for layer in range(layers):
        x = attend(weights, f"decoder{layer}_self", x, x, causal, heads, drop)
        x = attend(weights, f"decoder{layer}_cross", x, memory, mask, heads, drop)
        x = feed_forward(weights, f"decoder{layer}", x, drop)
    return x @ weights["word_table"].T


def smoothed(logits: Array, labels: Array, smoothing: float = 0.1) -> Array:
    """Cross entropy against the label with 1 - smoothing and all words with the rest."""
    log_chances = jax.nn.log_softmax(logits)
    chosen = jnp.take_along_axis(log_chances, labels[..., None], axis=-1)[..., 0]
    return -(1 - smoothing) * chosen - smoothing * jnp.mean(log_chances, axis=-1)


def transformer_training(
    batch: int, length: int, width: int, layers: int, heads: int, inside: int, words: int
) -> Step:
    def loss(weights: Weights, source: Array, target: Array, lengths: Array, key: Array) -> Array:
        drop = keys(key, 2 + 8 * layers)
        mask = (jnp.arange(length) < lengths[:, None])[:, None, None]
        memory = encode(weights, source, mask, layers, heads, drop)
        logits = decode(weights, target[:, :-1], memory, mask, layers, heads, drop)
        counts = (target[:, 1:] != 0).astype(jnp.float32)
        return jnp.sum(smoothed(logits, target[:, 1:]) * counts) / jnp.sum(counts)

    def inputs(draw: Draw) -> Arguments:
        source, target = draw.integers(words, batch, length), draw.integers(words, batch, length + 1)
        return source, target, 1 + draw.integers(length, batch), draw.key()

    def rate(step: Array) -> Array:
        found: Array = width**-0.5 * jnp.minimum((step + 1) ** -0.5, (step + 1) * 4000**-1.5)
        return found

    shapes = transformer_shapes(width, layers, inside, words)
    return training(loss, optax.adam(rate, b1=0.9, b2=0.98, eps=1e-9), shapes, inputs)


BERT = {"batch": 32, "length": 128, "width": 768, "layers": 12, "heads": 12, "inside": 3072, "words": 30_522}
SMALL = {"batch": 2, "length": 6, "width": 8, "layers": 1, "heads": 2, "inside": 16, "words": 20}
BASE = {"batch": 64, "length": 64, "width": 512, "layers": 6, "heads": 8, "inside": 2048, "words": 32_000}

PAPERS = (
    Paper("bert_train", "FS-2021", bert_training, BERT | {"masked": 20}, SMALL | {"masked": 3}),
    Paper("bert_infer", "FS-2021", bert_inference, BERT, SMALL),
    Paper("transformer_train", "FS-2021", transformer_training, BASE, SMALL),
)
