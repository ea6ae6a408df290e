"""Speech: training (FS-2018's Speech, FS-2019's rokid) and recognition (FS-2021's ASR).

Both networks are in-house. Training here is a Deep Speech 2: two convolutions over 80 mel bands, three
bidirectional LSTMs of 512 with batch norm, CTC over 29 letters, Adam; 32 utterances of 400 frames, 60
letters. ASR has batch 8 (FS-2021, Table 1) and is otherwise Listen, Attend and Spell: a pyramid of three
bidirectional LSTMs of 256 over 400 frames, two decoder LSTMs of 512 with attention, the likeliest of 31
letters in each of 60 steps.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array

from benchmarks.workload import Arguments
from benchmarks.workloads.papers.layers import (
    Shapes,
    batch_norm,
    both_ways,
    both_ways_shapes,
    convolution,
    dense,
    dense_shapes,
    lstm_gates,
    lstm_shapes,
    norm_shapes,
)
from benchmarks.workloads.papers.paper import Draw, Paper, Step, Weights, inference, training

KERNELS = {"first": (11, 21), "second": (11, 11)}


def frames_to_rows(weights: Weights, sound: Array) -> Array:
    """(batch, frames, bands) -> (frames / 2, batch, features), by two convolutions."""
    x = sound[..., None]
    for name, strides in (("first", (2, 2)), ("second", (1, 2))):
        x = convolution(x, weights[f"{name}_kernel"], strides)
        x = jnp.clip(batch_norm(weights, f"{name}_norm", x), 0.0, 20.0)
    return jnp.swapaxes(x.reshape(*x.shape[:2], -1), 0, 1)


def training_step(
    batch: int, frames: int, bands: int, channels: int, width: int, layers: int, letters: int, symbols: int
) -> Step:
    def loss(weights: Weights, sound: Array, absent: Array, labels: Array, label_absent: Array) -> Array:
        x = frames_to_rows(weights, sound)
        for layer in range(layers):
            x = both_ways(weights, f"layer{layer}", batch_norm(weights, f"layer{layer}_norm", x))
        logits = jnp.swapaxes(dense(weights, "letters", x), 0, 1)
        return jnp.mean(optax.ctc_loss(logits, absent, labels, label_absent))

    def inputs(draw: Draw) -> Arguments:
        lengths = frames // 4 + draw.integers(frames // 4, batch)
        absent = (jnp.arange(frames // 2) >= lengths[:, None]).astype(jnp.float32)
        labels = 1 + draw.integers(symbols - 1, batch, letters)
        label_absent = jnp.arange(letters) >= 1 + draw.integers(letters, batch)[:, None]
        return draw.normal(batch, frames, bands), absent, labels, label_absent.astype(jnp.float32)

    shapes: Shapes = {}
    for name, before in (("first", 1), ("second", channels)):
        shapes |= {f"{name}_kernel": (*KERNELS[name], before, channels)} | norm_shapes(
            f"{name}_norm", channels
        )
    features = channels * bands // 4
    for layer in range(layers):
        entering = 2 * width if layer else features
        shapes |= norm_shapes(f"layer{layer}_norm", entering)
        shapes |= both_ways_shapes(f"layer{layer}", entering, width)
    shapes |= dense_shapes("letters", 2 * width, symbols)
    return training(loss, optax.adam(3e-4), shapes, inputs, tolerance=2e-3)


def listen(weights: Weights, sound: Array, layers: int) -> Array:
    """(batch, frames, bands) -> (batch, frames / 2^layers, 2 width): each layer joins two frames into one."""
    x = jnp.swapaxes(sound, 0, 1)
    for layer in range(layers):
        pairs = x.reshape(x.shape[0] // 2, 2, *x.shape[1:])
        x = both_ways(weights, f"layer{layer}", jnp.concatenate([pairs[:, 0], pairs[:, 1]], axis=-1))
    return jnp.swapaxes(x, 0, 1)


def look(weights: Weights, keys: Array, heard: Array, state: Array) -> Array:
    """Additive attention of a state (batch, width) over what was heard (batch, length, features)."""
    energy = jnp.tanh(keys + dense(weights, "query", state)[:, None])
    shares = jax.nn.softmax(energy @ weights["energy"], axis=-1)
    return jnp.einsum("bl,blf->bf", shares, heard)


def recognition(
    batch: int, frames: int, bands: int, width: int, layers: int, speller: int, steps: int, symbols: int
) -> Step:
    def recognise(weights: Weights, sound: Array) -> tuple[Array, Array]:
        """The letters (batch, steps) and the sum of their log probabilities (batch,)."""
        heard = listen(weights, sound, layers)
        keys = heard @ weights["keys"]
        zero, first = jnp.zeros((batch, speller)), jnp.zeros((batch,), jnp.int32)

        def spell(carry: Any, _: None) -> tuple[Any, Array]:
            letter, context, score, *states = carry
            x = jnp.concatenate([weights["letter_table"][letter], context], axis=-1)
            for n in range(2):
                projected = x @ weights[f"speller{n}_input"] + weights[f"speller{n}_bias"]
                gates = projected + states[2 * n] @ weights[f"speller{n}_hidden"]
                states[2 * n : 2 * n + 2] = lstm_gates(gates, states[2 * n + 1])
                x = states[2 * n]
            context = look(weights, keys, heard, x)
            logits = dense(weights, "letters", jnp.concatenate([x, context], axis=-1))
            chances = jax.nn.log_softmax(logits)
            letter = jnp.argmax(chances, axis=-1).astype(jnp.int32)
            return (letter, context, score + jnp.max(chances, axis=-1), *states), letter

        start = (first, jnp.zeros((batch, 2 * width)), jnp.zeros((batch,)), zero, zero, zero, zero)
        (_, _, score, *_), letters = jax.lax.scan(spell, start, length=steps)
        return letters.T, score

    shapes: Shapes = {"letter_table": (symbols, speller // 4), "keys": (2 * width, speller)}
    for layer in range(layers):
        shapes |= both_ways_shapes(f"layer{layer}", 2 * (2 * width if layer else bands), width)
    shapes |= lstm_shapes("speller0", speller // 4 + 2 * width, speller)
    shapes |= lstm_shapes("speller1", speller, speller)
    shapes |= dense_shapes("query", speller, speller) | {"energy": (speller,)}
    shapes |= dense_shapes("letters", speller + 2 * width, symbols)
    return inference(recognise, shapes, lambda draw: (draw.normal(batch, frames, bands),))


PAPERS = (
    Paper(
        "speech",
        "FS-2018",
        training_step,
        {"batch": 32, "frames": 400, "bands": 80, "channels": 32}
        | {"width": 512, "layers": 3, "letters": 60, "symbols": 29},
        {"batch": 2, "frames": 24, "bands": 8, "channels": 3}
        | {"width": 6, "layers": 1, "letters": 4, "symbols": 5},
    ),
    Paper(
        "asr",
        "FS-2021",
        recognition,
        {"batch": 8, "frames": 400, "bands": 80, "width": 256}
        | {"layers": 3, "speller": 512, "steps": 60, "symbols": 31},
        {"batch": 2, "frames": 8, "bands": 4, "width": 6}
        | {"layers": 2, "speller": 8, "steps": 4, "symbols": 7},
    ),
)
