"""Diffusion: DDPM on generated discs and squares; a U-Net with group norms, attention and a moving average.

python -m examples.diffusion
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
STEPS = 1000
KEPT = np.cumprod(1 - np.linspace(1e-4, 0.02, STEPS))  # of the image's variance, after so many steps


@dataclass(frozen=True)
class Config:
    size: int = 32
    width: int = 16
    batch: int = 4


SMALL = Config(size=8, width=8, batch=2)


def conv(random: np.random.Generator, inputs: int, outputs: int, size: int = 3) -> Params:
    scale = (size * size * inputs) ** -0.5
    return {"w": normal(random, scale, size, size, inputs, outputs), "b": jnp.zeros(outputs)}


def dense(random: np.random.Generator, inputs: int, outputs: int) -> Params:
    return {"w": normal(random, inputs**-0.5, inputs, outputs), "b": jnp.zeros(outputs)}


def residual(random: np.random.Generator, inputs: int, outputs: int, time: int) -> Params:
    return {
        "norm1": {"scale": jnp.ones(inputs), "b": jnp.zeros(inputs)},
        "conv1": conv(random, inputs, outputs),
        "time": dense(random, time, outputs),
        "norm2": {"scale": jnp.ones(outputs), "b": jnp.zeros(outputs)},
        "conv2": conv(random, outputs, outputs),
        "skip": conv(random, inputs, outputs, 1),
    }


def init(random: np.random.Generator, width: int) -> Params:
    time = 4 * width
    return {
        "time1": dense(random, width, time),
        "time2": dense(random, time, time),
        "first": conv(random, 1, width),
        "down1": residual(random, width, width, time),
        "down2": residual(random, width, 2 * width, time),
        "qkv": dense(random, 2 * width, 6 * width),
        "middle": residual(random, 2 * width, 2 * width, time),
        "up2": residual(random, 4 * width, width, time),
        "up1": residual(random, 2 * width, width, time),
        "last": conv(random, width, 1),
    }


def linear(p: Params, x: Array) -> Array:
    return x @ p["w"] + p["b"]


def convolve(p: Params, x: Array, stride: int = 1) -> Array:
    layout = ("NHWC", "HWIO", "NHWC")
    return (
        jax.lax.conv_general_dilated(x, p["w"], (stride, stride), "SAME", dimension_numbers=layout) + p["b"]
    )


def group_norm(p: Params, x: Array, groups: int = 4) -> Array:
    batch, height, width, channels = x.shape
    grouped = x.reshape(batch, height, width, groups, channels // groups)
    return jax.nn.standardize(grouped, (1, 2, 4), epsilon=1e-5).reshape(x.shape) * p["scale"] + p["b"]


def residual_block(p: Params, x: Array, time: Array) -> Array:
    h = convolve(p["conv1"], jax.nn.silu(group_norm(p["norm1"], x)))
    h = h + linear(p["time"], time)[:, None, None]
    h = convolve(p["conv2"], jax.nn.silu(group_norm(p["norm2"], h)))
    return convolve(p["skip"], x) + h


def attention(p: Params, x: Array) -> Array:
    q, k, v = jnp.split(linear(p, x.reshape(x.shape[0], -1, x.shape[-1])), 3, axis=-1)
    weights = jax.nn.softmax(q @ k.mT * q.shape[-1] ** -0.5)
    return x + (weights @ v).reshape(x.shape)


def halved(x: Array) -> Array:
    batch, height, width, channels = x.shape
    return x.reshape(batch, height // 2, 2, width // 2, 2, channels).mean((2, 4))


def doubled(x: Array) -> Array:
    return x.repeat(2, 1).repeat(2, 2)


def noise_of(params: Params, x: Array, t: Array) -> Array:
    """What the network takes for noise in x (batch, size, size, 1) after t (batch,) steps."""
    half = params["time1"]["w"].shape[0] // 2
    angles = t[:, None] * jnp.exp(-jnp.log(1e4) * jnp.arange(half) / half)
    time = linear(params["time1"], jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], -1))
    time = jax.nn.silu(linear(params["time2"], jax.nn.silu(time)))
    one = residual_block(params["down1"], convolve(params["first"], x), time)
    two = residual_block(params["down2"], halved(one), time)
    middle = residual_block(params["middle"], attention(params["qkv"], halved(two)), time)
    up = residual_block(params["up2"], jnp.concatenate([doubled(middle), two], -1), time)
    up = residual_block(params["up1"], jnp.concatenate([doubled(up), one], -1), time)
    return convolve(params["last"], jax.nn.silu(up))


def loss(params: Params, images: Array, key: Array) -> Array:
    first, second = jax.random.split(key)
    t = jax.random.randint(first, images.shape[:1], 0, STEPS)
    noise = jax.random.normal(second, images.shape)
    kept = jnp.asarray(KEPT, jnp.float32)[t][:, None, None, None]
    noisy = jnp.sqrt(kept) * images + jnp.sqrt(1 - kept) * noise
    return jnp.mean((noise_of(params, noisy, t) - noise) ** 2)


def shapes(number: int, config: Config) -> tuple[Array, Array]:
    """Images (batch, size, size, 1) of a disc or a square, -1 outside and 1 inside; a key."""
    random = np.random.default_rng(number)
    y, x = np.mgrid[: config.size, : config.size] / config.size
    cx, cy = random.uniform(0.3, 0.7, (2, config.batch, 1, 1))
    radius = random.uniform(0.1, 0.3, (config.batch, 1, 1))
    disc = np.hypot(x - cx, y - cy)
    square = np.maximum(abs(x - cx), abs(y - cy))
    inside = np.where(random.random((config.batch, 1, 1)) < 0.5, disc, square) < radius
    key = jax.random.fold_in(jax.random.key(1), number)
    return jnp.asarray(np.where(inside, 1, -1)[..., None], jnp.float32), key


def make(jit: Jit, small: bool = False) -> Program:
    config = SMALL if small else Config()
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(2e-4))

    @partial(jit, donate_argnums=0)  # jax.jit or jstitch.jit
    def step(state: Any, images: Array, key: Array) -> tuple[Any, Array]:
        params, average, moments = state
        value, gradients = jax.value_and_grad(loss)(params, images, key)
        updates, moments = optimizer.update(gradients, moments)
        params = optax.apply_updates(params, updates)
        return (params, optax.incremental_update(params, average, 0.001), moments), value

    def start() -> Any:
        params = init(np.random.default_rng(0), config.width)
        return params, jax.tree.map(jnp.copy, params), optimizer.init(params)

    return Program(step, start, partial(shapes, config=config))


if __name__ == "__main__":
    main("diffusion")
