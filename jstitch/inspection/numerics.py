"""The numerics rule: an error against a float64 reference at most twice jax.jit's own, plus one ulp.

Integers and bools are exact. NaN and infinities stand where they stand in jax.jit's result; but where it
overflows in a narrow float, and the same program rounded at conversions only does not, the latter is right.

    difference(found, expected, exact, *others)   ->   None, or what is wrong with `found`

Element by element that suits a few ops. Through a network roundings spread, and two programs that are
equally good have their errors in other places: `program_difference` takes errors block by block.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import ml_dtypes
import numpy as np

from jstitch.ir.types import DType

SLACK = 2.0  # times jax.jit's own error
F64_ULPS = 4.0  # for float64 results the reference is no more accurate than they are
POOL = 64  # elements, at least, of which the worst error stands for all
RARE, RARE_SLACK = 0.05, 8.0
BLIND_ULPS = 16.0  # of an array's largest element, where there is no reference


def difference(found: np.ndarray, expected: np.ndarray, exact: np.ndarray, *others: np.ndarray) -> str | None:
    """What is wrong with `found`, next to jax.jit's `expected` and the float64 reference `exact`.

    others: the program rounded in other places, that with conversions rounded only last; their errors count
    like jax.jit's own, because XLA's choice of what to round, contract or reassociate is one among equals.
    """
    wrong = _another_type(found, expected)
    if wrong is not None:
        return wrong
    if not DType.of(found.dtype).is_float:
        return _exactly(found, expected)
    with np.errstate(all="ignore"):
        a, b, c, *d = (x.astype(np.float64) for x in (found, expected, exact, *others))
        return _closely(a, b, c, d, found.dtype)


def program_difference(
    found: np.ndarray, expected: np.ndarray, exact: np.ndarray, *others: np.ndarray
) -> str | None:
    """`difference` with the errors, and the ulp, of blocks: the trailing dimensions that make POOL elements.

    Of many blocks some are beyond twice the own error by chance: RARE of them may be, as long as they stay
    below RARE_SLACK times, and below twice the worst of the whole array.
    others: also the program on inputs that differ by a rounding. Integers and bools may be what any of them
    has: next to a jump (a comparison, an argmax) right programs differ.
    """
    wrong = _another_type(found, expected)
    if wrong is not None:
        return wrong
    if not DType.of(found.dtype).is_float:
        off = np.all([found != x for x in (expected, exact, *others)], axis=0)
        return _exactly(np.where(off, found, expected), expected)
    with np.errstate(all="ignore"):
        a, b, c, *d = (x.astype(np.float64) for x in (found, expected, exact, *others))
        return _in_blocks(a, b, c, d, found.dtype)


def blind_difference(found: np.ndarray, expected: np.ndarray) -> str | None:
    """The same without a reference: floats within BLIND_ULPS ulps of the array's largest element."""
    wrong = _another_type(found, expected)
    if wrong is not None:
        return wrong
    if not DType.of(found.dtype).is_float:
        return _exactly(found, expected)
    with np.errstate(all="ignore"):
        a, b = (x.astype(np.float64) for x in (found, expected))
        finite = np.isfinite(a) & np.isfinite(b)
        largest = np.max(np.abs(np.where(finite, b, 0)), initial=0.0)
        allowed = np.where(finite, BLIND_ULPS * ulp(largest, found.dtype), 0.0)
        off = ~alike(a, b) & ~(np.abs(a - b) <= allowed)
    return _describe("too far off", off, a, b) if off.any() else None


def _another_type(found: np.ndarray, expected: np.ndarray) -> str | None:
    if found.shape == expected.shape and found.dtype == expected.dtype:
        return None
    return f"expected {expected.dtype}{list(expected.shape)}, found {found.dtype}{list(found.shape)}"


def _exactly(found: np.ndarray, expected: np.ndarray) -> str | None:
    wrong = np.argwhere(found != expected)
    if not len(wrong):
        return None
    at = tuple(map(int, wrong[0]))
    return f"{len(wrong)} of {found.size} differ, first at {at}: expected {expected[at]}, found {found[at]}"


def _closely(
    found: np.ndarray,
    expected: np.ndarray,
    exact: np.ndarray,
    others: Sequence[np.ndarray],
    dtype: np.dtype[np.generic],
) -> str | None:
    same, finite = _alike_and_finite(found, expected, exact, others, dtype)
    strange = ~same & ~finite
    if strange.any():
        return _describe("NaN or infinity", strange, found, expected, exact)
    allowed = SLACK * _own_errors(expected, exact, others) + _one_ulp(exact, dtype)
    largest = np.max(np.where(finite, allowed, 0), initial=0.0)
    wrong = ~same & (np.abs(found - exact) > np.maximum(allowed, _share(largest, exact)))
    return _describe("too far off", wrong, found, expected, exact) if wrong.any() else None


def _in_blocks(
    found: np.ndarray,
    expected: np.ndarray,
    exact: np.ndarray,
    others: Sequence[np.ndarray],
    dtype: np.dtype[np.generic],
) -> str | None:
    same, finite = _alike_and_finite(found, expected, exact, others, dtype)
    strange = ~same & ~finite
    if strange.any():
        return _describe("NaN or infinity", strange, found, expected, exact)
    own = _pooled(np.where(finite, _own_errors(expected, exact, others), 0))
    step = _one_ulp(_pooled(np.where(finite, np.abs(exact), 0)), dtype)
    error = np.where(same, 0, np.abs(found - exact))
    beyond = error > SLACK * own + step
    most = SLACK * np.max(own, initial=0.0) + np.max(step, initial=0.0)
    wrong = error > np.minimum(RARE_SLACK * own + step, most)
    if _pooled(beyond).mean() > _rare(beyond.shape):
        wrong |= beyond
    return _describe("too far off", wrong, found, expected, exact) if wrong.any() else None


def _alike_and_finite(
    found: np.ndarray,
    expected: np.ndarray,
    exact: np.ndarray,
    others: Sequence[np.ndarray],
    dtype: np.dtype[np.generic],
) -> tuple[np.ndarray, np.ndarray]:
    same, decided = alike(found, expected), np.isfinite(expected)
    if dtype.itemsize < 4:
        # Kernels round f16 and bf16 at conversions only: jax.jit's NaN or infinity may be a rounding's.
        same |= alike(found, exact) & alike(found, others[-1]) & ~np.isfinite(found)
        decided |= np.isfinite(others[-1])
    return same, np.isfinite(found) & decided & np.isfinite(exact)


def _own_errors(expected: np.ndarray, exact: np.ndarray, others: Sequence[np.ndarray]) -> np.ndarray:
    own = np.abs(np.stack([expected, *others]) - exact)
    return np.asarray(np.where(np.isfinite(own), own, 0).max(axis=0))


def _one_ulp(exact: np.ndarray, dtype: np.dtype[np.generic]) -> np.ndarray:
    return ulp(exact, dtype) * (F64_ULPS if dtype == np.float64 else 1.0)


def _pooled(x: np.ndarray) -> np.ndarray:
    """The largest of each block, at every place of the block."""
    return np.broadcast_to(np.max(x, axis=_axes(x.shape), initial=0, keepdims=True), x.shape)


def _axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The dimensions of a block."""
    axes: list[int] = []
    while len(axes) < len(shape) and math.prod(shape[a] for a in axes) < POOL:
        axes.append(len(shape) - 1 - len(axes))
    return tuple(axes)


def _rare(shape: tuple[int, ...]) -> float:
    """The share of blocks that may be beyond the rule: of several, always one."""
    blocks = math.prod(shape) // max(math.prod(shape[a] for a in _axes(shape)), 1)
    return max(RARE, 1 / blocks) if blocks > 1 else 0.0


def alike(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Where elements are equal, or both NaN."""
    return np.asarray((a == b) | (np.isnan(a) & np.isnan(b)))


def _share(largest: float, exact: np.ndarray) -> np.ndarray:
    """The worst error jax.jit makes in the array is allowed for elements of the same size."""
    size = np.max(np.abs(exact[np.isfinite(exact)]), initial=0.0)
    return largest * np.abs(exact) / size if size else np.zeros_like(exact)


def ulp(x: np.ndarray | float, dtype: np.dtype[np.generic]) -> np.ndarray:
    """Distance of neighbours of the dtype near x; denormals count as zero, as XLA's threads flush them."""
    info = ml_dtypes.finfo(dtype)
    tiny = float(info.smallest_normal)
    exponent = np.floor(np.log2(np.maximum(np.abs(x), tiny)))
    return np.asarray(np.maximum(np.exp2(exponent - int(info.nmant)), tiny))


def _describe(
    what: str, wrong: np.ndarray, found: np.ndarray, expected: np.ndarray, exact: np.ndarray | None = None
) -> str:
    at = tuple(map(int, np.argwhere(wrong)[0]))
    third = "" if exact is None else f", float64 {float(exact[at])!r}"
    return (
        f"{what}: {int(wrong.sum())} of {wrong.size}, first at {at}:"
        f" found {float(found[at])!r}, jax.jit {float(expected[at])!r}{third}"
    )
