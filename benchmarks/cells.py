"""Loops whose turns look at rows of what they go on from, as their users write them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

Case = tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]
"""A function, and the shapes of its arguments, f32."""


def lstm(x: Array, w: Array, u: Array, bias: Array, h: Array, c: Array) -> Any:
    """x: [steps, batch, inputs]; w, u: [inputs, 4 units], [units, 4 units]; h, c: [batch, units]."""

    def turn(carry: tuple[Array, Array], now: Array) -> Any:
        h, c = carry
        i, f, g, o = jnp.split(now @ w + h @ u + bias, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    return lax.scan(turn, (h, c), x)


def gru(x: Array, w: Array, u: Array, bias: Array, h: Array) -> Any:
    """x: [steps, batch, inputs]; w, u: [inputs, 3 units], [units, 3 units]; h: [batch, units]."""

    def turn(h: Array, now: Array) -> Any:
        reset_x, update_x, new_x = jnp.split(now @ w + bias, 3, -1)
        reset_h, update_h, new_h = jnp.split(h @ u, 3, -1)
        new = jnp.tanh(new_x + jax.nn.sigmoid(reset_x + reset_h) * new_h)
        update = jax.nn.sigmoid(update_x + update_h)
        h = (1 - update) * new + update * h
        return h, h

    return lax.scan(turn, h, x)[1]


def forward(start: Array, moves: Array, seen: Array) -> Array:
    """The logarithm of what a hidden Markov model gives sequences: [batch, states], [states, states],
    [steps, batch, states].
    """

    def turn(alpha: Array, now: Array) -> Any:
        return jax.nn.logsumexp(alpha[:, :, None] + moves, 1) + now, None

    return jax.nn.logsumexp(lax.scan(turn, start, seen)[0], -1)


def states(x: Array, decay: Array, b: Array, c: Array) -> Array:
    """A state-space model: x of [steps, batch, channels], decay of [channels, states], b and c of
    [steps, batch, states].
    """

    def turn(state: Array, now: Any) -> Any:
        x, b, c = now
        state = state * jnp.exp(decay) + x[..., None] * b[:, None, :]
        return state, jnp.sum(state * c[:, None, :], -1)

    return lax.scan(turn, jnp.zeros((x.shape[1], *decay.shape)), (x, b, c))[1]


def linear_attention(q: Array, k: Array, v: Array) -> Array:
    """[steps, heads, features] each, with features that are positive."""

    def turn(carry: tuple[Array, Array], now: Any) -> Any:
        total, norm = carry
        q, k, v = now
        total, norm = total + k[:, :, None] * v[:, None, :], norm + k
        return (total, norm), jnp.einsum("bd,bde->be", q, total) / jnp.sum(q * norm, -1, keepdims=True)

    b, d, e = q.shape[1], q.shape[2], v.shape[2]
    start = jnp.zeros((b, d, e)), jnp.full((b, d), 1e-3)
    return lax.scan(turn, start, (jnp.exp(q), jnp.exp(k), v))[1]


def covariances(p: Array, q: Array, f: Array) -> Any:
    """Of Kalman filters [filters, n, n], that see the first of n numbers: 64 steps."""

    def turn(p: Array, _: None) -> Any:
        p = f @ p @ f.T + q @ q.T
        gain = p[:, :, :1] / (1 + p[:, :1, :1])
        return p - gain * p[:, :1, :], p[:, 0, 0]

    return lax.scan(turn, p @ p.swapaxes(1, 2), None, length=64)


def diffused(x: Array) -> Array:
    """500 steps of the heat equation, on rings."""
    return lax.fori_loop(0, 500, lambda _, u: u + 0.1 * (jnp.roll(u, 1, -1) - 2 * u + jnp.roll(u, -1, -1)), x)


def gradient(f: Callable[..., Any], *numbers: int) -> Callable[..., Any]:
    """Of the sum of squares of all that f gives."""

    def total(*args: Array) -> Array:
        return sum((jnp.sum(x * x) for x in jax.tree.leaves(f(*args))), start=jnp.float32(0))

    return jax.grad(total, numbers)


def _lstm(b: int, t: int, n: int) -> tuple[tuple[int, ...], ...]:
    return (t, b, n), (n, 4 * n), (n, 4 * n), (4 * n,), (b, n), (b, n)


def _gru(b: int, t: int, n: int) -> tuple[tuple[int, ...], ...]:
    return (t, b, n), (n, 3 * n), (n, 3 * n), (3 * n,), (b, n)


CELLS: Mapping[str, Case] = {
    **{f"lstm {b}x64x{n}": (lstm, _lstm(b, 64, n)) for b, n in ((32, 64), (32, 256), (1, 128))},
    **{
        f"lstm {b}x64x{n}, gradient": (gradient(lstm, 0, 1, 2, 3), _lstm(b, 64, n))
        for b, n in ((32, 64), (32, 256))
    },
    **{f"gru {b}x64x{n}": (gru, _gru(b, 64, n)) for b, n in ((32, 64), (32, 256), (1, 128))},
    **{
        f"gru {b}x64x{n}, gradient": (gradient(gru, 0, 1, 2, 3), _gru(b, 64, n))
        for b, n in ((32, 64), (32, 256))
    },
    **{f"hmm {b}x100x64": (forward, ((b, 64), (64, 64), (100, b, 64))) for b in (1, 16)},
    **{
        f"hmm {b}x100x64, gradient": (gradient(forward, 1, 2), ((b, 64), (64, 64), (100, b, 64)))
        for b in (1, 16)
    },
    "states 8x256x128x16": (states, ((256, 8, 128), (128, 16), (256, 8, 16), (256, 8, 16))),
    "linear attention 8x256x32": (linear_attention, ((256, 8, 32),) * 3),
    "covariances 100x4x4": (covariances, ((100, 4, 4), (4, 4), (4, 4))),
    "diffused 64x200": (diffused, ((64, 200),)),
}
