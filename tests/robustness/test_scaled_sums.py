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


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "kurtosis of small": (kurtosis, (DRAWN * 1e-10,)),
    "kurtosis of large": (kurtosis, (DRAWN * 1e10,)),
    "skewness of large": (skewness, (DRAWN * 1e13,)),
    "length of large": (length, (ONE * 1e25,)),
    "length of small": (length, (ONE * 1e-25,)),
    "similarity": (similarity, (ONE * 1e25, ONE * 1e25)),
    "scaled loss": (lambda g, s: ((g / s) ** 2).sum(), (ONE * 1e20, np.float32(2.0**65))),
    "scaled product": (lambda a, b, s: (a * s) @ b, (ONE * 1e-30, ONE[0] * 1e-15, np.float32(1e25))),
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
