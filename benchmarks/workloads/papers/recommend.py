"""Recommender systems: DIEN (FS-2021) and multi-interests (FS-2019).

DIEN: batch 256 (FS-2021, Table 1). Otherwise the public network on Amazon's books: 543,060 users, 367,983
items, 1,601 categories, tables of width 18, histories of 100; a GRU of 36 with the auxiliary loss,
attention, an AUGRU of 36, then 200-80-2 with batch norm and PReLU; Adam.

multi-interests is in-house (the paper gives 992 ops and kernels of 200 us on average). Here it is MIND:
2,048 users with histories of 50 out of 500,000 items of width 64, routed to 4 interests in 3 rounds,
attention by the label, and a softmax over the label and 1,000 sampled items; Adam.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
from jax import Array

from benchmarks.workload import Arguments
from benchmarks.workloads.papers.layers import (
    HIDDEN,
    Shapes,
    batch_norm,
    cross_entropy,
    dense,
    dense_shapes,
    gru_gates,
    gru_shapes,
    norm_shapes,
)
from benchmarks.workloads.papers.paper import Draw, Paper, Step, Weights, inference, training


def prelu(weights: Weights, name: str, x: Array) -> Array:
    return jnp.maximum(x, 0.0) + weights[f"{name}_slope"] * jnp.minimum(x, 0.0)


def gru(weights: Weights, name: str, xs: Array, present: Array, attended: Array | None = None) -> Array:
    """(length, batch, inputs) -> states (length, batch, width); absent steps keep the state."""
    projected = xs @ weights[f"{name}_input"] + weights[f"{name}_bias"]

    def cell(hidden: Array, inputs: tuple[Array, Array, Array | None]) -> tuple[Array, Array]:
        x, here, share = inputs
        grown = gru_gates(x, hidden @ weights[f"{name}_hidden"], hidden, share)
        hidden = jnp.where(here, grown, hidden)
        return hidden, hidden

    zero = jnp.zeros((xs.shape[1], weights[f"{name}_hidden"].shape[0]))
    return jax.lax.scan(cell, zero, (projected, present[..., None], attended))[1]


def attend(weights: Weights, item: Array, states: Array, present: Array) -> Array:
    """DIN's attention: the share (length, batch) of each state in what the item asks for."""
    query = prelu(weights, "query", dense(weights, "query", item))
    query = jnp.broadcast_to(query, states.shape)
    both = jnp.concatenate([query, states, query - states, query * states], axis=-1)
    hidden = jax.nn.sigmoid(dense(weights, "share0", both))
    hidden = jax.nn.sigmoid(dense(weights, "share1", hidden))
    scores = dense(weights, "share2", hidden)[..., 0]
    return jax.nn.softmax(jnp.where(present, scores, HIDDEN), axis=0)


def follows(weights: Weights, states: Array, items: Array) -> Array:
    """The auxiliary network: log odds (length - 1, batch) that `items` come after `states`."""
    x = batch_norm(weights, "next_norm", jnp.concatenate([states, items], axis=-1))
    x = jax.nn.sigmoid(dense(weights, "next0", x))
    x = jax.nn.sigmoid(dense(weights, "next1", x))
    return dense(weights, "next2", x)[..., 0]


def embed(weights: Weights, items: Array, categories: Array) -> Array:
    return jnp.concatenate([weights["item_table"][items], weights["category_table"][categories]], axis=-1)


def click(weights: Weights, *inputs: Array) -> tuple[Array, Array, Array, Array]:
    """The two logits of a click (batch, 2); the first GRU's states, the history, and where it is."""
    users, item, category, items, categories, lengths = inputs
    target, history = embed(weights, item, category), embed(weights, items.T, categories.T)
    present = jnp.arange(history.shape[0])[:, None] < lengths
    states = gru(weights, "interest", history, present)
    shares = attend(weights, target, states, present)
    final = gru(weights, "evolution", states, present, shares[..., None])[-1]
    total = jnp.sum(jnp.where(present[..., None], history, 0.0), axis=0)
    parts = [weights["user_table"][users], target, total, target * total, final]
    x = batch_norm(weights, "click_norm", jnp.concatenate(parts, axis=-1))
    for layer in range(2):
        x = prelu(weights, f"click{layer}", dense(weights, f"click{layer}", x))
    return dense(weights, "click2", x), states, history, present


def dien_shapes(
    users: int, items: int, categories: int, width: int, hidden: tuple[int, int], *, trained: bool
) -> Shapes:
    pair = 2 * width
    shapes: Shapes = {"user_table": (users, width), "item_table": (items, width)}
    shapes |= {"category_table": (categories, width)} | gru_shapes("interest", pair, pair)
    shapes |= (
        gru_shapes("evolution", pair, pair) | dense_shapes("query", pair, pair) | {"query_slope": (pair,)}
    )
    for n, (entering, leaving) in enumerate(((4 * pair, 80), (80, 40), (40, 1))):
        shapes |= dense_shapes(f"share{n}", entering, leaving)
    joined = width + 4 * pair
    for n, (entering, leaving) in enumerate(((joined, hidden[0]), hidden, (hidden[1], 2))):
        shapes |= dense_shapes(f"click{n}", entering, leaving)
    shapes |= {f"click{n}_slope": (hidden[n],) for n in range(2)} | norm_shapes("click_norm", joined)
    if trained:
        shapes |= norm_shapes("next_norm", 2 * pair)
        for n, (entering, leaving) in enumerate(((2 * pair, 100), (100, 50), (50, 1))):
            shapes |= dense_shapes(f"next{n}", entering, leaving)
    return shapes


def histories(draw: Draw, batch: int, length: int, users: int, items: int, categories: int) -> Arguments:
    """Users, items, categories, histories of items and of categories, lengths of the histories."""
    return (
        *(draw.integers(users, batch), draw.integers(items, batch), draw.integers(categories, batch)),
        *(draw.integers(items, batch, length), draw.integers(categories, batch, length)),
        2 + draw.integers(length - 1, batch),
    )


def dien_training(
    batch: int, length: int, users: int, items: int, categories: int, width: int, first: int, second: int
) -> Step:
    def loss(weights: Weights, *inputs: Array) -> Array:
        *known, other_items, other_categories, clicked = inputs
        logits, states, history, present = click(weights, *known)
        others = embed(weights, other_items.T, other_categories.T)
        true, false = (follows(weights, states[:-1], x[1:]) for x in (history, others))
        auxiliary = jnp.where(present[1:], jax.nn.softplus(-true) + jax.nn.softplus(false), 0.0)
        return jnp.mean(cross_entropy(logits, clicked)) + jnp.sum(auxiliary) / jnp.sum(present[1:])

    def draw_batch(draw: Draw) -> Arguments:
        known = histories(draw, batch, length, users, items, categories)
        others = draw.integers(items, batch, length), draw.integers(categories, batch, length)
        return (*known, *others, draw.integers(2, batch))

    shapes = dien_shapes(users, items, categories, width, (first, second), trained=True)
    return training(loss, optax.adam(1e-3), shapes, draw_batch, tolerance=2e-4)


def dien_inference(
    batch: int, length: int, users: int, items: int, categories: int, width: int, first: int, second: int
) -> Step:
    def chances(weights: Weights, *inputs: Array) -> Array:
        return jax.nn.softmax(click(weights, *inputs)[0])

    shapes = dien_shapes(users, items, categories, width, (first, second), trained=False)
    return inference(chances, shapes, lambda draw: histories(draw, batch, length, users, items, categories))


def squash(x: Array) -> Array:
    """Keep the direction, bring the length below one."""
    square = jnp.sum(jnp.square(x), axis=-1, keepdims=True)
    return x * square / ((1 + square) * jnp.sqrt(square + 1e-9))


def route(history: Array, present: Array, logits: Array, rounds: int) -> Array:
    """Interests (batch, interests, width) of histories (batch, length, width), by dynamic routing."""
    fixed = jax.lax.stop_gradient(history)
    for turn in range(rounds):
        shares = jnp.where(present[:, None], jax.nn.softmax(logits, axis=1), 0.0)
        source = history if turn == rounds - 1 else fixed
        interests = squash(jnp.einsum("bil,blw->biw", shares, source))
        logits = logits + jnp.einsum("biw,blw->bil", interests, fixed)
    return interests


def multi_interests(
    batch: int, length: int, items: int, width: int, interests: int, rounds: int, sampled: int
) -> Step:
    def loss(weights: Weights, history: Array, lengths: Array, labels: Array, *drawn: Array) -> Array:
        others, starting = drawn
        present = jnp.arange(length) < lengths[:, None]
        found = route(weights["item_table"][history] @ weights["route"], present, starting, rounds)
        found = jax.nn.relu(dense(weights, "deep0", found))
        found = jax.nn.relu(dense(weights, "deep1", found))
        label = weights["item_table"][labels]
        shares = jax.nn.softmax(jnp.square(jnp.einsum("biw,bw->bi", found, label)), axis=-1)
        user = jnp.einsum("bi,biw->bw", shares, found)
        true = jnp.sum(user * label, axis=-1, keepdims=True)
        logits = jnp.concatenate([true, user @ weights["item_table"][others].T], axis=-1)
        return jnp.mean(cross_entropy(logits, jnp.zeros_like(labels)))

    def inputs(draw: Draw) -> Arguments:
        known = draw.integers(items, batch, length), 1 + draw.integers(length, batch)
        starting = draw.normal(batch, interests, length)
        return (*known, draw.integers(items, batch), draw.integers(items, sampled), starting)

    shapes: Shapes = {"item_table": (items, width), "route": (width, width)}
    shapes |= dense_shapes("deep0", width, 4 * width) | dense_shapes("deep1", 4 * width, width)
    return training(loss, optax.adam(1e-3), shapes, inputs)


BOOKS = {"batch": 256, "length": 100, "users": 543_060, "items": 367_983, "categories": 1601}
FEW = {"batch": 4, "length": 6, "users": 9, "items": 11, "categories": 3}

PAPERS = (
    Paper(
        "multi_interests",
        "FS-2019",
        multi_interests,
        {"batch": 2048, "length": 50, "items": 500_000, "width": 64}
        | {"interests": 4, "rounds": 3, "sampled": 1000},
        {"batch": 4, "length": 5, "items": 20, "width": 6, "interests": 2, "rounds": 2, "sampled": 7},
    ),
    Paper(
        "dien_train",
        "FS-2021",
        dien_training,
        BOOKS | {"width": 18, "first": 200, "second": 80},
        FEW | {"width": 3, "first": 8, "second": 5},
    ),
    Paper(
        "dien_infer",
        "FS-2021",
        dien_inference,
        BOOKS | {"width": 18, "first": 200, "second": 80},
        FEW | {"width": 3, "first": 8, "second": 5},
    ),
)
