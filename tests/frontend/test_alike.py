"""Kernels that differ in name only are lowered and built once; others are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jstitch
from jstitch.frontend import kernel_builder

OPTIONS = jstitch.CompileOptions(tune="off", strict=True, without=("chains",))
X = np.random.default_rng(0).standard_normal((32, 48)).astype(np.float32)
W = [np.random.default_rng(n).standard_normal((48, 48)).astype(np.float32) for n in range(5)]


def norm(x: Any) -> Any:
    return jnp.tanh((x - x.mean(-1, keepdims=True)) * 0.5)


def layers(x: Any, w: Any) -> Any:
    for matrix in w:
        x = norm(x) @ matrix
    return x


def of_two_sizes(x: Any, w: Any) -> Any:
    return norm(norm(x) @ w[0])[:, :40] @ w[1][:40], norm(x[:, :40]) @ w[2][:40]


def on_two_lines(x: Any, w: Any) -> Any:
    x = jnp.exp(-jnp.abs(x - x.max(-1, keepdims=True))) @ w[0]
    return jnp.exp(-jnp.abs(x - x.max(-1, keepdims=True))) @ w[1]


# the constants of the first of five layers stand elsewhere among its ops
@pytest.mark.parametrize(("f", "bodies"), [(layers, 2), (of_two_sizes, 2), (on_two_lines, 2)])
def test_lowered_once(f: Callable[..., Any], bodies: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lowered: list[str] = []
    best = kernel_builder.best_kernel

    def counting(name: str, *about: Any) -> Any:
        lowered.append(name)
        return best(name, *about)

    monkeypatch.setattr(kernel_builder, "best_kernel", counting)
    found = jstitch.jit(f, options=OPTIONS)(X, W)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(jax.jit(f)(X, W)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    kernels = jstitch.last_report()[-1].kernels
    assert kernels >= 2
    assert len(lowered) == bodies


def test_each_has_a_name_of_its_own() -> None:
    text = jstitch.jit(layers, options=OPTIONS).lower(X, W).compile().as_text()
    assert text is not None
    assert all(f'jstitch.kernel="norm_row_{n}"' in text for n in range(5))
