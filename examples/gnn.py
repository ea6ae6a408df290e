"""GNN: message passing with attention over the edges of a graph; which community is each node of?

python -m examples.gnn
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
from jax.ops import segment_max, segment_sum

from examples.common import Jit, Program, main, normal

Params = Any


@dataclass(frozen=True)
class Config:
    nodes: int = 2000
    edges: int = 16000
    features: int = 32
    width: int = 64
    layers: int = 2
    classes: int = 8


SMALL = Config(nodes=40, edges=120, features=5, width=8, layers=1, classes=3)


def init_layer(random: np.random.Generator, width: int) -> Params:
    return {
        "message": normal(random, width**-0.5, width, width),
        "own": normal(random, width**-0.5, width, width),
        "bias": jnp.zeros(width),
        "attend": normal(random, width**-0.5, width),
        "scale": jnp.ones(width),
    }


def init(random: np.random.Generator, config: Config) -> Params:
    return {
        "first": normal(random, config.features**-0.5, config.features, config.width),
        "layers": [init_layer(random, config.width) for _ in range(config.layers)],
        "last": normal(random, config.width**-0.5, config.width, config.classes),
    }


def segment_softmax(scores: Array, segments: Array, count: int) -> Array:
    """Of the scores of each segment."""
    largest = segment_max(scores, segments, count)
    weights = jnp.exp(scores - jax.lax.stop_gradient(largest)[segments])
    return weights / segment_sum(weights, segments, count)[segments]


def pass_messages(p: Params, x: Array, senders: Array, receivers: Array) -> Array:
    """x: (nodes, width); an edge leads from its sender to its receiver."""
    own, messages = x @ p["own"] + p["bias"], (x @ p["message"])[senders]
    scores = jax.nn.leaky_relu(messages + own[receivers], 0.2) @ p["attend"]
    weights = segment_softmax(scores, receivers, len(x))
    heard = segment_sum(weights[:, None] * messages, receivers, len(x))
    x = x + jax.nn.relu(heard + own)
    return x * jax.lax.rsqrt(jnp.mean(x**2, -1, keepdims=True) + 1e-6) * p["scale"]


def loss(params: Params, graph: Any, labels: Array, key: Array) -> Array:
    """Mean cross-entropy of the half of the nodes that are shown."""
    features, senders, receivers = graph
    x = jax.nn.relu(features @ params["first"])
    for p in params["layers"]:
        x = pass_messages(p, x, senders, receivers)
    shown = jax.random.bernoulli(key, 0.5, labels.shape)
    losses = optax.softmax_cross_entropy_with_integer_labels(x @ params["last"], labels)
    return jnp.sum(losses * shown) / jnp.maximum(jnp.sum(shown), 1)


def communities(config: Config) -> tuple[Any, Array]:
    """A graph with itself as a neighbour of each node, and the nodes' communities."""
    random = np.random.default_rng(0)
    labels = random.integers(0, config.classes, config.nodes)
    order = np.argsort(labels)
    senders = random.integers(0, config.nodes, config.edges)
    near = order[(np.argsort(order)[senders] + random.integers(1, 20, config.edges)) % config.nodes]
    far = random.integers(0, config.nodes, config.edges)
    receivers = np.where(random.random(config.edges) < 0.7, near, far)
    features = random.standard_normal((config.nodes, config.features)) + 0.2 * labels[:, None]
    ends = (np.concatenate([e, np.arange(config.nodes)]) for e in (senders, receivers))
    graph = jnp.asarray(features, jnp.float32), *(jnp.asarray(e, jnp.int32) for e in ends)
    return graph, jnp.asarray(labels, jnp.int32)


def make(jit: Jit, small: bool = False) -> Program:
    config = SMALL if small else Config()
    graph, labels = communities(config)
    optimizer = optax.adamw(5e-3, weight_decay=5e-4)

    @partial(jit, donate_argnums=0)  # jax.jit or jstitch.jit
    def step(state: Any, graph: Any, labels: Array, key: Array) -> tuple[Any, Array]:
        params, moments = state
        value, gradients = jax.value_and_grad(loss)(params, graph, labels, key)
        updates, moments = optimizer.update(gradients, moments, params)
        return (optax.apply_updates(params, updates), moments), value

    def start() -> Any:
        params = init(np.random.default_rng(0), config)
        return params, optimizer.init(params)

    def batch(number: int) -> tuple[Any, Array, Array]:
        return graph, labels, jax.random.fold_in(jax.random.key(1), number)

    return Program(step, start, batch)


if __name__ == "__main__":
    main("gnn")
