"""On CPUs, too, a kernel that is far slower as built than XLA's is left to XLA, and `explain` says so."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jstitch
from jstitch.passes.fuse import judge_kernel

LEFT = "stays XLA's: gate: as built"
X = np.random.default_rng(0).standard_normal((300, 1000)).astype(np.float32)


def normed(x: Any) -> Any:
    x = x - x.mean(-1, keepdims=True)
    return x * jax.lax.rsqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-5)


def said(tune: str) -> str:
    return str(jstitch.jit(normed, options=jstitch.CompileOptions(tune=tune)).explain(X))


def test_a_kernel_within_the_bound_stays() -> None:
    assert LEFT not in said("model")


def test_a_kernel_beyond_the_bound_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """But not where all are to be built, or a clock decides; results are the same."""
    monkeypatch.setattr(judge_kernel, "MUCH_SLOWER", 1e-6)
    assert LEFT in said("model")
    assert LEFT not in said("off")
    assert LEFT not in said("measure")
    np.testing.assert_allclose(jstitch.jit(normed)(X), jax.jit(normed)(X), rtol=1e-5, atol=1e-6)
