"""Random loops of small things: scans and other loops, with branches, loops and products in them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

Carried = tuple[Array, ...]
UNARY: tuple[Callable[[Array], Array], ...] = (
    jnp.tanh, jnp.sin, jax.nn.sigmoid, jnp.abs, lambda x: x * 0.9, lambda x: x + 0.1, lambda x: -x,
    lambda x: jnp.sqrt(jnp.abs(x) + 0.1), lambda x: jnp.log1p(jnp.abs(x)), lambda x: jnp.tanh(jnp.exp(x)),
)  # fmt: skip
BINARY: tuple[Callable[[Array, Array], Array], ...] = (
    jnp.add, jnp.multiply, jnp.subtract, jnp.maximum, lambda a, b: a / (jnp.abs(b) + 1.0),
    lambda a, b: jnp.where(a > b, a, b * 0.5),
)  # fmt: skip
SHAPES = ((), (), (2,), (3,), (8,), (16,), (64,), (3, 3), (4, 64), (256,))


@dataclass(frozen=True)
class Step:
    """One op: of two values at these shares of those there are. unary, binary: which of the functions."""

    unary: int | None
    binary: int
    first: float
    second: float


@dataclass(frozen=True)
class Body:
    """What a turn does."""

    steps: tuple[Step, ...]
    shape: tuple[int, ...]
    mean: bool
    product: bool
    branch: bool
    nested: bool

    def __call__(self, carried: Carried, x: Array) -> Carried:
        values = [*carried, x]
        for step in self.steps:
            a, b = (values[int(share * len(values))] for share in (step.first, step.second))
            values.append(BINARY[step.binary](a, b) if step.unary is None else UNARY[step.unary](a))
        new = [self.bounded(v, old) for v, old in zip(reversed(values), carried, strict=False)]
        if self.mean:
            new[0] = new[0] - jnp.mean(new[0])
        if self.product and len(self.shape) == 1:
            weights = np.random.default_rng(0).standard_normal((*self.shape, *self.shape)) * 0.1
            new[-1] = jnp.tanh(new[-1] @ jnp.asarray(weights, new[-1].dtype))
        if self.branch:
            new[0] = lax.cond(jnp.sum(new[0]) > 0, jnp.sin, lambda v: v * 1.1, new[0])
        if self.nested:
            new[0] = lax.fori_loop(0, 5, lambda i, v: jnp.cos(v) * 0.9 + 0.1 * i.astype(v.dtype), new[0])
        return tuple(new)

    def bounded(self, value: Array, old: Array) -> Array:
        return jnp.broadcast_to(jnp.tanh(value * 0.5 + old * 0.3), self.shape).astype(old.dtype)


def random_loop(seed: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A function and its arguments."""
    draw = random.Random(seed)
    shape = draw.choice(SHAPES)
    turns = draw.choice((10, 37, 614))
    body = Body(
        tuple(_random_step(draw) for _ in range(draw.choice((2, 5, 10, 20)))),
        shape,
        mean=draw.random() < 0.3,
        product=draw.random() < 0.15,
        branch=draw.random() < 0.15,
        nested=draw.random() < 0.15,
    )
    starts = tuple(jnp.full(shape, 0.1 * (k + 1)) for k in range(draw.choice((1, 2, 4, 8, 16))))
    xs = jnp.linspace(0.0, 1.0, turns)
    match draw.choice(("scan", "gradient", "fori", "while")):
        case "scan":
            return scanned(body), (starts, xs)
        case "gradient":
            return jax.grad(scanned(body)), (starts, xs)
        case "fori":
            return lambda c, xs: lax.fori_loop(0, turns, lambda i, c: body(c, xs[i]), c), (starts, xs)
        case _:
            return searched(body), (starts, jnp.int32(turns))


def scanned(body: Body) -> Callable[..., Any]:
    def turn(carried: Carried, x: Array) -> tuple[Carried, Array]:
        new = body(carried, x)
        return new, new[0]

    def loss(starts: Carried, xs: Array) -> Array:
        last, stack = lax.scan(turn, starts, xs)
        return jnp.sum(stack) + sum(map(jnp.sum, last))

    return loss


def searched(body: Body) -> Callable[..., Any]:
    """A loop whose number of turns is not known."""

    def goes_on(state: tuple[Array, Carried]) -> Array:
        return (state[0] < state[1][0].size * 0 + 1000) & (jnp.sum(state[1][0]) < 1e30)

    def turn(state: tuple[Array, Carried]) -> tuple[Array, Carried]:
        return state[0] + 1, body(state[1], state[0].astype(state[1][0].dtype) * 0.01)

    return lambda starts, first: lax.while_loop(goes_on, turn, (1000 - first, starts))


def _random_step(draw: random.Random) -> Step:
    unary = draw.randrange(len(UNARY)) if draw.random() < 0.5 else None
    return Step(unary, draw.randrange(len(BINARY)), draw.random(), draw.random())
