"""One training step of a variational autoencoder on 28 x 28 images, with Adam; parameters donated."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array

from benchmarks.workload import Problem, Workload, normal, sizes
from benchmarks.workloads.optimizers import warmed_up

Weights = dict[str, Array]
LATENT = 16


def dense(weights: Weights, name: str, x: Array) -> Array:
    return x @ weights[name] + weights[f"{name}_bias"]


def loss(weights: Weights, images: Array, key: Array) -> Array:
    """Negative evidence lower bound of (batch, pixels) images in [0, 1]."""
    hidden = jax.nn.relu(dense(weights, "encoder", images))
    mean, log_variance = jnp.split(dense(weights, "posterior", hidden), 2, axis=-1)
    latent = mean + jnp.exp(0.5 * log_variance) * jax.random.normal(key, mean.shape)
    logits = dense(weights, "pixels", jax.nn.relu(dense(weights, "decoder", latent)))
    reconstruction = jnp.sum(optax.sigmoid_binary_cross_entropy(logits, images), axis=-1)
    divergence = -0.5 * jnp.sum(1 + log_variance - jnp.square(mean) - jnp.exp(log_variance), axis=-1)
    return jnp.mean(reconstruction + divergence)


def initial_weights(pixels: int, width: int) -> Weights:
    layers = {
        "encoder": (pixels, width),
        "posterior": (width, 2 * LATENT),
        "decoder": (LATENT, width),
        "pixels": (width, pixels),
    }
    weights = {n: normal(s, i, 0.5 * s[0] ** -0.5) for i, (n, s) in enumerate(layers.items())}
    return weights | {f"{n}_bias": normal(s[1:], 10 + i, 0.01) for i, (n, s) in enumerate(layers.items())}


def training_step(batch: int, pixels: int, width: int) -> Problem:
    adam = optax.adam(1e-3)

    def step(weights: Weights, state: Any, images: Array, key: Array) -> tuple[Weights, Any, Array]:
        value, gradients = jax.value_and_grad(loss)(weights, images, key)
        updates, state = adam.update(gradients, state)
        return optax.apply_updates(weights, updates), state, value

    weights = initial_weights(pixels, width)
    images = jax.nn.sigmoid(normal((batch, pixels), 7))
    args = (weights, warmed_up(adam, weights), images, jnp.array([0, 42], jnp.uint32))
    return Problem(step, args, donate=(0, 1), carry=lambda args, output: (*output[:2], *args[2:]))


WORKLOADS = (Workload("vae_step", training_step, sizes((16, 196, 32), (256, 784, 256), (2048, 784, 1024))),)
