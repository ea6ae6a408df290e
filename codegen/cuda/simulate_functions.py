"""The functions of `codegen.intrinsics` over lanes: what each function of kernel text computes, on arrays.

Their references take arrays as well as scalars. f16, bf16 and
f8 values are float32 here, as they are in registers.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from jstitch.codegen.intrinsics import INTRINSICS, Takes
from jstitch.ir.ops.numerics import kernel_name
from jstitch.ir.types import DType

DTYPES: Mapping[str, DType] = {name: d for d in DType if (name := kernel_name(d)) is not None}
LITERALS: Mapping[str, Any] = {
    **{f"{sign}int{bits}": getattr(np, f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "float32": np.float32,
    "float64": np.float64,
}


class TypeMismatch(Exception):
    """Operands that no GPU instruction takes together."""


def same_dtype(*operands: Any) -> np.dtype[Any]:
    """The dtype that all operands have. Raises TypeMismatch."""
    found = {x.dtype for x in operands}
    if len(found) != 1:
        raise TypeMismatch(f"operands of {', '.join(sorted(map(str, found)))}")
    return next(iter(found))


def _strict(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*operands: Any) -> Any:
        same_dtype(*operands)
        return function(*operands)

    return call


def _bitcast(dtype: DType) -> Callable[[Any], Any]:
    def call(x: Any) -> Any:
        if x.dtype.itemsize != dtype.itemsize:
            raise TypeMismatch(f"a bitcast from {x.dtype} to {dtype.numpy}")
        return np.ascontiguousarray(x).view(dtype.numpy).reshape(np.shape(x))

    return call


def _has_bits(dtype: DType) -> bool:
    """Are its registers as wide as its memory?"""
    return dtype is not DType.BOOL and dtype.compute is dtype


_BITCASTS = {f"bitcast_{name}": _bitcast(dtype) for name, dtype in DTYPES.items() if _has_bits(dtype)}
_WALKERS = (Takes.INDICES, Takes.OPERATORS)  # what the walker evaluates itself, as select: of indices, too


def vectorised(name: str) -> Callable[..., Any] | None:
    """The function over lanes; None where it is none, or the walker's own."""
    row = INTRINSICS.get(name)
    if row is None or row.takes in _WALKERS or name == "select":
        return None
    if row.takes is Takes.OTHERS:
        return _BITCASTS.get(name) if name.startswith("bitcast_") else row.reference
    return _strict(row.reference)


def float_operator(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """`+ - * /` of ordinary scalars, which only floats have."""

    def call(a: Any, b: Any) -> Any:
        if same_dtype(a, b).kind != "f":
            raise TypeMismatch(f"an operator between values of {a.dtype}: integers have functions")
        return function(a, b)

    return call


ADD, SUBTRACT, MULTIPLY, DIVIDE = map(
    float_operator, (operator.add, operator.sub, operator.mul, operator.truediv)
)


def select(condition: Any, yes: Any, no: Any) -> Any:
    """The element of `yes` where the condition holds."""
    if condition.dtype != np.bool_:
        raise TypeMismatch(f"a condition of {condition.dtype}")
    same_dtype(yes, no)
    return np.where(condition, yes, no)


def load_widened(values: Any, dtype: DType) -> Any:
    """Elements of memory as registers hold them."""
    return values.astype(dtype.compute.numpy) if dtype.compute is not dtype else values


def store_rounded(values: Any, dtype: DType) -> Any:
    """Registers as elements of memory. Raises TypeMismatch."""
    if values.dtype != dtype.compute.numpy:
        raise TypeMismatch(f"a value of {values.dtype} for memory of {dtype.numpy}")
    return values.astype(dtype.numpy) if dtype.compute is not dtype else values
