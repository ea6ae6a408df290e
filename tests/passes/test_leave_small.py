"""Small work has kernels where it makes arrays; work on scalars stays XLA's."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jstitch


def centred(x: Any) -> Any:
    return jnp.tanh(x - jax.nn.logsumexp(x, -1, keepdims=True))


def scalars(x: Any) -> tuple[Any, ...]:
    s = tuple(x[n] for n in range(8))
    return tuple(jnp.tanh(a * 0.9 + b) for a, b in zip(s, s[1:] + s[:1], strict=True))


def kernels(f: Any, x: np.ndarray) -> int:
    since = jstitch.record_count()
    found = jstitch.jit(f)(x)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-6, 1e-6), found, jax.jit(f)(x))
    return jstitch.last_report(since)[-1].kernels


@pytest.mark.parametrize("shape", [(2,), (300,), (5, 11), (64, 16), (3, 5, 7)])
def test_few_numbers_are_worth_a_kernel(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    assert kernels(lambda x: centred(x), x) == 1


def test_scalars_are_not() -> None:
    assert kernels(lambda x: scalars(x), np.linspace(-1, 1, 8, dtype=np.float32)) == 0
    edges = jstitch.explain(scalars)(np.zeros(8, np.float32)).open_edges
    assert any("work on scalars" in str(edge.why) for edge in edges)
