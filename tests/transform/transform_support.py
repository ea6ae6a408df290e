"""Shared by the transformation tests: comparison with plain JAX, and the proof that kernels really ran."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jstitch

EVERYTHING = jstitch.CompileOptions(tune="off", strict=True)


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
    """Kernels were made by calls lowered after record `since`: by the forward's and, when asked, by another.

    Not told by their names: JAX's scopes say that a call is a backward one only where its program says so.
    """
    records = jstitch.last_report(since)
    stitched = [record for record in records if record.kernels]
    assert len(stitched) >= 1 + backward, f"too few calls have kernels: {records}"


def assert_same(
    found: Any,
    expected: Any,
    *,
    rtol: float = 2e-5,
    atol: float = 2e-6,
    exact: Callable[[], Any] | None = None,
) -> None:
    """Same tree, shapes, dtypes and weak types; floats within the tolerance, the rest bit by bit.

    exact: the same in float64. Where sums cancel, an array beyond the tolerance may be as far from that as
    twice what JAX's own is, and one ulp.
    """
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for n, (got, want) in enumerate(zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)):
        assert jax.typeof(got) == jax.typeof(want)
        got, want = _raw(got), _raw(want)
        if not jnp.issubdtype(want.dtype, jnp.inexact):
            np.testing.assert_array_equal(got, want)
            continue
        wide = np.complex128 if np.iscomplexobj(want) else np.float64
        got, want, eps = got.astype(wide), want.astype(wide), jnp.finfo(want.dtype).eps
        if exact is not None and not np.allclose(got, want, rtol=rtol, atol=atol, equal_nan=True):
            true = _raw(jax.tree.leaves(exact())[n])
            want, rtol, atol = true, 0.0, 2 * np.abs(want - true).max() + eps * np.abs(true).max()
        np.testing.assert_allclose(got, want, rtol=rtol, atol=atol)


def _raw(x: Any) -> Any:
    return np.asarray(jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x)
