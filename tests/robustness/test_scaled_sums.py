"""Sums of what a program scales so that they stay in range, or that have no number in them, are XLA's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jstitch

OPTIONS = jstitch.CompileOptions(tune="off", verify=True)
DRAWN = np.random.default_rng(0).standard_normal((3, 50)).astype(np.float32)
ROWS = np.array([[0, 1, 2], [0, 0, 3]], np.float32)
ZERO, ONE = np.zeros(2, np.float32), np.ones((3, 5), np.float32)


def kurtosis(x: Any) -> Any:
    return (((x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True)) ** 4).mean(1)


def skewness(x: Any) -> Any:
    deviation = jnp.sqrt(x.var(1, keepdims=True) + 1e-6)
    return (((x - x.mean(1, keepdims=True)) / deviation) ** 3).mean(1)


def length(x: Any) -> Any:
    """Which neither overflows nor underflows."""
    most = jnp.abs(x).max(1, keepdims=True)
    return most[:, 0] * jnp.sqrt(((x / most) ** 2).sum(1))


def similarity(x: Any, y: Any) -> Any:
    x, y = (v / jnp.abs(v).max(1, keepdims=True) for v in (x, y))
    x, y = (v / jnp.sqrt((v * v).sum(1, keepdims=True)) for v in (x, y))
    return (x * y).sum(1)


def normed(x: Any, least: float = 1e-5) -> Any:
    deviation = x - x.mean(0)
    return deviation * jax.lax.rsqrt((deviation * deviation).mean(0) + least)


def guarded(x: Any, y: Any) -> Any:
    """Shares, where a row that has only -inf is shifted by 0."""
    most = x.max(1, keepdims=True)
    most = jnp.where(jnp.isfinite(most), most, 0)
    return (y / jnp.exp(x - most).sum(1, keepdims=True)).sum(1)


COLUMNS = DRAWN.reshape(30, 5)
HOLLOW = np.where(np.arange(3)[:, None] == 1, -np.inf, DRAWN[:, :8]).astype(np.float32)
LAST = np.eye(8, dtype=np.float32)[[7, 7, 7]]
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "kurtosis of small": (kurtosis, (DRAWN * 1e-10,)),
    "kurtosis of large": (kurtosis, (DRAWN * 1e10,)),
    "skewness of large": (skewness, (DRAWN * 1e13,)),
    "length of large": (length, (ONE * 1e25,)),
    "length of small": (length, (ONE * 1e-25,)),
    "similarity": (similarity, (ONE * 1e25, ONE * 1e25)),
    "scaled loss": (lambda g, s: ((g / s) ** 2).sum(), (ONE * 1e20, np.float32(2.0**65))),
    "scaled product": (lambda a, b, s: (a * s) @ b, (ONE * 1e-30, ONE[0] * 1e-15, np.float32(1e25))),
    "cube and norm": (lambda x: (normed(x) * x**3).sum(0), (COLUMNS * 4e9,)),
    "square and squared norm": (lambda x: (normed(x) ** 2 * x**2).sum(0), (COLUMNS * 4e9,)),
    "small and squared norm": (lambda x: (normed(x, 1e-12) ** 2 * x**2).sum(0), (COLUMNS * 1e-10,)),
    "weighted squared norm": (lambda x, w: (normed(x) ** 2 * w).sum(0), (COLUMNS * 1e6, COLUMNS**2 * 1e30)),
    "shares of nothing": (guarded, (HOLLOW, LAST)),
    "shares by the maximum of all": (
        lambda x, y: (y / jnp.exp(x - x.max()).sum(1, keepdims=True)).sum(1),
        (DRAWN[:, :8] - np.array([[0], [95], [200]], np.float32), LAST),
    ),
    "sign of no deviation": (lambda x: 1 / (x - x.mean(0)).sum(0), (-2 * ONE,)),
    "sign of three times none": (
        lambda x: 1 / ((x - x.mean(0)) * 3).sum(0),
        (-2 * np.ones((64, 5), np.float32),),
    ),
    "by 0": (lambda x, s: (x / s).sum(1), (ROWS, np.float32(0))),
    "by 0 of each row": (lambda x, s: (x / s[:, None]).sum(1), (ROWS, ZERO)),
    "times infinity": (lambda x: (x * jnp.inf).sum(1), (ROWS,)),
    "by its maximum": (lambda x: (x / x.max(1, keepdims=True)).sum(1), (-ROWS,)),
    "gradient by 0": (jax.grad(lambda s, x: (x / s).sum()), (np.float32(0), ROWS)),
    "sign of 0": (lambda x: 1 / (x * -2).sum(1), (np.zeros((2, 3), np.float32),)),
}


@pytest.mark.parametrize("name", CASES)
def test_sums_are_those_of_the_program(name: str) -> None:
    f, args = CASES[name]
    found, theirs = jstitch.jit(f, options=OPTIONS)(*args), jax.jit(f)(*args)
    np.testing.assert_allclose(found, theirs, rtol=1e-4)
