"""Equal results before any timing: the largest difference, relative to each output's magnitude."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from ml_dtypes import finfo


class WrongResultError(AssertionError):
    """A side of a benchmark computes something else than `jax.jit`."""


def require_equal(found: Any, expected: Any, tolerance: float, who: str) -> float:
    """The largest relative difference over all leaves of two equal trees.

    Raises WrongResultError when it exceeds `tolerance` (plus one epsilon of a narrower float; integers may
    differ by one where a rounding tie falls the other way), or when shapes or non-finite values differ.
    """
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    worst = 0.0
    for number, (a, b) in enumerate(pairs):
        difference, allowed = _difference(np.asarray(a), np.asarray(b), tolerance, f"{who}, output {number}")
        if not difference <= allowed:  # NaN must fail too
            raise WrongResultError(
                f"{who}, output {number}: expected a relative difference <= {allowed:.1e},"
                f" found {difference:.1e}."
            )
        worst = max(worst, difference)
    return worst


def _difference(
    a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], tolerance: float, where: str
) -> tuple[float, float]:
    if a.shape != b.shape or a.dtype != b.dtype:
        raise WrongResultError(f"{where}: expected {b.dtype}{b.shape}, found {a.dtype}{a.shape}.")
    if a.size == 0:
        return 0.0, 0.0
    most = allowed(b.dtype, tolerance)
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    finite = np.isfinite(wide_b)
    if not np.array_equal(wide_a[~finite], wide_b[~finite], equal_nan=True):
        raise WrongResultError(f"{where}: NaN or infinity in other places.")
    distance = np.abs(np.where(finite, wide_a, 0) - np.where(finite, wide_b, 0)).max()
    if not np.issubdtype(b.dtype, np.integer):
        distance /= max(np.abs(wide_b[finite]).max(initial=0.0), 1e-30)
    return float(distance), most


def allowed(dtype: np.dtype[Any], tolerance: float) -> float:
    """The largest difference of numbers of that type, of the largest one; of whole numbers itself."""
    if np.issubdtype(dtype, np.integer) or dtype == np.bool_:
        return float(dtype == np.int8)
    narrow = float(finfo(dtype).eps)
    return tolerance + (2 * narrow if dtype.itemsize < 4 else 0.0)
