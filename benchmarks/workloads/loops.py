"""Loops of small things: scalars, an LSTM of four sequences, an ODE solver. XLA makes one kernel of most.

Their sizes are numbers of turns.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from benchmarks.workload import Problem, Size, Workload, normal
from benchmarks.workloads.recurrent import layer, lstm

COUNTS = (1, 4, 16, 60)
TURNS = {Size.L2: (10,), Size.L3: (614,), Size.DRAM: (10_000,)}


def scalars(starts: list[Array], slope: Array, xs: Array) -> Array:
    """Each of the scalars goes its own way through the loop."""

    def turn(carried: list[Array], x: Array) -> tuple[list[Array], Array]:
        carried = [jnp.tanh(a * 0.9 + slope * x) for a in carried]
        return carried, carried[0]

    last, firsts = jax.lax.scan(turn, starts, xs)
    return jnp.sum(firsts) + sum(last)


def runge_kutta(states: Array, step: Array, xs: Array) -> Array:
    """(turns,) -> the first coordinate of Lorenz's equations at each turn, for many starts (3, n)."""

    def field(s: Array) -> Array:
        x, y, z = s
        return jnp.stack([10.0 * (y - x), x * (28.0 - z) - y, x * y - 8.0 / 3.0 * z])

    def turn(s: Array, x: Array) -> tuple[Array, Array]:
        first = field(s)
        second = field(s + step / 2 * first)
        third = field(s + step / 2 * second)
        s = s + step / 6 * (first + 2 * second + 2 * third + field(s + step * third)) + 1e-6 * x
        return s, s[0]

    return jax.lax.scan(turn, states, xs)[1]


def scalar_loop(count: int, turns: int, *, gradient: bool, dtype: Any = np.float32) -> Problem:
    starts = [jnp.asarray(0.1 * k, dtype) for k in range(count)]
    xs = jnp.linspace(0.0, 1.0, turns, dtype=dtype)
    return Problem(jax.grad(scalars) if gradient else scalars, (starts, jnp.asarray(0.3, dtype), xs))


def ode_loop(turns: int) -> Problem:
    starts = 0.1 + abs(normal((3, 64)))
    return Problem(runge_kutta, (starts, jnp.float32(1e-3), jnp.linspace(0.0, 1.0, turns)))


def lstm_gradient(turns: int) -> Problem:
    """Of four sequences at a time, 64 wide."""
    problem = layer(lstm, 4, turns, 4, 64)
    loss = jax.grad(lambda weights, xs: jnp.mean(lstm(weights, xs) ** 2))
    return Problem(loss, problem.args)


def _scalar_loop(count: int, gradient: bool, dtype: Any = np.float32) -> Workload:
    name = f"scalar_loop_K{count}{'_grad' if gradient else ''}{'' if dtype is np.float32 else '_f64'}"
    make = partial(scalar_loop, gradient=gradient, dtype=dtype)
    return Workload(name, lambda turns: make(count, turns), TURNS)


WORKLOADS = (
    *(_scalar_loop(count, gradient) for count in COUNTS for gradient in (False, True)),
    Workload("small_lstm_grad", lstm_gradient, {Size.L2: (16,), Size.L3: (64,), Size.DRAM: (512,)}),
    Workload("ode_loop", ode_loop, TURNS),
)
WIDE_WORKLOADS = tuple(_scalar_loop(count, gradient=True, dtype=np.float64) for count in COUNTS[1::2])
"""Of a process where 64-bit types stay."""
