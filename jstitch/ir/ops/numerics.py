"""NumPy helpers that the op table's references share.

References compute narrow floats (f16, bf16, f8) in float32 and round the result once, and never raise
floating point warnings. `elementwise` looks at the operands' dtypes and never at their shapes, so the same
references also run the scalar regions of reductions on whole arrays.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import ml_dtypes
import numpy as np

from jstitch.ir.graph import Op
from jstitch.ir.ops.definition import Arrays
from jstitch.ir.types import DType

NumpyFunction = Callable[..., np.ndarray]
_KERNEL_NAMES = {
    DType.BOOL: "bool",
    DType.S8: "s8",
    DType.S16: "s16",
    DType.S32: "s32",
    DType.S64: "s64",
    DType.U8: "u8",
    DType.U16: "u16",
    DType.U32: "u32",
    DType.U64: "u64",
    DType.F16: "f16",
    DType.BF16: "bf16",
    DType.F32: "f32",
    DType.F64: "f64",
    DType.F8E4M3FN: "f8e4m3fn",
    DType.F8E5M2: "f8e5m2",
}


def kernel_name(dtype: DType) -> str | None:
    """The emitters' Python-safe name of a dtype, or None when no kernel can hold it (complex, 4-bit)."""
    return _KERNEL_NAMES.get(dtype)


def widen(x: np.ndarray) -> np.ndarray:
    """Narrow floats as float32; every other dtype as it is."""
    dtype = DType.of(x.dtype)
    return x.astype(dtype.compute.numpy) if dtype.compute is not dtype else x


def result_dtype(op: Op, number: int = 0) -> np.dtype[np.generic]:
    return op.results[number].tensor.dtype.numpy


def elementwise(function: NumpyFunction) -> Callable[..., Arrays]:
    """A reference that applies `function` to widened operands and rounds to the result's dtype."""

    def reference(op: Op, *operands: np.ndarray) -> Arrays:
        with np.errstate(all="ignore"):
            value = np.asarray(function(*map(widen, operands)))
            return (value.astype(result_dtype(op), copy=False),)

    return reference


def with_op(function: NumpyFunction) -> Callable[..., Arrays]:
    """Like `elementwise`, for a function that also needs the op: function(op, *operands)."""

    def reference(op: Op, *operands: np.ndarray) -> Arrays:
        with np.errstate(all="ignore"):
            value = np.asarray(function(op, *map(widen, operands)))
            return (value.astype(result_dtype(op), copy=False),)

    return reference


def divide(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Quotient; integers truncate, x / 0 is -1 (all ones), and the smallest integer / -1 wraps."""
    if x.dtype.kind not in "iu":
        return np.asarray(x / y)
    safe = np.where(y == 0, y.dtype.type(1), y)
    quotient = x // safe
    inexact = (quotient * safe != x) & ((x < 0) != (safe < 0))
    truncated = quotient + inexact.astype(x.dtype)
    return np.where(y == 0, ~np.zeros((), x.dtype), truncated)


def remainder(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Remainder with the dividend's sign; for integers x % 0 is x."""
    if x.dtype.kind not in "iu":
        return np.asarray(np.fmod(x, y))
    return np.where(y == 0, x, np.fmod(x, np.where(y == 0, y.dtype.type(1), y)))


def float_to_int(x: np.ndarray, dtype: np.dtype[np.generic]) -> np.ndarray:
    """Truncate, saturate; NaN is 0."""
    info = np.iinfo(dtype.name)
    whole = np.trunc(np.nan_to_num(x, nan=0.0, posinf=np.inf, neginf=-np.inf))
    low, high = whole <= float(info.min), whole >= float(info.max)
    inside = np.where(low | high, x.dtype.type(0), whole).astype(dtype)
    return np.where(low, dtype.type(info.min), np.where(high, dtype.type(info.max), inside))


def convert(x: np.ndarray, dtype: DType) -> np.ndarray:
    """XLA's conversion: ints wrap, float to int truncates and saturates, to bool is x != 0."""
    source = DType.of(x.dtype)
    x = widen(x)
    if source.is_complex and not dtype.is_complex:
        x = x.real
    if dtype is DType.BOOL:
        return np.asarray(x != 0)
    if x.dtype.kind == "f" and dtype.is_integer and dtype.itemsize and dtype not in (DType.S4, DType.U4):
        return float_to_int(x, dtype.numpy)
    return x.astype(dtype.numpy)


def smallest(dtype: DType) -> float | int | bool:
    """The identity of maximum."""
    if dtype.is_float:
        return -math.inf
    return False if dtype is DType.BOOL else int(ml_dtypes.iinfo(dtype.numpy).min)


def largest(dtype: DType) -> float | int | bool:
    """The identity of minimum."""
    if dtype.is_float:
        return math.inf
    return True if dtype is DType.BOOL else int(ml_dtypes.iinfo(dtype.numpy).max)


def counts_to(dtype: DType, size: int) -> bool:
    """Whether integers of the type number so many elements: an iota of 300 in 8 bits begins again at 0."""
    return dtype.is_integer and size - 1 <= largest(dtype)


def all_ones(dtype: DType) -> float | int | bool:
    """The identity of a bitwise and."""
    return -1 if dtype.is_signed else largest(dtype)
