"""Neural machine translation at inference (FS-2018, FS-2019): the Transformer's encoder, then beam
search.

The papers have an in-house variant of the Transformer and two uses, of which the one where "batch size is
small, and latency is critical" (FS-2018, section 6.1) is this one: one sentence of 32 words, 4 beams, 32
steps. Sizes of the network are the public base model's. Keys and values of earlier positions are kept;
the loop turns a fixed number of times.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from benchmarks.workload import Arguments
from benchmarks.workloads.papers.layers import dense, layer_norm, mix, split_heads
from benchmarks.workloads.papers.paper import Draw, Paper, Step, Weights, inference
from benchmarks.workloads.papers.transformers import encode, keys, positions, transformer_shapes

Memory = tuple[tuple[Array, Array], ...]  # a key and a value for each layer
END = 1


def self_attend(
    weights: Weights, name: str, x: Array, cache: tuple[Array, Array], place: Array, heads: int
) -> tuple[Array, tuple[Array, Array]]:
    """One position of every beam over all earlier ones; its key and value join the cache."""
    query, key, value = (
        split_heads(dense(weights, f"{name}_{part}", x)[:, None], heads) for part in ("query", "key", "value")
    )
    cache = (
        jax.lax.dynamic_update_slice_in_dim(cache[0], key, place, axis=1),
        jax.lax.dynamic_update_slice_in_dim(cache[1], value, place, axis=1),
    )
    seen = jnp.arange(cache[0].shape[1]) <= place
    mixed = mix(query, *cache, seen).reshape(x.shape)
    return layer_norm(weights, f"{name}_norm", x + dense(weights, f"{name}_out", mixed)), cache


def cross_attend(weights: Weights, name: str, x: Array, memory: tuple[Array, Array], heads: int) -> Array:
    query = split_heads(dense(weights, f"{name}_query", x)[:, None], heads)
    mixed = mix(query, *memory, jnp.array(True)).reshape(x.shape)
    return layer_norm(weights, f"{name}_norm", x + dense(weights, f"{name}_out", mixed))


def feed_forward(weights: Weights, name: str, x: Array) -> Array:
    hidden = jax.nn.gelu(dense(weights, f"{name}_up", x))
    return layer_norm(weights, f"{name}_norm", x + dense(weights, f"{name}_down", hidden))


def keep_best(scores: Array, logits: Array, ended: Array) -> tuple[Array, Array, Array]:
    """The best continuations: their scores, the beams that they continue, and their words.

    An ended beam continues with END at no cost.
    """
    beams, words = logits.shape
    only_end = jnp.where(jnp.arange(words) == END, 0.0, -jnp.inf)
    gained = jnp.where(ended[:, None], only_end, jax.nn.log_softmax(logits))
    best, flat = jax.lax.top_k((scores[:, None] + gained).reshape(-1), beams)
    return best, flat // words, flat % words


def read(weights: Weights, source: Array, beams: int, layers: int, heads: int) -> Memory:
    """Keys and values of the encoded source (1, length) for every decoder layer and beam."""
    everything = jnp.ones((1, 1, 1, source.shape[1]), bool)
    encoded = encode(weights, source, everything, layers, heads, keys(None, 1 + 3 * layers))
    encoded = jnp.broadcast_to(encoded, (beams, *encoded.shape[1:]))

    def part(layer: int, name: str) -> Array:
        return split_heads(dense(weights, f"decoder{layer}_cross_{name}", encoded), heads)

    return tuple((part(layer, "key"), part(layer, "value")) for layer in range(layers))


def next_word(
    weights: Weights, x: Array, place: Array, cache: Memory, memory: Memory, heads: int
) -> tuple[Array, Memory]:
    """Logits (beams, words) after a position's embedding (beams, width)."""
    grown = []
    for layer, (own, others) in enumerate(zip(cache, memory, strict=True)):
        x, own = self_attend(weights, f"decoder{layer}_self", x, own, place, heads)
        x = cross_attend(weights, f"decoder{layer}_cross", x, others, heads)
        x = feed_forward(weights, f"decoder{layer}", x)
        grown.append(own)
    return x @ weights["word_table"].T, tuple(grown)


def translation(
    length: int, beams: int, steps: int, width: int, layers: int, heads: int, inside: int, words: int
) -> Step:
    def translate(weights: Weights, source: Array) -> tuple[Array, Array]:
        """The beams' words (beams, steps) and scores (beams,) for a source (1, length)."""
        memory = read(weights, source, beams, layers, heads)
        angles = positions(steps, width)

        def step(carry: Any, place: Array) -> tuple[Any, None]:
            found, last, scores, cache = carry
            x = weights["word_table"][last] * width**0.5 + angles[place]
            logits, cache = next_word(weights, x, place, cache, memory, heads)
            scores, parents, chosen = keep_best(scores, logits, (last == END) & (place > 0))
            found = jax.lax.dynamic_update_index_in_dim(found[parents], chosen, place, axis=1)
            return (found, chosen, scores, jax.tree.map(lambda kept: kept[parents], cache)), None

        empty = jnp.zeros((beams, steps, heads, width // heads))
        scores = jnp.where(jnp.arange(beams) == 0, 0.0, -jnp.inf)  # all beams start as the same one
        first, found = jnp.zeros((beams,), jnp.int32), jnp.zeros((beams, steps), jnp.int32)
        start = (found, first, scores, ((empty, empty),) * layers)
        (found, _, scores, _), _ = jax.lax.scan(step, start, jnp.arange(steps))
        return found, scores

    def inputs(draw: Draw) -> Arguments:
        return (draw.integers(words, 1, length),)

    return inference(translate, transformer_shapes(width, layers, inside, words), inputs)


PAPERS = (
    Paper(
        "nmt",
        "FS-2019",
        translation,
        {"length": 32, "beams": 4, "steps": 32}
        | {"width": 512, "layers": 6, "heads": 8, "inside": 2048, "words": 32_000},
        {"length": 5, "beams": 2, "steps": 4}
        | {"width": 8, "layers": 1, "heads": 2, "inside": 16, "words": 20},
    ),
)
