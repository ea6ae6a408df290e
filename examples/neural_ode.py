"""Neural ODE: learn a spiral's vector field; Runge-Kutta by scan, its gradient by the adjoint equation.

python -m examples.neural_ode
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
STEP = 0.05


@dataclass(frozen=True)
class Config:
    batch: int = 256
    times: int = 40
    width: int = 64


SMALL = Config(batch=4, times=5, width=8)


def init(random: np.random.Generator, width: int) -> Params:
    sizes = ((2, width), (width, width), (width, 2))
    return [(normal(random, inputs**-0.5, inputs, outputs), jnp.zeros(outputs)) for inputs, outputs in sizes]


def field(params: Params, y: Array) -> Array:
    """dy/dt at y (batch, 2)."""
    *hidden, (w, b) = params
    for weights, bias in hidden:
        y = jnp.tanh(y @ weights + bias)
    return y @ w + b


def runge_kutta(f: Any, y: Any, h: float) -> Any:
    """One step of fourth order; y: any tree of arrays."""

    def moved(k: Any, by: float) -> Any:
        return jax.tree.map(lambda a, b: a + by * b, y, k)

    one = f(y)
    two = f(moved(one, h / 2))
    three = f(moved(two, h / 2))
    four = f(moved(three, h))
    return jax.tree.map(
        lambda a, k1, k2, k3, k4: a + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4), y, one, two, three, four
    )


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def solve(params: Params, start: Array, times: int) -> Array:
    """The path from start (batch, 2): (times, batch, 2)."""

    def turn(y: Array, _: None) -> tuple[Array, Array]:
        y = runge_kutta(partial(field, params), y, STEP)
        return y, y

    return jax.lax.scan(turn, start, None, times)[1]


def solve_forward(params: Params, start: Array, times: int) -> tuple[Array, tuple[Params, Array]]:
    path = solve(params, start, times)
    return path, (params, path)


def solve_backward(times: int, kept: tuple[Params, Array], cotangents: Array) -> tuple[Params, Array]:
    """Integrate the adjoint a and the parameters' gradient backwards in time, along the path."""
    params, path = kept

    def augmented(state: tuple[Array, Array, Params]) -> tuple[Array, Array, Params]:
        y, adjoint, _ = state
        value, pull = jax.vjp(field, params, y)
        by_params, by_y = pull(adjoint)
        return -value, by_y, by_params

    def turn(carry: tuple[Array, Params], now: tuple[Array, Array]) -> tuple[tuple[Array, Params], None]:
        adjoint, gradient = carry
        y, cotangent = now
        _, adjoint, gradient = runge_kutta(augmented, (y, adjoint + cotangent, gradient), STEP)
        return (adjoint, gradient), None

    zero = jnp.zeros_like(path[0]), jax.tree.map(jnp.zeros_like, params)
    (adjoint, gradient), _ = jax.lax.scan(turn, zero, (path, cotangents), reverse=True)
    return gradient, adjoint


solve.defvjp(solve_forward, solve_backward)


def loss(params: Params, path: Array) -> Array:
    """Mean squared distance from the path (times + 1, batch, 2)."""
    return jnp.mean((solve(params, path[0], len(path) - 1) - path[1:]) ** 2)


def spirals(number: int, config: Config) -> tuple[Array]:
    """Paths (times + 1, batch, 2) of damped turning, with noise."""
    random = np.random.default_rng(number)
    y = random.uniform(-2, 2, (config.batch, 2))
    turning = np.array([[-0.1, 2.0], [-2.0, -0.1]])
    eigenvalues, vectors = np.linalg.eig(turning)
    t = STEP * np.arange(config.times + 1)
    powers = (vectors * np.exp(t[:, None, None] * eigenvalues)) @ np.linalg.inv(vectors)
    path = np.einsum("tij,bj->tbi", powers.real, y) + 0.01 * random.standard_normal((len(t), *y.shape))
    return (jnp.asarray(path, jnp.float32),)


def make(jit: Jit, small: bool = False) -> Program:
    config = SMALL if small else Config()
    optimizer = optax.adam(3e-3)

    @partial(jit, donate_argnums=0)  # jax.jit or jstitch.jit
    def step(state: Any, path: Array) -> tuple[Any, Array]:
        params, moments = state
        value, gradients = jax.value_and_grad(loss)(params, path)
        updates, moments = optimizer.update(gradients, moments)
        return (optax.apply_updates(params, updates), moments), value

    def start() -> Any:
        params = init(np.random.default_rng(0), config.width)
        return params, optimizer.init(params)

    return Program(step, start, partial(spirals, config=config))


if __name__ == "__main__":
    main("neural_ode")
