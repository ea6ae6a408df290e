"""VAE: a variational autoencoder of generated binary images.

python -m examples.vae
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from examples.common import Jit, Program, main, normal

Params = Any


@dataclass(frozen=True)
class Config:
    size: int = 28
    hidden: int = 400
    latent: int = 20
    batch: int = 128


SMALL = Config(size=8, hidden=32, latent=4, batch=8)


def dense(random: np.random.Generator, inputs: int, outputs: int) -> Params:
    return {"w": normal(random, (2 / inputs) ** 0.5, inputs, outputs), "b": jnp.zeros(outputs)}


def init(random: np.random.Generator, config: Config) -> Params:
    pixels = config.size**2
    return {
        "encode": dense(random, pixels, config.hidden),
        "mean": dense(random, config.hidden, config.latent),
        "log_variance": dense(random, config.hidden, config.latent),
        "decode": dense(random, config.latent, config.hidden),
        "pixels": dense(random, config.hidden, pixels),
    }


def linear(p: Params, x: Array) -> Array:
    return x @ p["w"] + p["b"]


def encode(params: Params, x: Array) -> tuple[Array, Array]:
    hidden = jax.nn.relu(linear(params["encode"], x))
    return linear(params["mean"], hidden), linear(params["log_variance"], hidden)


def decode(params: Params, z: Array) -> Array:
    return linear(params["pixels"], jax.nn.relu(linear(params["decode"], z)))


def loss(params: Params, images: Array, key: Array) -> Array:
    """Negative evidence lower bound per image; images: (batch, pixels), 0 or 1."""
    mean, log_variance = encode(params, images)
    z = mean + jnp.exp(0.5 * log_variance) * jax.random.normal(key, mean.shape)
    logits = decode(params, z)
    likelihood = -optax.sigmoid_binary_cross_entropy(logits, images).sum(-1)
    divergence = 0.5 * jnp.sum(mean**2 + jnp.exp(log_variance) - 1 - log_variance, -1)
    return jnp.mean(divergence - likelihood)


def crosses(number: int, config: Config) -> tuple[Array, Array]:
    """Images (batch, pixels) of a horizontal and a vertical bar; a key."""
    random = np.random.default_rng(number)
    place = np.arange(config.size)
    row, column = random.integers(0, config.size, (2, config.batch, 1))
    thickness = random.integers(1, 4, (config.batch, 1))
    horizontal, vertical = (abs(place - centre) < thickness for centre in (row, column))
    images = (horizontal[:, :, None] | vertical[:, None]).reshape(config.batch, -1)
    return jnp.asarray(images, jnp.float32), jax.random.fold_in(jax.random.key(1), number)


def make(jit: Jit, small: bool = False) -> Program:
    config = SMALL if small else Config()
    optimizer = optax.adam(1e-3)

    @partial(jit, donate_argnums=0)  # jax.jit or jstitch.jit
    def step(state: Any, images: Array, key: Array) -> tuple[Any, Array]:
        params, moments = state
        value, gradients = jax.value_and_grad(loss)(params, images, key)
        updates, moments = optimizer.update(gradients, moments)
        return (optax.apply_updates(params, updates), moments), value

    def start() -> Any:
        params = init(np.random.default_rng(0), config)
        return params, optimizer.init(params)

    return Program(step, start, partial(crosses, config=config))


if __name__ == "__main__":
    main("vae")
