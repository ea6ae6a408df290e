"""Stencil: waves through a plane, and the gradient through all their steps: what did they pass?

python -m examples.wave
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

from examples.common import Jit, Program, main

SPEED = 0.5  # cells per step


@dataclass(frozen=True)
class Config:
    size: int = 64
    times: int = 150
    shots: int = 4
    edge: int = 8


SMALL = Config(size=16, times=40, shots=1, edge=3)


def laplacian(u: Array) -> Array:
    """Of (shots, size, size), zero outside."""
    p = jnp.pad(u, ((0, 0), (1, 1), (1, 1)))
    around = p[:, 2:, 1:-1] + p[:, :-2, 1:-1] + p[:, 1:-1, 2:] + p[:, 1:-1, :-2]
    return around - 4 * u


def sponge(size: int, edge: int) -> Array:
    """Below 1 near the edges, so that waves die out there."""
    distance = np.minimum(np.arange(size), np.arange(size)[::-1])
    line = np.exp(-0.02 * np.maximum(edge - distance, 0) ** 2 / edge)
    return jnp.asarray(np.outer(line, line), jnp.float32)


def pulse(times: int) -> Array:
    """A Ricker wavelet."""
    t = (jnp.arange(times) - 12.0) / 4.0
    return (1 - 2 * t**2) * jnp.exp(-(t**2))


def heard(speed: Array, sources: Array, config: Config) -> Array:
    """What reaches the other side, (times, shots, size), of pulses at sources (shots, size, size)."""
    damping = sponge(config.size, config.edge)

    @jax.checkpoint
    def turn(carry: tuple[Array, Array], force: Array) -> tuple[tuple[Array, Array], Array]:
        before, now = carry
        after = 2 * now - before + speed**2 * laplacian(now) + force * sources
        return (damping * now, damping * after), now[:, -config.edge]

    still = jnp.zeros_like(sources)
    return jax.lax.scan(turn, (still, still), pulse(config.times))[1]


def loss(speed: Array, sources: Array, truth: Array, config: Config) -> Array:
    """Squared difference from what was heard in truth, relative, and a little of the medium's roughness."""
    misfit = jnp.sum((heard(speed, sources, config) - truth) ** 2) / jnp.sum(truth**2)
    rough = jnp.mean(jnp.diff(speed, axis=0) ** 2) + jnp.mean(jnp.diff(speed, axis=1) ** 2)
    return misfit + rough


def medium(size: int) -> Array:
    """The speed to be found: two discs that are faster and slower than the rest."""
    y, x = np.mgrid[:size, :size] / size
    fast, slow = (np.hypot(x - c, y - 0.5) < 0.15 for c in (0.3, 0.7))
    return jnp.asarray(SPEED * (1 + 0.2 * fast - 0.2 * slow), jnp.float32)


def shots(number: int, config: Config) -> Array:
    """Each of (shots, size, size) is 1 at one cell near an edge."""
    places = np.random.default_rng(number).integers(0, config.size, config.shots)
    sources = np.zeros((config.shots, config.size, config.size), np.float32)
    sources[np.arange(config.shots), config.edge, places] = 1
    return jnp.asarray(sources)


def make(jit: Jit, small: bool = False) -> Program:
    config = SMALL if small else Config()
    optimizer = optax.adam(3e-3, eps=1e-3)  # cells that no wave reaches stay as they are
    real = medium(config.size)
    listen = jax.jit(partial(heard, config=config))

    @partial(jit, donate_argnums=0)  # jax.jit or jstitch.jit
    def step(state: Any, sources: Array, truth: Array) -> tuple[Any, Array]:
        speed, moments = state
        value, gradient = jax.value_and_grad(loss)(speed, sources, truth, config)
        updates, moments = optimizer.update(gradient, moments)
        return (optax.apply_updates(speed, updates), moments), value

    def start() -> Any:
        speed = jnp.full((config.size, config.size), SPEED)
        return speed, optimizer.init(speed)

    def batch(number: int) -> tuple[Array, Array]:
        sources = shots(number, config)
        return sources, listen(real, sources)

    return Program(step, start, batch)


if __name__ == "__main__":
    main("wave")
