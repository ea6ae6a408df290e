"""Donated buffers, aliases and calls in flight: written in place, never written too early."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from robustness_support import STRICT

import jstitch

SHAPE = (64, 256)


def update(p: Any, g: Any) -> Any:
    scale = jnp.sqrt((g**2).mean(-1, keepdims=True)) + 1e-3
    return p - 0.1 * jnp.tanh(g) / scale


def _array(seed: int) -> Any:
    return jnp.asarray(np.random.default_rng(seed).normal(size=SHAPE).astype(np.float32))


def _stitched(f: Callable[..., Any], **kwargs: Any) -> Any:
    return jstitch.jit(lambda *args: f(*args), options=STRICT, **kwargs)


def test_a_donated_argument_is_written_in_place() -> None:
    f = _stitched(update, donate_argnums=0)
    since = jstitch.record_count()
    p, g = _array(0), _array(1)
    expected = update(p, g)
    f(_array(0), g)
    assert jstitch.stitch_count(since) == 1
    where = p.unsafe_buffer_pointer()
    found = f(p, g)
    assert found.unsafe_buffer_pointer() == where
    assert p.is_deleted()
    assert not g.is_deleted()
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)
    np.testing.assert_array_equal(g, _array(1))


def test_using_a_donated_argument_again_is_jaxs_error() -> None:
    for api in (jax.jit, _stitched):
        p, g = _array(0), _array(1)
        f = api(update, donate_argnums=0)
        f(p, g)
        with pytest.raises((RuntimeError, ValueError), match=r"deleted|donated"):  # jax.jit has both
            f(p, g)
        with pytest.raises(RuntimeError, match="deleted"):
            np.asarray(p)


@pytest.mark.parametrize("donate", [0, 1, (0, 1)], ids=str)
def test_one_array_for_two_arguments(donate: Any) -> None:
    """What jax.jit makes of f(x, x) with x donated once or twice: the same result, or the same error."""

    def attempt(api: Callable[..., Any]) -> Any:
        x = _array(2)
        try:
            return np.asarray(api(update, donate_argnums=donate)(x, x))
        except (RuntimeError, ValueError) as error:  # jax.jit has both
            return str(error)

    found, expected = attempt(_stitched), attempt(jax.jit)
    if isinstance(expected, str):
        assert found == expected
    else:
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)


def test_a_chain_of_donations_in_flight() -> None:
    """50 steps are dispatched before the first one is waited for."""
    f, plain = _stitched(update, donate_argnums=0), jax.jit(update)
    p, q = _array(0), _array(0)
    gradients = [_array(k) for k in range(1, 5)]
    for k in range(50):
        p, q = f(p, gradients[k % 4]), plain(q, gradients[k % 4])
    np.testing.assert_allclose(p, q, rtol=1e-4, atol=1e-5)


def test_an_argument_that_is_read_after_it_could_be_overwritten() -> None:
    """The first result may take p's memory, but the second still needs all of p."""

    def f(p: Any, g: Any) -> Any:
        new = update(p, g)
        return new, p.sum(0) + new.sum(0), jnp.flip(p, 0) * 2

    p, g = _array(3), _array(4)
    expected = jax.jit(f)(p, g)
    for got, want in zip(_stitched(f, donate_argnums=0)(p, g), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


def test_results_that_trade_places() -> None:
    """Both arguments are donated and each result is made of both."""

    def swap(a: Any, b: Any) -> Any:
        return b * 2 + jnp.tanh(a), a * 3 + b.mean(0)

    a, b = _array(5), _array(6)
    expected = jax.jit(swap)(a, b)
    for got, want in zip(_stitched(swap, donate_argnums=(0, 1))(a, b), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)


def test_numpy_arguments_are_never_written() -> None:
    p, g = np.array(_array(7)), np.array(_array(8))
    kept = p.copy(), g.copy()
    _stitched(update, donate_argnums=0)(p, g).block_until_ready()
    np.testing.assert_array_equal(p, kept[0])
    np.testing.assert_array_equal(g, kept[1])
