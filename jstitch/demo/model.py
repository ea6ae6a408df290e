"""A small causal transformer language model in plain JAX: nothing here knows about stitching.

Embedding of tokens and positions, pre-norm blocks (causal attention, GELU MLP, dropout), tied output layer,
cross-entropy in nats per token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

Params = dict[str, Any]


@dataclass(frozen=True)
class ModelConfig:
    """Sizes of the model; `dropout` is the share of activations that training zeroes."""

    vocabulary: int = 4096
    length: int = 128
    width: int = 128
    heads: int = 4
    layers: int = 4
    dropout: float = 0.1


def init_params(config: ModelConfig, key: Array) -> Params:
    embedding, position, *layers = jax.random.split(key, 2 + config.layers)
    return {
        "embedding": _matrix(embedding, config.vocabulary, config.width, 0.02),
        "position": _matrix(position, config.length, config.width, 0.02),
        "layers": [_init_layer(config, layer) for layer in layers],
        "norm": _init_norm(config.width),
    }


def _init_layer(config: ModelConfig, key: Array) -> Params:
    width = config.width
    qkv, out, up, down = jax.random.split(key, 4)
    narrow = 0.02 / (2 * config.layers) ** 0.5
    return {
        "norm1": _init_norm(width),
        "qkv": {"w": _matrix(qkv, width, 3 * width, 0.02), "b": jnp.zeros(3 * width)},
        "out": {"w": _matrix(out, width, width, narrow), "b": jnp.zeros(width)},
        "norm2": _init_norm(width),
        "up": {"w": _matrix(up, width, 4 * width, 0.02), "b": jnp.zeros(4 * width)},
        "down": {"w": _matrix(down, 4 * width, width, narrow), "b": jnp.zeros(width)},
    }


def _init_norm(width: int) -> Params:
    return {"scale": jnp.ones(width), "bias": jnp.zeros(width)}


def _matrix(key: Array, rows: int, columns: int, scale: float) -> Array:
    return scale * jax.random.normal(key, (rows, columns))


def layer_norm(params: dict[str, Array], x: Array) -> Array:
    mean = jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.var(x, axis=-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * params["scale"] + params["bias"]


def dense(params: dict[str, Array], x: Array) -> Array:
    return x @ params["w"] + params["b"]


def dropout(rate: float, key: Array, x: Array) -> Array:
    keep = jax.random.bernoulli(key, 1.0 - rate, x.shape)
    return jnp.where(keep, x / (1.0 - rate), 0.0)


def attention(config: ModelConfig, params: Params, x: Array) -> Array:
    """Causal self-attention of (batch, length, width)."""
    batch, length, width = x.shape
    heads = (batch, length, 3, config.heads, width // config.heads)
    query, key, value = jnp.unstack(dense(params["qkv"], x).reshape(heads), axis=2)
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) * (width // config.heads) ** -0.5
    causal = jnp.tril(jnp.ones((length, length), bool))
    weights = jax.nn.softmax(jnp.where(causal, scores, -1e9), axis=-1)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", weights, value)
    return dense(params["out"], mixed.reshape(x.shape))


def block(config: ModelConfig, params: Params, x: Array, key: Array) -> Array:
    first, second = jax.random.split(key)
    attended = attention(config, params, layer_norm(params["norm1"], x))
    x = x + dropout(config.dropout, first, attended)
    hidden = jax.nn.gelu(dense(params["up"], layer_norm(params["norm2"], x)))
    return x + dropout(config.dropout, second, dense(params["down"], hidden))


def loss(config: ModelConfig, params: Params, tokens: Array, key: Array) -> Array:
    """Mean cross-entropy of the next token; tokens are (batch, length + 1) int32."""
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    first, *keys = jax.random.split(key, 1 + config.layers)
    x = params["embedding"][inputs] + params["position"][: inputs.shape[1]]
    x = dropout(config.dropout, first, x)
    for layer, layer_key in zip(params["layers"], keys, strict=True):
        x = block(config, layer, x, layer_key)
    logits = layer_norm(params["norm"], x) @ params["embedding"].T
    log_probabilities = jax.nn.log_softmax(logits, axis=-1)
    return -jnp.mean(jnp.take_along_axis(log_probabilities, targets[..., None], axis=-1))
