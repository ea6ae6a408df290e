"""The public examples of FS-2018 and FS-2019: TensorFlow-Examples on MNIST images, and Word2Vec, "with
default configurations" (FS-2018, section 6.1), which are

LR                100 images of 784 pixels, 10 classes, softmax, SGD
Word2Vec          128 pairs, 50,000 words, width 200, NCE with 64 sampled words, SGD
RNN, BiRNN        128 images as 28 rows of 28 pixels, LSTMs of 128, SGD and Adam
perceptron        100 images, 784-256-256-10, Adam
VAE               64 images, 784-512-2-512-784, RMSProp; the network is the suite's own (vae.py)

TensorFlow unrolls the recurrent networks; here they are a `lax.scan`, as JAX's users write them.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from jax import Array

from benchmarks.workload import Arguments
from benchmarks.workloads import vae
from benchmarks.workloads.papers import layers
from benchmarks.workloads.papers.layers import cross_entropy, dense, dense_shapes
from benchmarks.workloads.papers.paper import Draw, Paper, Step, Weights, training

Batch = Callable[[Draw], Arguments]


def labelled(classes: int, *shape: int) -> Batch:
    """Images in [0, 1] and their classes."""
    return lambda draw: (jax.nn.sigmoid(draw.normal(*shape)), draw.integers(classes, shape[0]))


def logistic_regression(batch: int, pixels: int, classes: int) -> Step:
    def loss(weights: Weights, images: Array, labels: Array) -> Array:
        return jnp.mean(cross_entropy(dense(weights, "logits", images), labels))

    return training(
        loss, optax.sgd(0.01), dense_shapes("logits", pixels, classes), labelled(classes, batch, pixels)
    )


def perceptron(batch: int, pixels: int, width: int, classes: int) -> Step:
    def loss(weights: Weights, images: Array, labels: Array) -> Array:
        hidden = jax.nn.relu(dense(weights, "first", images))
        hidden = jax.nn.relu(dense(weights, "second", hidden))
        return jnp.mean(cross_entropy(dense(weights, "logits", hidden), labels))

    shapes = dense_shapes("first", pixels, width) | dense_shapes("second", width, width)
    shapes |= dense_shapes("logits", width, classes)
    return training(loss, optax.adam(1e-3), shapes, labelled(classes, batch, pixels))


def word2vec(batch: int, words: int, width: int, sampled: int) -> Step:
    """Skip-gram with noise-contrastive estimation; the noise words are drawn on the host."""

    def log_expected(word: Array) -> Array:
        """Of the log-uniform distribution that the noise words are drawn from, times their number."""
        chance = jnp.log((word + 2.0) / (word + 1.0)) / math.log(words + 1)
        return jnp.log(sampled * chance)

    def loss(weights: Weights, centres: Array, contexts: Array, noise: Array) -> Array:
        x = weights["word_table"][centres]
        true = jnp.sum(x * weights["context_table"][contexts], axis=-1) + weights["context_bias"][contexts]
        false = x @ weights["context_table"][noise].T + weights["context_bias"][noise]
        kept = jax.nn.softplus(-(true - log_expected(contexts)))
        rejected = jax.nn.softplus(false - log_expected(noise))
        return jnp.mean(kept + jnp.sum(rejected, axis=-1))

    def inputs(draw: Draw) -> Arguments:
        return draw.integers(words, batch), draw.integers(words, batch), draw.integers(words, sampled)

    shapes = {"word_table": (words, width), "context_table": (words, width), "context_bias": (words,)}
    return training(loss, optax.sgd(0.1), shapes, inputs)


def last_state(weights: Weights, name: str, rows: Array, *, reverse: bool = False) -> Array:
    """An LSTM's last output over (batch, length, inputs); one product of input and state, concatenated."""

    def cell(state: tuple[Array, Array], x: Array) -> tuple[tuple[Array, Array], None]:
        gates = dense(weights, name, jnp.concatenate([x, state[0]], axis=-1))
        return layers.lstm_gates(gates, state[1]), None

    zero = jnp.zeros((rows.shape[0], weights[name].shape[1] // 4))
    return jax.lax.scan(cell, (zero, zero), jnp.swapaxes(rows, 0, 1), reverse=reverse)[0][0]


def recurrent(names: tuple[str, ...], transform: optax.GradientTransformation) -> Callable[..., Step]:
    """A classifier of rows of pixels by one LSTM or, with two names, one for each direction."""

    def make(batch: int, length: int, pixels: int, width: int, classes: int) -> Step:
        def loss(weights: Weights, rows: Array, labels: Array) -> Array:
            states = [last_state(weights, name, rows, reverse=n == 1) for n, name in enumerate(names)]
            return jnp.mean(cross_entropy(dense(weights, "logits", jnp.concatenate(states, -1)), labels))

        shapes = dense_shapes("logits", len(names) * width, classes)
        for name in names:
            shapes |= dense_shapes(name, pixels + width, 4 * width)
        return training(loss, transform, shapes, labelled(classes, batch, length, pixels))

    return make


def autoencoder(batch: int, pixels: int, width: int, latent: int) -> Step:
    shapes = dense_shapes("encoder", pixels, width) | dense_shapes("posterior", width, 2 * latent)
    shapes |= dense_shapes("decoder", latent, width) | dense_shapes("pixels", width, pixels)

    def inputs(draw: Draw) -> Arguments:
        return jax.nn.sigmoid(draw.normal(batch, pixels)), draw.key()

    return training(vae.loss, optax.rmsprop(1e-3), shapes, inputs)


ROWS = {"batch": 128, "length": 28, "pixels": 28, "width": 128, "classes": 10}
FEW_ROWS = {"batch": 4, "length": 5, "pixels": 6, "width": 8, "classes": 3}

PAPERS = (
    Paper(
        "lr",
        "FS-2018",
        logistic_regression,
        {"batch": 100, "pixels": 784, "classes": 10},
        {"batch": 8, "pixels": 12, "classes": 4},
    ),
    Paper(
        "word2vec",
        "FS-2018",
        word2vec,
        {"batch": 128, "words": 50_000, "width": 200, "sampled": 64},
        {"batch": 8, "words": 50, "width": 6, "sampled": 5},
    ),
    Paper("rnn", "FS-2018", recurrent(("forward",), optax.sgd(1e-3)), ROWS, FEW_ROWS),
    Paper("birnn", "FS-2018", recurrent(("forward", "backward"), optax.adam(1e-3)), ROWS, FEW_ROWS),
    Paper(
        "perceptron",
        "FS-2019",
        perceptron,
        {"batch": 100, "pixels": 784, "width": 256, "classes": 10},
        {"batch": 8, "pixels": 12, "width": 10, "classes": 4},
    ),
    Paper(
        "vae",
        "FS-2019",
        autoencoder,
        {"batch": 64, "pixels": 784, "width": 512, "latent": 2},
        {"batch": 8, "pixels": 12, "width": 10, "latent": 2},
    ),
)
