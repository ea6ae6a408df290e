"""HMC: Bayesian logistic regression by Hamiltonian Monte Carlo, many chains at once, step size adapted.

python -m examples.hmc
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from examples.common import Jit, Program, main, normal

ACCEPTED = 0.8  # what the step size is adapted to


@dataclass(frozen=True)
class Config:
    rows: int = 1000
    features: int = 24
    chains: int = 16
    leaps: int = 16


SMALL = Config(rows=32, features=3, chains=2, leaps=3)


class Chain(NamedTuple):
    """position: (features + 1,), the coefficients and the logarithm of their prior's scale."""

    position: Array
    log_step: Array


def potential(position: Array, x: Array, y: Array) -> Array:
    """Minus the logarithm of the posterior; x: (rows, features), y: (rows,) of 0 and 1."""
    weights, log_scale = position[:-1], position[-1]
    logits = x @ weights
    likelihood = jnp.sum(y * jax.nn.log_sigmoid(logits) + (1 - y) * jax.nn.log_sigmoid(-logits))
    prior = -0.5 * jnp.sum((weights / jnp.exp(log_scale)) ** 2) - weights.size * log_scale
    return 0.5 * log_scale**2 - likelihood - prior


def leapfrog(gradient: Any, position: Array, momentum: Array, step: Array, leaps: int) -> tuple[Array, Array]:
    def turn(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
        position, momentum = carry
        position = position + step * momentum
        return (position, momentum - step * gradient(position)), None

    momentum = momentum - 0.5 * step * gradient(position)
    (position, momentum), _ = jax.lax.scan(turn, (position, momentum), None, leaps)
    return position, momentum + 0.5 * step * gradient(position)


def transition(chain: Chain, key: Array, x: Array, y: Array, leaps: int) -> tuple[Chain, Array]:
    """One step of one chain, and its potential energy."""
    energy = partial(potential, x=x, y=y)
    draw, accept = jax.random.split(key)
    momentum = jax.random.normal(draw, chain.position.shape)
    step = jnp.exp(chain.log_step)
    proposed, end = leapfrog(jax.grad(energy), chain.position, momentum, step, leaps)
    before = energy(chain.position) + 0.5 * jnp.sum(momentum**2)
    after = energy(proposed) + 0.5 * jnp.sum(end**2)
    probability = jnp.exp(jnp.minimum(0.0, before - after))
    taken = jax.random.uniform(accept) < probability
    position = jnp.where(taken, proposed, chain.position)
    return Chain(position, chain.log_step + 0.05 * (probability - ACCEPTED)), energy(position)


def data(config: Config) -> tuple[Array, Array]:
    random = np.random.default_rng(0)
    x = random.standard_normal((config.rows, config.features)).astype(np.float32)
    weights = random.standard_normal(config.features)
    y = random.random(config.rows) < 1 / (1 + np.exp(-x @ weights))
    return jnp.asarray(x), jnp.asarray(y, jnp.float32)


def make(jit: Jit, small: bool = False) -> Program:
    config = SMALL if small else Config()
    x, y = data(config)

    @partial(jit, donate_argnums=0)  # jax.jit or jstitch.jit
    def step(chains: Chain, key: Array, x: Array, y: Array) -> tuple[Chain, Array]:
        keys = jax.random.split(key, config.chains)
        one = partial(transition, x=x, y=y, leaps=config.leaps)
        chains, energies = jax.vmap(one)(chains, keys)
        return chains, energies.mean()

    def start() -> Chain:
        positions = normal(np.random.default_rng(1), 0.1, config.chains, config.features + 1)
        return Chain(positions, jnp.full(config.chains, jnp.log(0.01)))

    def batch(number: int) -> tuple[Array, Array, Array]:
        return jax.random.fold_in(jax.random.key(1), number), x, y

    return Program(step, start, batch)


if __name__ == "__main__":
    main("hmc")
