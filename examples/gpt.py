"""GPT: a causal language model on the characters of a module of Python's standard library.

python -m examples.gpt
"""

from __future__ import annotations

import argparse
import inspect
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
    length: int = 64
    width: int = 128
    heads: int = 4
    layers: int = 2
    batch: int = 8
    dropout: float = 0.1


SMALL = Config(length=16, width=32, heads=2, layers=1, batch=4)


def dense(random: np.random.Generator, inputs: int, outputs: int, scale: float = 0.02) -> Params:
    return {"w": normal(random, scale, inputs, outputs), "b": jnp.zeros(outputs)}


def norm(width: int) -> Params:
    return {"scale": jnp.ones(width), "bias": jnp.zeros(width)}


def init_layer(random: np.random.Generator, config: Config) -> Params:
    width, narrow = config.width, 0.02 / (2 * config.layers) ** 0.5
    return {
        "norm1": norm(width),
        "qkv": dense(random, width, 3 * width),
        "out": dense(random, width, width, narrow),
        "norm2": norm(width),
        "up": dense(random, width, 4 * width),
        "down": dense(random, 4 * width, width, narrow),
    }


def init(random: np.random.Generator, config: Config, vocabulary: int) -> Params:
    return {
        "token": normal(random, 0.02, vocabulary, config.width),
        "position": normal(random, 0.02, config.length, config.width),
        "layers": [init_layer(random, config) for _ in range(config.layers)],
        "norm": norm(config.width),
        "head": dense(random, config.width, vocabulary),
    }


def linear(p: Params, x: Array) -> Array:
    return x @ p["w"] + p["b"]


def layer_norm(p: Params, x: Array) -> Array:
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * p["scale"] + p["bias"]


def dropout(key: Array, x: Array, rate: float) -> Array:
    return jnp.where(jax.random.bernoulli(key, 1 - rate, x.shape), x / (1 - rate), 0)


def attention(p: Params, x: Array, heads: int) -> Array:
    batch, length, _ = x.shape
    q, k, v = jnp.split(linear(p["qkv"], x).reshape(batch, length, heads, -1), 3, axis=-1)
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
    causal = jnp.tril(jnp.ones((length, length), bool))
    weights = jax.nn.softmax(jnp.where(causal, scores, -jnp.inf))
    return linear(p["out"], jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(x.shape))


def loss(params: Params, tokens: Array, key: Array, config: Config) -> Array:
    """Mean cross-entropy of the next character; tokens: (batch, length + 1)."""
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    drop = partial(dropout, rate=config.dropout)
    keys = iter(jax.random.split(key, 1 + 2 * config.layers))
    x = drop(next(keys), params["token"][inputs] + params["position"])
    for p in params["layers"]:
        x = x + drop(next(keys), attention(p, layer_norm(p["norm1"], x), config.heads))
        hidden = jax.nn.gelu(linear(p["up"], layer_norm(p["norm2"], x)))
        x = x + drop(next(keys), linear(p["down"], hidden))
    logits = linear(params["head"], layer_norm(params["norm"], x))
    return optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean()


def make(jit: Jit, small: bool = False) -> Program:
    config = SMALL if small else Config()
    text = inspect.getsource(argparse)
    characters = sorted(set(text))
    ids = np.array([characters.index(c) for c in text], np.int32)
    schedule = optax.warmup_cosine_decay_schedule(0.0, 1e-3, 10, 200)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, b2=0.95, weight_decay=0.1))

    @partial(jit, donate_argnums=0)  # jax.jit or jstitch.jit
    def step(state: Any, tokens: Array, key: Array) -> tuple[Any, Array]:
        params, moments = state
        value, gradients = jax.value_and_grad(loss)(params, tokens, key, config)
        updates, moments = optimizer.update(gradients, moments, params)
        return (optax.apply_updates(params, updates), moments), value

    def start() -> Any:
        params = init(np.random.default_rng(0), config, len(characters))
        return params, optimizer.init(params)

    def batch(number: int) -> tuple[Array, Array]:
        starts = np.random.default_rng(number).integers(0, len(ids) - config.length - 1, config.batch)
        windows = ids[starts[:, None] + np.arange(config.length + 1)]
        return jnp.asarray(windows), jax.random.fold_in(jax.random.key(1), number)

    return Program(step, start, batch)


if __name__ == "__main__":
    main("gpt")
