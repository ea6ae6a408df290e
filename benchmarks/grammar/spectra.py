"""Complex numbers between real ones, Fourier transforms, and butterflies along the last dimension."""

from __future__ import annotations

from random import Random

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.grammar.program import Array, Extra, Shape, Step

LONGEST = 4096  # elements of a transform, turns of a loop


def _wide(x: Array) -> Array:
    """As wide as transforms and parts of complex numbers are at least."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def rotated(random: Random, shape: Shape, dtype: str) -> Step | None:
    """Rotary embeddings: pairs of elements, neighbours or those of two halves, turned by an angle."""
    if len(shape) < 2 or shape[-1] % 2:
        return None
    half, neighbours = shape[-1] // 2, random.random() < 0.5

    def apply(x: Array, angle: Array) -> Array:
        wide = _wide(x)
        a, b = (wide[..., 0::2], wide[..., 1::2]) if neighbours else jnp.split(wide, 2, -1)
        z = jax.lax.complex(a, b) * jnp.exp(1j * angle)
        if neighbours:
            return jnp.stack([z.real, z.imag], -1).reshape(x.shape).astype(x.dtype)
        return jnp.concatenate([z.real, z.imag], -1).astype(x.dtype)

    return Step("turned in pairs", apply, (Extra((shape[-2], half)),))


def filtered(random: Random, shape: Shape, dtype: str) -> Step | None:
    n = shape[-1]
    if not 4 <= n <= LONGEST:
        return None

    def apply(x: Array, re: Array, im: Array) -> Array:
        spectrum = jnp.fft.rfft(_wide(x)) * jax.lax.complex(re, im)
        return jnp.fft.irfft(spectrum, n).astype(x.dtype)

    return Step("filtered", apply, (Extra((n // 2 + 1,)), Extra((n // 2 + 1,))))


def magnitudes(random: Random, shape: Shape, dtype: str) -> Step | None:
    if not 4 <= shape[-1] <= LONGEST:
        return None

    def apply(x: Array) -> Array:
        return jnp.log1p(jnp.abs(jnp.fft.rfft(_wide(x)))).astype(x.dtype)

    return Step("magnitudes of the spectrum", apply)


def state_space(random: Random, shape: Shape, dtype: str) -> Step | None:
    """A linear recurrence along the first dimension whose state is complex."""
    if not 1 < shape[0] <= LONGEST or len(shape) < 2:
        return None

    def apply(x: Array, size: Array, angle: Array) -> Array:
        decay = jnp.exp(-jnp.exp(size) + 1j * angle)

        def turn(h: Array, v: Array) -> tuple[Array, Array]:
            h = decay * h + v
            return h, h.real

        return jax.lax.scan(turn, jnp.zeros(x.shape[1:], decay.dtype), x)[1].astype(x.dtype)

    return Step("complex state space along 0", apply, (Extra(shape[-1:]), Extra(shape[-1:])))


def butterfly(random: Random, shape: Shape, dtype: str) -> Step | None:
    """The Walsh-Hadamard transform of blocks, as long as the last dimension has powers of two."""
    size = min(shape[-1] & -shape[-1], random.choice((8, 64, 512)))
    if size < 4:
        return None

    def apply(x: Array) -> Array:
        y, h = x, 1
        while h < size:
            pairs = y.reshape(*x.shape[:-1], x.shape[-1] // (2 * h), 2, h)
            a, b = pairs[..., 0, :], pairs[..., 1, :]
            y, h = jnp.stack([a + b, a - b], -2).reshape(x.shape), 2 * h
        return y * jnp.asarray(size**-0.5, x.dtype)

    return Step(f"butterfly of {size}", apply)


def ordered(random: Random, shape: Shape, dtype: str) -> Step | None:
    axis = random.randrange(len(shape))
    if not 1 < shape[axis] <= LONGEST or np.prod(shape) > 1 << 20:
        return None
    by = random.choice(("sort", "median"))

    def apply(x: Array) -> Array:
        return jnp.sort(x, axis) if by == "sort" else x - jnp.median(x, axis, keepdims=True)

    return Step(f"{by} along {axis}", apply)


MAKERS = (rotated, filtered, magnitudes, state_space, butterfly, ordered)
