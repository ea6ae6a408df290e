"""Random loops: what a turn goes on from, what it reads and leaves, in which order, around what.

draw(7)  ->  Loop(f, (carry, stacked inputs, ...)), about `lax.scan(step, carry, xs, reverse=True)`
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

TURNS = (0, 1, 2, 9, 13, 64, 1000)
SHAPES: tuple[tuple[int, ...], ...] = (
    (),
    (1,),
    (3,),
    (16,),
    (17,),
    (64,),
    (5, 7),
    (2, 3, 4),
    (600,),
    (1200,),
)
DTYPES = ("float32",) * 6 + ("bfloat16", "float16", "int32")


@dataclass(frozen=True)
class Loop:
    """A function and its arguments, in the type that it is drawn for. about: for those who look at it."""

    function: Callable[..., Any]
    arguments: tuple[np.ndarray, ...]
    dtype: str
    about: str


def draw(seed: int) -> Loop:
    """The loop of that number."""
    rng = random.Random(seed)
    dtype, shape, turns = rng.choice(DTYPES), rng.choice(SHAPES), rng.choice(TURNS)
    carries, inputs = rng.randint(1, 4), rng.randint(0, 3)
    floats = dtype != "int32"
    axis = rng.choice((0, 0, 0, len(shape)))
    step = _step(random.Random(rng.random()), carries, inputs, floats)
    reverse, unroll = rng.random() < 0.4, rng.choice((1, 1, 1, 2))
    lone = rng.random() < 0.2  # a number that all elements have in common
    around, nested = rng.random() < 0.5, rng.random() < 0.15
    shared = (
        bool(shape) and rng.random() < 0.4
    )  # weights of the last dimension, which all turns have in common
    mode = rng.choice(("plain", "plain", "plain", "grad", "vmap", "vmap grad")) if floats else "plain"
    mixes = _mixes(rng, carries, shape) if floats and rng.random() < 0.5 else ()
    matrix = "product" in mixes

    def run(*arrays: Any) -> Any:
        start = arrays[:carries]
        xs = [jnp.moveaxis(x, axis, 0) for x in arrays[carries : carries + inputs]]
        weights = [jnp.broadcast_to(arrays[carries + inputs], shape)] if shared else []
        if around:
            xs = [x * 2 + 1 for x in xs]
        first = (*start, jnp.zeros((), start[0].dtype)) if lone else tuple(start)

        def turn(carry: Any, parts: Any) -> Any:
            number, inputs_now = parts
            new, left = step(carry[:carries], [*inputs_now, *weights], number)
            new = tuple(_mixed(kind, v, arrays[-1]) for kind, v in zip(mixes, new, strict=False)) or new
            if lone:
                new = (*new, carry[-1] + 1)
                left = left * (carry[-1] > 3)
            return new, left

        numbers = jnp.arange(turns)
        last, left = lax.scan(turn, first, (numbers, tuple(xs)), reverse=reverse, unroll=unroll)
        if around and xs:
            left = left + xs[0]
        return last[:carries], jnp.moveaxis(left, 0, axis)

    def twice(*arrays: Any) -> Any:
        def outer(carry: Any, _: None) -> Any:
            new, left = run(*carry, *arrays[carries:])
            return tuple(new), left

        return lax.scan(outer, tuple(arrays[:carries]), None, length=3)

    function = twice if nested else run
    stacked = (*shape[:axis], turns, *shape[axis:])
    if mode != "plain":
        function = _transformed(function, mode)
    batch = (3,) if "vmap" in mode else ()
    shapes = [(*batch, *shape)] * carries + [(*batch, *stacked)] * inputs
    shapes += [(*batch, *shape[-1:])] * shared
    shapes += [(*batch, shape[-1], shape[-1])] if matrix else []
    values = np.random.default_rng(seed)
    arguments = tuple(_array(values, s, floats) for s in shapes)
    about = (
        f"{seed}: {dtype}{list(shape)}, {turns} turns, {carries} carries, {inputs} inputs at {axis}, {mode}"
    )
    about += f"{', reversed' * reverse}{', nested' * nested}{', alone' * lone}{', weights' * shared}"
    about += f", unroll {unroll}, {' '.join(mixes)}"
    return Loop(function, arguments, dtype, about)


MIXES = ("", "softmax", "normed", "rolled", "total", "product", "logsumexp", "shifted")


def _mixes(rng: random.Random, carries: int, shape: Sequence[int]) -> tuple[str, ...]:
    """How turns look at other elements of a row, for each carry."""
    if not shape:
        return ()
    kinds = MIXES if shape[-1] <= 64 else MIXES[:5]
    return tuple(rng.choice(kinds) for _ in range(carries))


def _mixed(kind: str, x: Any, matrix: Any) -> Any:
    """Of the last dimension; what comes out is no larger than what goes in."""
    match kind:
        case "softmax":
            return jax.nn.softmax(x, -1)
        case "normed":
            mean = jnp.mean(x, -1, keepdims=True)
            return 0.5 * (x - mean) / jnp.sqrt(1 + jnp.mean((x - mean) ** 2, -1, keepdims=True))
        case "rolled":
            return jnp.roll(x, 2, -1)
        case "total":
            return 0.5 * x + 0.5 * jnp.max(x, -1, keepdims=True)
        case "product":
            return jnp.tanh(x @ matrix / x.shape[-1]).astype(x.dtype)
        case "logsumexp":
            moved = jnp.tanh(x[..., :, None] + x[..., None, :])
            return jax.nn.logsumexp(moved, -1) / (1 + x.shape[-1])
        case "shifted":
            return jnp.concatenate([jnp.zeros_like(x[..., :1]), x[..., :-1]], -1)
    return x


def _array(values: np.random.Generator, shape: Sequence[int], floats: bool) -> np.ndarray:
    return values.standard_normal(shape) if floats else values.integers(-9, 9, shape)


def _transformed(function: Callable[..., Any], mode: str) -> Callable[..., Any]:
    if "grad" in mode:
        plain = function

        def total(*arrays: Any) -> Any:
            return sum(jnp.sum(jnp.sin(x.astype(jnp.float32))) for x in jax.tree.leaves(plain(*arrays)))

        def function(*arrays: Any) -> Any:
            return jax.grad(total, argnums=tuple(range(len(arrays))))(*arrays)

    return jax.vmap(function) if "vmap" in mode else function


def _step(rng: random.Random, carries: int, inputs: int, floats: bool) -> Callable[..., Any]:
    """A turn that forgets: small differences stay small."""
    plans = [(rng.randrange(6), rng.randrange(9), rng.randrange(9), rng.random()) for _ in range(carries + 2)]

    def combined(plan: tuple[int, int, int, float], values: Sequence[Any]) -> Any:
        kind, a, b, k = plan
        x, y = values[a % len(values)], values[b % len(values)]
        if not floats:
            return (x + y, x - y, jnp.maximum(x, y), x ^ y, x * 3 + y, jnp.where(x > y, x, y))[kind]
        made = (
            x * k + y,
            jnp.tanh(x) - y,
            jnp.maximum(x, y),
            jnp.where(x > y, x, y * k),
            x * y,
            jax.nn.sigmoid(x),
        )
        return made[kind]

    def step(carry: Sequence[Any], xs: Sequence[Any], number: Any) -> Any:
        values = [*carry, *xs]
        if plans[-1][0] == 0:
            values.append(jnp.broadcast_to((number % 5).astype(carry[0].dtype), carry[0].shape))
        made = [combined(plan, values) for plan in plans]
        new = tuple(_bounded(v, c, floats) for v, c in zip(made, carry, strict=False))
        return new, made[carries] if plans[-1][1] < 6 else new[0]

    return step


def _bounded(new: Any, old: Any, floats: bool) -> Any:
    if not floats:
        return new
    return (0.5 * old + 0.4 * jnp.tanh(new)).astype(old.dtype)
