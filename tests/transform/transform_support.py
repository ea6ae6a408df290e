"""Shared by the transformation tests: comparison with plain JAX, and the proof that kernels really ran."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jstitch
from jstitch.frontend import rewrite as pipeline

# The one switch: until the pipeline says it is there, kernel counts are not asserted.
PIPELINE_READY: bool = getattr(pipeline, "READY", False)

EVERYTHING = jstitch.CompileOptions(gate="off", strict=True)


def stitch(f: Callable[..., Any]) -> Callable[..., Any]:
    """`f` stitched wherever it can be, whether or not it pays."""
    return jstitch.stitch(_fresh(f), EVERYTHING)


def jit(f: Callable[..., Any], **kwargs: Any) -> Any:
    """As `stitch`, jitted by `jstitch.jit`."""
    return jstitch.jit(_fresh(f), options=EVERYTHING, **kwargs)


def _fresh(f: Callable[..., Any]) -> Callable[..., Any]:
    """A function JAX has never seen, so that it is lowered, and recorded, again."""
    return functools.wraps(f)(lambda *args, **kwargs: f(*args, **kwargs))


def assert_stitched(since: int, *, backward: bool = False) -> None:
    """Kernels were made by calls lowered after record `since`: forward, and backward when asked."""
    records = jstitch.last_report(since)
    sides = {"forward": [r for r in records if not r.backward]}
    if backward:
        sides["backward"] = [r for r in records if r.backward]
    for side, found in sides.items():
        assert found, f"no stitched call was lowered in the {side} pass: {records}"
        if PIPELINE_READY:
            assert sum(r.kernels for r in found) > 0, f"no kernel in the {side} pass: {found}"


def assert_same(found: Any, expected: Any, *, rtol: float = 2e-5, atol: float = 2e-6) -> None:
    """Same tree, shapes, dtypes and weak types; floats within the tolerance, the rest bit by bit."""
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for got, want in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert jax.typeof(got) == jax.typeof(want)
        got, want = _raw(got), _raw(want)
        if jnp.issubdtype(want.dtype, jnp.inexact):
            wide = np.complex128 if np.iscomplexobj(want) else np.float64
            np.testing.assert_allclose(got.astype(wide), want.astype(wide), rtol=rtol, atol=atol)
        else:
            np.testing.assert_array_equal(got, want)


def _raw(x: Any) -> Any:
    return np.asarray(jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x)
