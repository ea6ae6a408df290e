"""ViT: a vision transformer that tells the direction of stripes in noisy images; its layers are one scan.

python -m examples.vit
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
CLASSES = 10


@dataclass(frozen=True)
class Config:
    size: int = 32
    patch: int = 4
    width: int = 96
    heads: int = 4
    layers: int = 3
    batch: int = 8


SMALL = Config(size=8, width=16, heads=2, layers=2, batch=4)


def init(random: np.random.Generator, config: Config) -> Params:
    width, layers, patches = config.width, config.layers, (config.size // config.patch) ** 2
    weights = partial(normal, random, 0.02)
    return {
        "embed": weights(3 * config.patch**2, width),
        "class": jnp.zeros(width),
        "position": weights(1 + patches, width),
        "layers": {
            "norm1": jnp.ones((layers, width)),
            "qkv": weights(layers, width, 3 * width),
            "out": weights(layers, width, width),
            "norm2": jnp.ones((layers, width)),
            "up": weights(layers, width, 4 * width),
            "up_bias": jnp.zeros((layers, 4 * width)),
            "down": weights(layers, 4 * width, width),
            "down_bias": jnp.zeros((layers, width)),
        },
        "norm": jnp.ones(width),
        "head": weights(width, CLASSES),
    }


def layer_norm(scale: Array, x: Array) -> Array:
    x = x - x.mean(-1, keepdims=True)
    return x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-6) * scale


def attention(p: Params, x: Array, heads: int) -> Array:
    batch, length, width = x.shape
    q, k, v = jnp.moveaxis((x @ p["qkv"]).reshape(batch, length, 3, heads, width // heads), 2, 0)
    return jax.nn.dot_product_attention(q, k, v).reshape(x.shape) @ p["out"]


def block(x: Array, p: Params, heads: int) -> tuple[Array, None]:
    x = x + attention(p, layer_norm(p["norm1"], x), heads)
    hidden = jax.nn.gelu(layer_norm(p["norm2"], x) @ p["up"] + p["up_bias"], approximate=False)
    return x + hidden @ p["down"] + p["down_bias"], None


def patches(images: Array, size: int) -> Array:
    """(batch, height, width, 3) -> (batch, patches, 3 * size * size)."""
    batch, height, width, channels = images.shape
    cut = images.reshape(batch, height // size, size, width // size, size, channels)
    return cut.swapaxes(2, 3).reshape(batch, -1, size * size * channels)


def logits(params: Params, images: Array, config: Config) -> Array:
    x = patches(images, config.patch) @ params["embed"]
    first = jnp.broadcast_to(params["class"], (x.shape[0], 1, config.width))
    x = jnp.concatenate([first, x], 1) + params["position"]
    x, _ = jax.lax.scan(partial(block, heads=config.heads), x, params["layers"])
    return layer_norm(params["norm"], x[:, 0]) @ params["head"]


def loss(params: Params, images: Array, labels: Array, config: Config) -> Array:
    smooth = optax.smooth_labels(jax.nn.one_hot(labels, CLASSES), 0.1)
    return optax.softmax_cross_entropy(logits(params, images, config), smooth).mean()


def stripes(number: int, config: Config) -> tuple[Array, Array]:
    """Images (batch, size, size, 3) in colour, and which of CLASSES directions their stripes have."""
    random = np.random.default_rng(number)
    labels = random.integers(0, CLASSES, config.batch)
    angle = np.pi * labels[:, None, None] / CLASSES
    y, x = np.mgrid[: config.size, : config.size]
    phase = random.uniform(0, 2 * np.pi, (config.batch, 1, 1))
    waves = np.sin(0.9 * (x * np.cos(angle) + y * np.sin(angle)) + phase)[..., None]
    colours = random.uniform(0.3, 1.0, (config.batch, 1, 1, 3))
    images = waves * colours + 0.3 * random.standard_normal((*waves.shape[:3], 3))
    return jnp.asarray(images, jnp.float32), jnp.asarray(labels, jnp.int32)


def make(jit: Jit, small: bool = False) -> Program:
    config = SMALL if small else Config()
    optimizer = optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.adamw(optax.cosine_decay_schedule(1e-3, 500), weight_decay=0.05),
    )

    @partial(jit, donate_argnums=0)  # jax.jit or jstitch.jit
    def step(state: Any, images: Array, labels: Array) -> tuple[Any, Array]:
        params, moments = state
        value, gradients = jax.value_and_grad(loss)(params, images, labels, config)
        updates, moments = optimizer.update(gradients, moments, params)
        return (optax.apply_updates(params, updates), moments), value

    def start() -> Any:
        params = init(np.random.default_rng(0), config)
        return params, optimizer.init(params)

    return Program(step, start, partial(stripes, config=config))


if __name__ == "__main__":
    main("vit")
