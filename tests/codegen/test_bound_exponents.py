"""Exponentials of what is never above 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

import jstitch
from tests.codegen.cpu_source import source_of
from tests.codegen.test_prefetch import kernel_from

OPTIONS = jstitch.CompileOptions(tune="off", strict=True)


def text_of(f: Callable[..., Array], *shapes: tuple[int, ...], dtype: Any = jnp.float32) -> str:
    kernel = kernel_from(f, *(jax.ShapeDtypeStruct(shape, dtype) for shape in shapes))
    return source_of(kernel)


def run(f: Callable[..., Array], *args: Any) -> np.ndarray:
    since = jstitch.record_count()
    found = np.asarray(jstitch.jit(lambda *args: f(*args), options=OPTIONS)(*args))
    assert jstitch.stitch_count(since) == 1
    return found


def test_the_exponential_of_a_softmax_cannot_overflow() -> None:
    assert "exp_nonpositive(" in text_of(jax.nn.softmax, (64, 300))


@pytest.mark.parametrize(
    "f",
    [
        lambda x: jnp.exp(x - x.mean(-1, keepdims=True)),
        lambda x: jnp.exp(2 * x - x.max(-1, keepdims=True)),
        lambda x: jnp.exp(x - x.min(-1, keepdims=True)),
        lambda x: jnp.exp(x - (x * 0.5).max(-1, keepdims=True)),
        lambda x: jnp.exp(x - x[:, :150].max(-1, keepdims=True)),
        lambda x: jnp.exp(x[::-1] - x.max(-1, keepdims=True)),
        lambda x: jnp.exp(x[:, ::-1] - x.max(-1, keepdims=True)),
    ],
    ids=["mean", "doubled", "minimum", "halved", "part", "other rows", "reversed"],
)
def test_other_exponentials_stay(f: Callable[[Array], Array]) -> None:
    x = np.random.default_rng(0).standard_normal((64, 300)).astype(np.float32) * 5
    text = text_of(f, (64, 300))
    np.testing.assert_allclose(run(f, x), jax.jit(f)(x), rtol=3e-5)
    reversed_rows = "reversed" in text or "::-1" in text
    assert reversed_rows or "exp_nonpositive(" not in text


@pytest.mark.parametrize("scale", [1e-3, 1.0, 50.0, 1e4, 1e38])
def test_softmax_to_the_ends_of_the_range(scale: float) -> None:
    with np.errstate(over="ignore"):
        x = np.random.default_rng(1).standard_normal((64, 300)).astype(np.float32) * np.float32(scale)
    x[0], x[1, 5], x[2, 7], x[3] = -np.inf, np.inf, np.nan, 0.0
    found, exact = run(jax.nn.softmax, x), np.asarray(jax.nn.softmax(jnp.asarray(x)))
    np.testing.assert_array_equal(np.isnan(found), np.isnan(exact))
    np.testing.assert_allclose(found, exact, rtol=2e-6, atol=1e-37)
