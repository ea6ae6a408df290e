"""The emitters' vocabulary on NumPy scalars: what the functions that kernels call mean.

    FUNCTIONS["iadd"](np.int8(127), np.int8(1))   ->   np.int8(-128)

Built on the op table's references. Narrow floats are float32 here, as they are in kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from jstitch.ir.graph import Value
from jstitch.ir.ops import OpDef, lookup
from jstitch.ir.ops import numerics as n
from jstitch.ir.ops.build import elementwise
from jstitch.ir.ops.evaluate import run_op
from jstitch.ir.types import DType, TensorType

Scalar = Any
Function = Callable[..., Scalar]

_OPS = {
    **{"iadd": "add", "isub": "subtract", "imul": "multiply", "idiv": "divide", "irem": "remainder"},
    **{"ineg": "negate", "iabs": "abs", "isign": "sign", "and_": "and", "or_": "or", "xor": "xor"},
    **{"not_": "not", "shl": "shift_left", "shr_logical": "shift_right_logical"},
    **{"shr_arithmetic": "shift_right_arithmetic", "popcnt": "popcnt", "clz": "count_leading_zeros"},
    **{"maximum": "maximum", "minimum": "minimum", "abs_": "abs", "sign": "sign", "floor": "floor"},
    **{"ceil": "ceil", "round_half_even": "round_nearest_even", "round_half_away": "round_nearest_afz"},
    **{"sqrt": "sqrt", "rsqrt": "rsqrt", "cbrt": "cbrt", "exp": "exponential"},
    **{"exp_nonpositive": "exponential"},
    **{"expm1": "exponential_minus_one", "log": "log", "log1p": "log_plus_one", "logistic": "logistic"},
    **{"tanh": "tanh", "sin": "sine", "cos": "cosine", "tan": "tan", "atan2": "atan2", "pow_": "power"},
    **{"remainder_": "remainder", "add_reassoc": "add", "mul_reassoc": "multiply"},
    **{"max_reassoc": "maximum", "min_reassoc": "minimum"},
    "is_finite": "is_finite",
}
_CHLO = (
    *("erf", "erfc", "erf_inv", "sinh", "cosh", "asin", "acos", "atan", "asinh", "acosh", "atanh"),
    *("lgamma", "digamma", "next_after"),
)
_NARROW = {n.kernel_name(d): d for d in DType if n.kernel_name(d)}
LIGHT = 0.3  # cycles of a light op among others: adds that wait for each other, which define a cycle, take 1


def _function(name: str) -> Function:
    def call(*arguments: Scalar) -> Scalar:
        arrays = [np.asarray(a) for a in arguments]
        operands = [Value(TensorType((), DType.of(a.dtype))) for a in arrays]
        dtype = DType.BOOL if name == "stablehlo.is_finite" else None
        return run_op(elementwise(name, *operands, dtype=dtype), arrays)[0][()]

    return call


def cycles(name: str) -> float:
    """Cycles per element of a function, relative to an add."""
    definition = _definition(name)
    return 1.0 if definition is None else definition.cpi


def cpu_cycles(name: str) -> float:
    """Cycles of the CPU backend's form of a function, as it measures."""
    definition = _definition(name)
    return LIGHT if definition is None else cpu_cpi(definition)


def cpu_cpi(definition: OpDef) -> float:
    """Cycles of an op's CPU form; a core starts several light ones in one."""
    if definition.cpu_cpi is not None:
        return definition.cpu_cpi
    return LIGHT if definition.cpi == 1.0 else definition.cpi


def _definition(name: str) -> OpDef | None:
    """Of the op that a function computes; None for loads, conversions and arithmetic of indices."""
    if name in _CHLO:
        return lookup(f"chlo.{name}")
    return lookup(f"stablehlo.{_OPS[name]}") if name in _OPS else None


def _convert(dtype: DType) -> Function:
    """Rounded to the dtype's grid, in the type that kernels compute with."""

    def call(x: Scalar) -> Scalar:
        with np.errstate(all="ignore"):
            return n.widen(n.convert(np.asarray(x), dtype))[()]

    return call


def _bitcast(dtype: DType) -> Function:
    return lambda x: np.asarray(x).reshape(1).view(dtype.numpy)[0]


def _quotient(a: int, k: int) -> int:
    """Both emitters divide unsigned numbers."""
    if a < 0 or k <= 0:
        raise ValueError(f"quotient and remainder_pos need a >= 0 and k > 0, found {a} and {k}")
    return int(a) // int(k)


def _remainder(a: int, k: int) -> int:
    return int(a) - _quotient(a, k) * int(k) if a >= 0 else int(np.uint64(a % (1 << 64)) % np.uint64(k))


def _select(condition: Scalar, yes: Scalar, no: Scalar) -> Scalar:
    return yes if bool(condition) else no


FUNCTIONS: dict[str, Function] = {
    **{ours: _function(f"stablehlo.{theirs}") for ours, theirs in _OPS.items()},
    **{name: _function(f"chlo.{name}") for name in _CHLO},
    **{f"convert_{name}": _convert(dtype) for name, dtype in _NARROW.items()},
    **{f"bitcast_{name}": _bitcast(dtype) for name, dtype in _NARROW.items()},
    "exp2": lambda x: np.exp2(x),
    "select": _select,
    "quotient": _quotient,
    "remainder_pos": _remainder,
    "clamp_index": lambda i, low, high: min(max(int(i), low), high),
}
TYPES: dict[str, Any] = {
    **{f"{kind}{bits}": getattr(np, f"{kind}{bits}") for kind in ("int", "uint") for bits in (8, 16, 32, 64)},
    "float32": np.float32,
    "float64": np.float64,
    "inf": float("inf"),
    "nan": float("nan"),
}
