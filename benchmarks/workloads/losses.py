"""Cross-entropy at GPT-2's vocabulary, plain and label-smoothed: value and gradient."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from benchmarks import twins
from benchmarks.workload import Arguments, Problem, Workload, normal, sizes

VOCABULARY = 50257


def logits_and_labels(rows: int) -> Arguments:
    labels = np.random.default_rng(1).integers(0, VOCABULARY, rows, dtype=np.int32)
    return normal((rows, VOCABULARY), scale=2), jnp.asarray(labels)


def cross_entropy_grad(rows: int) -> Problem:
    def loss(logits: Array, labels: Array) -> Array:
        log_probabilities = jax.nn.log_softmax(logits)
        return -jnp.mean(jnp.take_along_axis(log_probabilities, labels[:, None], axis=-1))

    return Problem(jax.value_and_grad(loss), logits_and_labels(rows))


def label_smoothed_grad(rows: int) -> Problem:
    def loss(logits: Array, labels: Array) -> Array:
        targets = optax.smooth_labels(jax.nn.one_hot(labels, VOCABULARY), 0.1)
        return jnp.mean(optax.softmax_cross_entropy(logits, targets))

    return Problem(jax.value_and_grad(loss), logits_and_labels(rows))


ROWS = sizes((2,), (32,), (512,))

WORKLOADS = (
    Workload("cross_entropy_grad", cross_entropy_grad, ROWS, twins.cross_entropy_grad),
    Workload("label_smoothed_grad", label_smoothed_grad, ROWS),
)
