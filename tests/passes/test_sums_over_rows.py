"""Sums over rows on a CPU are as near float64 as the numerics rule asks: a few rows meet before all do."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jstitch

OPTIONS = jstitch.CompileOptions(tune="off")
SEEDS = 8


def sums(x: Any) -> tuple[Any, Any]:
    return jnp.sum(x * 3, 0), jnp.tanh(x)


def error(f: Any, x: np.ndarray) -> float:
    """Of the sums, in the mean of squares."""
    exact = (np.asarray(x, np.float64) * 3).sum(0)
    return float(((np.asarray(f(x)[0], np.float64) - exact) ** 2).mean())


@pytest.mark.parametrize(("rows", "columns"), [(64, 768), (256, 77), (256, 768), (1024, 768), (4000, 77)])
def test_errors_are_within_twice_those_of_jax_jit(rows: int, columns: int) -> None:
    since = jstitch.record_count()
    ours, theirs = jstitch.jit(sums, options=OPTIONS), jax.jit(sums)
    given = [np.random.default_rng(n).standard_normal((rows, columns), np.float32) for n in range(SEEDS)]
    assert sum(error(ours, x) for x in given) < 4 * sum(error(theirs, x) for x in given)
    assert jstitch.stitch_count(since)


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 8, 12, 31, 513])
def test_every_row_is_counted_once(rows: int) -> None:
    x = np.arange(rows * 130, dtype=np.float32).reshape(rows, 130) % 7
    ours = jstitch.jit(sums, options=OPTIONS)(x)[0]
    np.testing.assert_array_equal(ours, (x * 3).sum(0))
