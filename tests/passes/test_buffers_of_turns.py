"""Loops that read rows of a buffer and write others, by numbers that turns have."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jstitch

OPTIONS = jstitch.CompileOptions(tune="off", strict=True, verify=True)
AT = {"own": lambda i: i, "last": lambda i: 2 - i, "first": lambda i: 0 * i, "next": lambda i: (i + 1) % 3}
WRITTEN = {
    "constant": lambda u, v, c, i: jnp.zeros_like(v),
    "the same": lambda u, v, c, i: c,
    "the turn's": lambda u, v, c, i: c * i.astype(c.dtype),
    "carried": lambda u, v, c, i: v * 2,
    "read": lambda u, v, c, i: u + 1,
}


@pytest.mark.parametrize("written", WRITTEN)
@pytest.mark.parametrize("write", AT)
@pytest.mark.parametrize("read", AT)
def test_rows_that_are_read_and_written(read: str, write: str, written: str) -> None:
    x = np.linspace(1, 2, 40, dtype=np.float32)

    def f(u: Any, v: Any, c: Any) -> Any:
        def turn(carry: Any, i: Any) -> Any:
            u, v = carry
            row = lax.dynamic_index_in_dim(u, AT[read](i), 0, False)
            new = WRITTEN[written](row, v, c, i)
            return (lax.dynamic_update_index_in_dim(u, new, AT[write](i), 0), v + row), None

        return lax.scan(turn, (u, v), jnp.arange(3))[0]

    def ones(v: Any, c: Any) -> Any:
        return f(jnp.ones((3, 40)), v, c)

    given = np.random.default_rng(0).normal(size=(3, 40)).astype(np.float32)
    for g, args in ((f, (given, x, x[::-1].copy())), (ones, (x, x[::-1].copy()))):
        for a, b in zip(jstitch.jit(g, options=OPTIONS)(*args), jax.jit(g)(*args), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("size", [4, 300])
def test_gradient_of_a_loop_that_fills_a_buffer(size: int) -> None:
    def filled(x: Any) -> Any:
        def turn(i: Any, carry: Any) -> Any:
            u, x = carry
            x = jnp.sin(x)
            return lax.dynamic_update_index_in_dim(u, x, i, 0), x

        return lax.fori_loop(0, 3, turn, (jnp.zeros((3, *x.shape), x.dtype), x))[0]

    x = np.linspace(1, 2, size, dtype=np.float32)
    gradient = jax.grad(lambda x: filled(x).sum())
    for options in (OPTIONS, jstitch.CompileOptions()):
        found = jstitch.jit(gradient, options=options)(x)
        np.testing.assert_allclose(found, jax.jit(gradient)(x), rtol=1e-5)


def test_what_a_turn_has_from_xla_goes_into_a_stack() -> None:
    """A carry that is a complex number whole is passed on to what is carried in parts."""

    def slices(x: Any) -> Any:
        return lax.scan(lambda c, _: (jnp.fft.fft(c), c), x, None, length=3)[1] * 2

    def swapped(x: Any) -> Any:
        return lax.fori_loop(0, 3, lambda i, s: (jnp.sort(s[0]), s[0]), (x, x * 2))[1] * 2

    x = (np.linspace(1, 2, 8) + 1j).astype(np.complex64)
    for f in (slices, swapped):
        np.testing.assert_allclose(jstitch.jit(f, options=OPTIONS)(x), jax.jit(f)(x), rtol=1e-5, atol=1e-5)
