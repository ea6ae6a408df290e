"""BERT, fine-tuned: post-norm encoder, padded sentences, a classifier on the first token; no decay of biases.

python -m examples.bert
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
PAD, CLS = 0, 1


@dataclass(frozen=True)
class Config:
    vocabulary: int = 1000
    length: int = 64
    width: int = 128
    heads: int = 4
    layers: int = 2
    batch: int = 8
    dropout: float = 0.1


SMALL = Config(vocabulary=50, length=12, width=32, heads=2, layers=1, batch=4)


def dense(random: np.random.Generator, inputs: int, outputs: int) -> Params:
    return {"w": normal(random, 0.02, inputs, outputs), "b": jnp.zeros(outputs)}


def norm(width: int) -> Params:
    return {"scale": jnp.ones(width), "b": jnp.zeros(width)}


def init_layer(random: np.random.Generator, width: int) -> Params:
    return {
        **{name: dense(random, width, width) for name in ("query", "key", "value", "out")},
        "norm1": norm(width),
        "up": dense(random, width, 4 * width),
        "down": dense(random, 4 * width, width),
        "norm2": norm(width),
    }


def init(random: np.random.Generator, config: Config) -> Params:
    width = config.width
    return {
        "token": normal(random, 0.02, config.vocabulary, width),
        "position": normal(random, 0.02, config.length, width),
        "norm": norm(width),
        "layers": [init_layer(random, width) for _ in range(config.layers)],
        "pooler": dense(random, width, width),
        "head": dense(random, width, 2),
    }


def linear(p: Params, x: Array) -> Array:
    return x @ p["w"] + p["b"]


def layer_norm(p: Params, x: Array) -> Array:
    return jax.nn.standardize(x, epsilon=1e-12) * p["scale"] + p["b"]


def dropout(key: Array, x: Array, rate: float) -> Array:
    return jnp.where(jax.random.bernoulli(key, 1 - rate, x.shape), x / (1 - rate), 0)


def attention(p: Params, x: Array, mask: Array, config: Config, key: Array) -> Array:
    heads = (*x.shape[:2], config.heads, -1)
    q, k, v = (linear(p[name], x).reshape(heads) for name in ("query", "key", "value"))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) * q.shape[-1] ** -0.5
    scores = scores + jnp.where(mask, 0.0, -1e9)[:, None, None]
    weights = dropout(key, jax.nn.softmax(scores), config.dropout)
    return linear(p["out"], jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(x.shape))


def encode(params: Params, tokens: Array, key: Array, config: Config) -> Array:
    drop = partial(dropout, rate=config.dropout)
    first, *keys = jax.random.split(key, 1 + config.layers)
    mask = tokens != PAD
    x = drop(first, layer_norm(params["norm"], params["token"][tokens] + params["position"]))
    for p, key in zip(params["layers"], keys, strict=True):
        one, two, three = jax.random.split(key, 3)
        x = layer_norm(p["norm1"], x + drop(one, attention(p, x, mask, config, two)))
        hidden = linear(p["down"], jax.nn.gelu(linear(p["up"], x), approximate=False))
        x = layer_norm(p["norm2"], x + drop(three, hidden))
    return x


def loss(params: Params, tokens: Array, labels: Array, key: Array, config: Config) -> Array:
    first = encode(params, tokens, key, config)[:, 0]
    logits = linear(params["head"], jnp.tanh(linear(params["pooler"], first)))
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def sentences(number: int, config: Config) -> tuple[Array, Array, Array]:
    """Tokens (batch, length) of two walks through the vocabulary, padded; which of them; a key."""
    random = np.random.default_rng(number)
    labels = random.integers(0, 2, config.batch)
    words = config.vocabulary - 2
    steps = random.integers(1, 4, (config.batch, config.length)) * np.where(labels, 7, 3)[:, None]
    tokens = 2 + (random.integers(0, words, (config.batch, 1)) + steps.cumsum(1)) % words
    lengths = random.integers(config.length // 2, config.length + 1, (config.batch, 1))
    tokens = np.where(np.arange(config.length) < lengths, tokens, PAD)
    tokens[:, 0] = CLS
    key = jax.random.fold_in(jax.random.key(1), number)
    return jnp.asarray(tokens, jnp.int32), jnp.asarray(labels, jnp.int32), key


def decayed(params: Params) -> Any:
    """Matrices lose weight, biases and scales do not."""
    return jax.tree.map(lambda p: p.ndim > 1, params)


def make(jit: Jit, small: bool = False) -> Program:
    config = SMALL if small else Config()
    schedule = optax.warmup_exponential_decay_schedule(0.0, 5e-4, 10, 100, 0.5)
    adamw = optax.adamw(schedule, weight_decay=0.01, mask=decayed)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), adamw)

    @partial(jit, donate_argnums=0)  # jax.jit or jstitch.jit
    def step(state: Any, tokens: Array, labels: Array, key: Array) -> tuple[Any, Array]:
        params, moments = state
        value, gradients = jax.value_and_grad(loss)(params, tokens, labels, key, config)
        updates, moments = optimizer.update(gradients, moments, params)
        return (optax.apply_updates(params, updates), moments), value

    def start() -> Any:
        params = init(np.random.default_rng(0), config)
        return params, optimizer.init(params)

    return Program(step, start, partial(sentences, config=config))


if __name__ == "__main__":
    main("bert")
