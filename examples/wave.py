"""Stencil: a wave in a plane, and the gradient through all its steps: which medium makes these echoes?

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

SPEED = 0.4  # cells per step


@dataclass(frozen=True)
class Config:
    size: int = 128
    times: int = 80
    shots: int = 2


SMALL = Config(size=12, times=6, shots=1)


def laplacian(u: Array) -> Array:
    """Of (shots, size, size), zero outside."""
    p = jnp.pad(u, ((0, 0), (1, 1), (1, 1)))
    around = p[:, 2:, 1:-1] + p[:, :-2, 1:-1] + p[:, 1:-1, 2:] + p[:, 1:-1, :-2]
    return around - 4 * u


def sponge(size: int, width: int = 8) -> Array:
    """Below 1 near the edges, so that waves die out there."""
    edge = np.minimum(np.arange(size), np.arange(size)[::-1])
    line = np.exp(-0.02 * np.maximum(width - edge, 0) ** 2 / width)
    return jnp.asarray(np.outer(line, line), jnp.float32)


def pulse(times: int) -> Array:
    """A Ricker wavelet."""
    t = (jnp.arange(times) - 12.0) / 4.0
    return (1 - 2 * t**2) * jnp.exp(-(t**2))


def echoes(speed: Array, sources: Array, times: int) -> Array:
    """What the second row hears, (times, shots, size), of pulses at sources (shots, size, size)."""
    damping = sponge(len(speed))

    @jax.checkpoint
    def turn(carry: tuple[Array, Array], force: Array) -> tuple[tuple[Array, Array], Array]:
        before, now = carry
        after = 2 * now - before + speed**2 * laplacian(now) + force * sources
        return (damping * now, damping * after), now[:, 1]

    still = jnp.zeros_like(sources)
    return jax.lax.scan(turn, (still, still), pulse(times))[1]


def loss(speed: Array, sources: Array, heard: Array) -> Array:
    """Mean squared difference, and a little of the medium's roughness."""
    misfit = jnp.mean((echoes(speed, sources, len(heard)) - heard) ** 2)
    rough = jnp.mean(jnp.diff(speed, axis=0) ** 2) + jnp.mean(jnp.diff(speed, axis=1) ** 2)
    return 1e3 * misfit + rough


def medium(size: int) -> Array:
    """The speed to be found: two discs that are faster and slower than the rest."""
    y, x = np.mgrid[:size, :size] / size
    fast, slow = (np.hypot(x - c, y - 0.3) < 0.15 for c in (0.3, 0.7))
    return jnp.asarray(SPEED * (1 + 0.2 * fast - 0.2 * slow), jnp.float32)


def shots(number: int, config: Config) -> Array:
    """Each of (shots, size, size) is 1 at one cell of the second row."""
    places = np.random.default_rng(number).integers(0, config.size, config.shots)
    sources = np.zeros((config.shots, config.size, config.size), np.float32)
    sources[np.arange(config.shots), 1, places] = 1
    return jnp.asarray(sources)


def make(jit: Jit, small: bool = False) -> Program:
    config = SMALL if small else Config()
    optimizer = optax.adam(2e-3)
    truth = medium(config.size)
    listen = jax.jit(partial(echoes, times=config.times))

    @partial(jit, donate_argnums=0)  # jax.jit or jstitch.jit
    def step(state: Any, sources: Array, heard: Array) -> tuple[Any, Array]:
        speed, moments = state
        value, gradient = jax.value_and_grad(loss)(speed, sources, heard)
        updates, moments = optimizer.update(gradient, moments)
        return (optax.apply_updates(speed, updates), moments), value

    def start() -> Any:
        speed = jnp.full((config.size, config.size), SPEED)
        return speed, optimizer.init(speed)

    def batch(number: int) -> tuple[Array, Array]:
        sources = shots(number, config)
        return sources, listen(truth, sources)

    return Program(step, start, batch)


if __name__ == "__main__":
    main("wave")
