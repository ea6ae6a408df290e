"""Elementwise ops: one result element from the operands' elements at the same index.

`select` and `clamp` also take rank-0 operands that apply everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypedDict, Unpack

import numpy as np

from jstitch.ir.expr import Formula, call, formula, itself
from jstitch.ir.graph import Op
from jstitch.ir.ops import numerics as n
from jstitch.ir.ops import special
from jstitch.ir.ops.definition import OpClass, OpDef, define
from jstitch.ir.types import DType

ACCURACY = {"result_accuracy": "accuracy"}
EXPENSIVE = 8.0

PRODUCTS = ("stablehlo.multiply", "chlo.square")
SUMS = ("stablehlo.add", "stablehlo.subtract")  # processors fuse them with a product that they read
ROUNDED = "rounded"  # attribute of a product of floats: it is rounded before anything is added to it

Choice = str | Formula | None
"""Of a kernel expression: a function of `codegen.intrinsics` by name, or what is made of several."""


def by_dtype(
    floats: Choice = None,
    signed: Choice = None,
    unsigned: Choice = None,
    bools: Choice = None,
    *,
    rounded: Choice = None,
    own_type: bool = False,
) -> Callable[[Op], Formula | None]:
    """Choose the kernel expression by the last operand's dtype (`select`'s first one is the predicate).

    rounded: of floats, where the op says so. own_type: only floats that kernels compute with as they are.
    """
    of_floats, of_signed, of_unsigned, of_bools, of_rounded = (
        formula(choice) if isinstance(choice, str) else choice
        for choice in (floats, signed, unsigned, bools, rounded)
    )

    def scalar(op: Op) -> Formula | None:
        types = [v.tensor.dtype for v in (*op.operands, *op.results)]
        dtype = op.operands[-1].tensor.dtype
        if any(n.kernel_name(t) is None for t in types) or (own_type and dtype.compute is not dtype):
            return None
        if dtype.is_float:
            return of_rounded if op.attrs.get(ROUNDED) else of_floats
        if dtype is DType.BOOL:
            return of_bools
        return of_signed if dtype.is_signed else of_unsigned

    return scalar


class _Kinds(TypedDict, total=False):
    """Kernel expressions of the dtypes that are not floats, and of floats that are to be rounded."""

    signed: Choice
    unsigned: Choice
    bools: Choice
    rounded: Choice
    own_type: bool


def _light(
    name: str,
    function: n.NumpyFunction,
    floats: Choice = None,
    identity: Callable[[DType], float | int | bool] | None = None,
    reassociated: str | None = None,
    result_dtype: Literal["operands", "bool", "own"] = "operands",
    **other: Unpack[_Kinds],
) -> None:
    scalar = by_dtype(floats, **other)
    define(
        OpDef(
            name,
            OpClass.LIGHT,
            n.elementwise(function),
            scalar=scalar,
            identity=identity,
            reassociated=reassociated,
            result_dtype=result_dtype,
        )
    )


def _expensive(
    name: str,
    function: n.NumpyFunction,
    expression: str | None,
    domain: tuple[float, float] = (-4.0, 4.0),
    cpi: float = EXPENSIVE,
    flops: float = 10.0,
    cpu: float | None = None,
    reduced: float | None = None,
) -> None:
    attrs = ACCURACY if name.startswith("stablehlo.") else {}
    define(
        OpDef(
            name,
            OpClass.EXPENSIVE,
            n.elementwise(function),
            attrs,
            by_dtype(expression),
            flops=flops,
            cpi=cpi,
            cpu_cpi=cpu,
            reduced_cpi=reduced,
            domain=domain,
        )
    )


def _all(expression: Choice) -> _Kinds:
    return {"signed": expression, "unsigned": expression}


def _every(expression: Choice) -> _Kinds:
    return {"signed": expression, "unsigned": expression, "bools": expression}


def _square(function: str) -> Formula:
    return lambda x: call(function, x, x)


def _maximum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """NaN propagates; maximum(-0, +0) is +0."""
    larger = np.maximum(a, b)
    if larger.dtype.kind == "f":
        larger = np.where((a == 0) & (b == 0), a + b, larger)
    return np.asarray(larger)


def _minimum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    smaller = np.minimum(a, b)
    if smaller.dtype.kind == "f":
        zero = (a == 0) & (b == 0) & (np.signbit(a) | np.signbit(b))
        smaller = np.where(zero, -np.abs(smaller), smaller)
    return np.asarray(smaller)


_light("stablehlo.abs", np.abs, "abs_", signed="iabs", unsigned=itself, result_dtype="own")
_light("stablehlo.negate", np.negative, "neg", **_all("ineg"))
_light("stablehlo.sign", special.sign, "sign", signed="isign")
_light("stablehlo.floor", np.floor, "floor")
_light("stablehlo.ceil", np.ceil, "ceil")
_light("stablehlo.round_nearest_even", np.rint, "round_half_even")
_light("stablehlo.round_nearest_afz", special.round_half_away, "round_half_away")
_light("stablehlo.is_finite", np.isfinite, "is_finite", result_dtype="bool")
_light("stablehlo.not", np.invert, **_every("not_"))
_light("stablehlo.popcnt", special.popcnt, **_all("popcnt"))
_light("stablehlo.count_leading_zeros", special.count_leading_zeros, **_all("clz"))
_light(
    "chlo.square",
    np.square,
    _square("mul"),
    signed=_square("imul"),
    unsigned=_square("imul"),
    rounded=_square("mul_rounded"),
)
_light("chlo.conj", np.conj, itself)
for _part, _function in enumerate((np.real, np.imag)):
    define(
        OpDef(
            f"stablehlo.{_function.__name__}",
            OpClass.LIGHT,
            n.elementwise(_function),
            result_dtype="own",
            part=_part,
        )
    )
define(
    OpDef(
        "stablehlo.complex",
        OpClass.LIGHT,
        n.elementwise(special.make_complex),
        result_dtype="own",
        parts=True,
    )
)

_light(
    "stablehlo.add",
    np.add,
    "add",
    lambda dtype: 0,
    "add_reassoc",
    signed="iadd",
    unsigned="iadd",
    bools="or_",
)
_light("stablehlo.subtract", np.subtract, "sub", **_all("isub"))
_light(
    "stablehlo.multiply",
    np.multiply,
    "mul",
    lambda dtype: 1,
    "mul_reassoc",
    signed="imul",
    unsigned="imul",
    bools="and_",
    rounded="mul_rounded",
)
_light(
    "stablehlo.maximum",
    _maximum,
    "maximum",
    n.smallest,
    "max_reassoc",
    **_every("maximum"),
)
_light(
    "stablehlo.minimum",
    _minimum,
    "minimum",
    n.largest,
    "min_reassoc",
    **_every("minimum"),
)
_light("stablehlo.and", np.bitwise_and, identity=n.all_ones, **_every("and_"))
_light("stablehlo.or", np.bitwise_or, identity=lambda dtype: 0, **_every("or_"))
_light("stablehlo.xor", np.bitwise_xor, identity=lambda dtype: 0, **_every("xor"))
_light("stablehlo.shift_left", special.shift_left, **_all("shl"))
_light("stablehlo.shift_right_logical", special.shift_right_logical, **_all("shr_logical"))
_light("stablehlo.shift_right_arithmetic", special.shift_right_arithmetic, **_all("shr_arithmetic"))
_light("chlo.next_after", np.nextafter, "next_after", own_type=True)
_light("chlo.mulhi", special.multiply_high)

define(
    OpDef(
        "stablehlo.divide",
        OpClass.LIGHT,
        n.elementwise(n.divide),
        scalar=by_dtype("div", "idiv", "idiv"),
        cpi=4.0,
        cpu_cpi=1.3,
    )
)
define(
    OpDef(
        "stablehlo.remainder",
        OpClass.EXPENSIVE,
        n.elementwise(n.remainder),
        scalar=by_dtype("remainder_", "irem", "irem"),
        flops=4.0,
        cpi=EXPENSIVE,
        cpu_cpi=52.0,
    )
)

_expensive("stablehlo.sqrt", special.sqrt, "sqrt", (0.0, 9.0), cpi=4.0, flops=1.0, cpu=3.0)
_expensive("stablehlo.rsqrt", special.rsqrt, "rsqrt", (0.01, 9.0), cpi=4.0, flops=2.0, cpu=6.5)
_expensive("stablehlo.cbrt", np.cbrt, "cbrt", cpu=79.0)
_expensive("stablehlo.exponential", np.exp, "exp", cpu=7.0)
_expensive("stablehlo.exponential_minus_one", np.expm1, "expm1", cpu=9.0)
_expensive("stablehlo.log", np.log, "log", (0.01, 9.0), cpu=13.0)
_expensive("stablehlo.log_plus_one", np.log1p, "log1p", (-0.9, 9.0), cpu=20.0)
_expensive("stablehlo.logistic", special.logistic, "logistic", cpu=9.0)
_expensive("stablehlo.tanh", np.tanh, "tanh", cpi=10.0, cpu=5.5)
_expensive("stablehlo.sine", np.sin, "sin", cpi=12.0, cpu=53.0, reduced=18.0)
_expensive("stablehlo.cosine", np.cos, "cos", cpi=12.0, cpu=39.0, reduced=18.0)
_expensive("stablehlo.tan", np.tan, "tan", (-1.4, 1.4), cpi=16.0, cpu=69.0, reduced=24.0)
_expensive("stablehlo.atan2", np.arctan2, "atan2", cpi=16.0, cpu=58.0)
_expensive("stablehlo.power", special.power, "pow_", (0.01, 4.0), cpi=20.0, cpu=60.0)
_expensive("chlo.tan", np.tan, "tan", (-1.4, 1.4), cpi=16.0, cpu=69.0, reduced=24.0)
_expensive("chlo.sinh", np.sinh, "sinh", cpi=12.0, cpu=37.0)
_expensive("chlo.cosh", np.cosh, "cosh", cpi=12.0, cpu=33.0)
_expensive("chlo.asin", np.arcsin, "asin", (-1.0, 1.0), cpi=12.0, cpu=55.0)
_expensive("chlo.acos", np.arccos, "acos", (-1.0, 1.0), cpi=12.0, cpu=62.0)
_expensive("chlo.atan", np.arctan, "atan", cpi=12.0, cpu=49.0, reduced=20.0)
_expensive("chlo.asinh", np.arcsinh, "asinh", cpi=16.0, cpu=70.0)
_expensive("chlo.acosh", np.arccosh, "acosh", (1.0, 9.0), cpi=16.0, cpu=64.0)
_expensive("chlo.atanh", np.arctanh, "atanh", (-0.9, 0.9), cpi=16.0, cpu=66.0)
_expensive("chlo.erf", special.erf, "erf", cpi=12.0, cpu=7.0)
_expensive("chlo.erfc", special.erfc, "erfc", cpi=14.0, cpu=60.0)
_expensive("chlo.erf_inv", special.erf_inv, "erf_inv", (-0.99, 0.99), cpi=14.0, cpu=37.0)
_expensive("chlo.lgamma", special.lgamma, "lgamma", (0.1, 9.0), cpi=20.0, cpu=190.0)
_expensive("chlo.digamma", special.digamma, "digamma", (0.1, 9.0), cpi=20.0, cpu=190.0)
_expensive("chlo.bessel_i1e", special.bessel_i1e, None, cpi=20.0)
_expensive("chlo.zeta", special.zeta, None, (1.5, 9.0), cpi=40.0)
_expensive("chlo.polygamma", special.polygamma, None, (0.5, 4.0), cpi=40.0)
