"""Steps that take an array apart and join many pieces: heads, ensembles, wavelets, encodings, stencils."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random

import jax
import jax.numpy as jnp

from benchmarks.grammar.program import Array, Extra, Shape, Step

MOST = 24
LARGEST = 1 << 22  # elements of what grows
Part = Callable[[Array, int], Array]


def _scaled(x: Array, number: int) -> Array:
    return x * (1 + 0.1 * number)


def _normed(x: Array, number: int) -> Array:
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5)


def _bounded(x: Array, number: int) -> Array:
    return jnp.tanh(x) if number % 2 else jax.nn.sigmoid(x)


PARTS: tuple[Part, ...] = (_scaled, _normed, _bounded)


def apart(random: Random, shape: Shape, dtype: str) -> Step | None:
    """Pieces of one axis, each by itself, joined again."""
    axis = random.randrange(len(shape))
    n = shape[axis]
    if n < 4:
        return None
    many = random.randint(2, min(MOST, n))
    cuts = sorted(random.sample(range(1, n), many - 1))
    if n % many == 0 and random.random() < 0.5:
        cuts = [*range(n // many, n, n // many)]
    part = random.choice(PARTS)

    def apply(x: Array) -> Array:
        return jnp.concatenate([part(p, k) for k, p in enumerate(jnp.split(x, cuts, axis))], axis)

    return Step(f"{many} pieces of {axis}, {part.__name__.strip('_')}", apply)


def ensemble(random: Random, shape: Shape, dtype: str) -> Step | None:
    """Several of it, stacked and reduced."""
    many, axis = random.randint(2, 12), random.randrange(len(shape) + 1)
    kind = random.choice((jnp.mean, jnp.max, jnp.std, jax.nn.logsumexp, jnp.sum))
    part = random.choice(PARTS)

    def apply(x: Array) -> Array:
        return kind(jnp.stack([part(x + 0.1 * k, k) for k in range(many)], axis), axis)

    return Step(f"{kind.__name__} of {many} {part.__name__.strip('_')} along {axis}", apply)


def wavelet(random: Random, shape: Shape, dtype: str) -> Step | None:
    """Levels of Haar's, along the last axis."""
    levels = min(random.randint(1, 8), (shape[-1] & -shape[-1]).bit_length() - 1)
    if levels < 1:
        return None

    def apply(x: Array) -> Array:
        found = []
        for _ in range(levels):
            even, odd = x[..., ::2], x[..., 1::2]
            found.append((even - odd) * jnp.asarray(math.sqrt(0.5), x.dtype))
            x = (even + odd) * jnp.asarray(math.sqrt(0.5), x.dtype)
        return jnp.concatenate([x, *reversed(found)], -1)

    return Step(f"{levels} levels of Haar", apply)


def encoded(random: Random, shape: Shape, dtype: str) -> Step | None:
    """Sines and cosines of several frequencies."""
    many = random.randint(2, 10)
    if math.prod(shape) * (2 * many + 1) > LARGEST:
        return None

    def apply(x: Array) -> Array:
        waves = [wave(x * 2.0**k) for k in range(many) for wave in (jnp.sin, jnp.cos)]
        return jnp.concatenate([x, *waves], -1)

    return Step(f"encoded in {many} frequencies", apply)


def stencil(random: Random, shape: Shape, dtype: str) -> Step | None:
    """Neighbours along an axis, on a ring or between edges."""
    axis, reach = random.randrange(len(shape)), random.randint(1, 5)
    if shape[axis] <= 2 * reach:
        return None
    mode = random.choice(("wrap", "edge", "constant", "roll"))
    weights = [random.uniform(-1, 1) for _ in range(2 * reach + 1)]

    def apply(x: Array) -> Array:
        return sum(w * v for w, v in zip(weights, _neighbours(x, axis, reach, mode), strict=True))

    return Step(f"stencil of {2 * reach + 1} along {axis}, {mode}", apply)


def _neighbours(x: Array, axis: int, reach: int, mode: str) -> Sequence[Array]:
    if mode == "roll":
        return [jnp.roll(x, k, axis) for k in range(-reach, reach + 1)]
    padded = jnp.pad(x, [(reach, reach) if d == axis else (0, 0) for d in range(x.ndim)], mode=mode)
    n = x.shape[axis]
    return [jax.lax.slice_in_dim(padded, k, k + n, axis=axis) for k in range(2 * reach + 1)]


def raveled(random: Random, shape: Shape, dtype: str) -> Step | None:
    """The array and other tensors, clipped by the norm of all, in one line."""
    sizes = [
        tuple(random.randint(1, 99) for _ in range(random.randint(1, 2)))
        for _ in range(random.randint(1, MOST))
    ]

    def apply(x: Array, *others: Array) -> Array:
        trees = [x, *(v.astype(x.dtype) for v in others)]
        norm = jnp.sqrt(sum(jnp.sum(jnp.square(v.astype(jnp.float32))) for v in trees))
        scale = jnp.minimum(1.0, 1.0 / norm).astype(x.dtype)
        return jnp.concatenate([(v * scale).ravel() for v in trees])

    return Step(f"raveled with {len(sizes)}", apply, tuple(Extra(size) for size in sizes))


def _small(random: Random) -> Shape:
    return tuple(random.randint(1, 99) for _ in range(random.randint(1, 2)))


MAKERS = (apart, apart, ensemble, ensemble, wavelet, encoded, stencil, raveled)
