"""Elementwise ops that compare, choose, or change the element type."""

from __future__ import annotations

import numpy as np

from jstitch.ir.expr import Const, Expr, Formula, call, formula, itself
from jstitch.ir.graph import Op
from jstitch.ir.ops import numerics as n
from jstitch.ir.ops.definition import Arrays, OpClass, OpDef, define
from jstitch.ir.ops.elementwise import by_dtype
from jstitch.ir.types import DType

CONVERT = "stablehlo.convert"
CONVERT_TF32 = "jstitch.convert_tf32"
"""f32 as tensor cores multiply it: cvt.rna.tf32.f32."""

_COMPARE = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}
_WIDTHS = {
    "s8": 1,
    "u8": 1,
    "s16": 2,
    "u16": 2,
    "s32": 4,
    "u32": 4,
    "f32": 4,
    "s64": 8,
    "u64": 8,
    "f64": 8,
}


def _total_order(x: np.ndarray) -> np.ndarray:
    """Integers that compare as IEEE totalOrder does: -NaN < -inf < ... < -0 < +0 < ... < NaN."""
    bits = x.view(np.dtype(f"i{x.dtype.itemsize}"))
    return np.where(bits < 0, np.iinfo(bits.dtype).max ^ bits, bits)


def _compare(op: Op, x: np.ndarray, y: np.ndarray) -> Arrays:
    if op.attrs.get("compare_type") == "TOTALORDER" and op.operands[0].tensor.dtype.is_float:
        x, y = _total_order(x), _total_order(y)
    return (np.asarray(_COMPARE[op.attrs["comparison_direction"]](n.widen(x), n.widen(y))),)


def _compare_scalar(op: Op) -> Formula | None:
    direction, dtype = op.attrs["comparison_direction"].lower(), op.operands[0].tensor.dtype
    if op.attrs.get("compare_type") == "TOTALORDER" and dtype.is_float:
        bits = _BITS.get(dtype.compute) if n.kernel_name(dtype) else None
        return None if bits is None else lambda a, b: call(direction, _place(a, bits), _place(b, bits))
    return by_dtype(*[direction] * 4)(op)


_BITS = {DType.F32: DType.S32, DType.F64: DType.S64}


def _place(x: Expr, bits: DType) -> Expr:
    """`_total_order` of one element, of the float type as wide as `bits`."""
    number = call(f"bitcast_{n.kernel_name(bits)}", x)
    most = Const((1 << (8 * bits.itemsize - 1)) - 1, bits)
    return call("select", call("lt", number, Const(0, bits)), call("xor", most, number), number)


def _select(op: Op, p: np.ndarray, a: np.ndarray, b: np.ndarray) -> Arrays:
    return (np.where(p, a, b),)


def _clamp(low: np.ndarray, x: np.ndarray, high: np.ndarray) -> np.ndarray:
    return np.asarray(np.minimum(np.maximum(low, x), high))


def _convert(op: Op, x: np.ndarray) -> Arrays:
    with np.errstate(all="ignore"):
        return (n.convert(x, op.result.tensor.dtype),)


def _convert_scalar(op: Op) -> Formula | None:
    source, target = (n.kernel_name(v.tensor.dtype) for v in (op.operands[0], op.result))
    return formula(f"convert_{target}") if source and target else None


def _bitcast(op: Op, x: np.ndarray) -> Arrays:
    """Between widths, the narrower side has one more (minor) dimension."""
    target = op.result.tensor.dtype.numpy
    x = np.asarray(x, order="C")
    if x.dtype.itemsize < target.itemsize:
        return (x.view(target)[..., 0],)
    return (x[..., None].view(target) if x.dtype.itemsize > target.itemsize else x.view(target),)


def _bitcast_scalar(op: Op) -> Formula | None:
    source, target = (n.kernel_name(v.tensor.dtype) for v in (op.operands[0], op.result))
    if source == target and source is not None:
        return itself
    same_width = _WIDTHS.get(source or "", 0) == _WIDTHS.get(target or "", -1)
    return formula(f"bitcast_{target}") if same_width else None


def _reduce_precision(op: Op, x: np.ndarray) -> Arrays:
    """Round to a float format of the given widths: nearest even, overflow to inf, small values to 0."""
    exponent, mantissa = int(op.attrs["exponent_bits"]), int(op.attrs["mantissa_bits"])
    info = np.finfo if x.dtype.kind == "f" else None
    if info is None or x.dtype.itemsize < 4:
        wide = x.astype(np.float32)
        return (_round_bits(wide, exponent, mantissa, 8 if x.dtype != np.float16 else 5).astype(x.dtype),)
    return (_round_bits(x, exponent, mantissa, 8 if x.dtype == np.float32 else 11),)


def _round_bits(x: np.ndarray, exponent: int, mantissa: int, own_exponent: int) -> np.ndarray:
    unsigned = np.dtype(f"u{x.dtype.itemsize}").type
    own_mantissa = int(np.finfo(x.dtype).nmant)
    bits = x.view(unsigned)
    if mantissa < own_mantissa:
        drop = own_mantissa - mantissa
        odd = (bits >> unsigned(drop)) & unsigned(1)
        bits = (bits + unsigned((1 << (drop - 1)) - 1) + odd) & ~unsigned((1 << drop) - 1)
    rounded = bits.view(x.dtype)
    if exponent < own_exponent:
        bias = (1 << (exponent - 1)) - 1
        smallest, largest = 2.0 ** (1 - bias), 2.0 ** (bias + 1)
        rounded = np.where(np.abs(rounded) < smallest, np.copysign(0, x), rounded).astype(x.dtype)
        rounded = np.where(np.abs(rounded) >= largest, np.copysign(np.inf, x), rounded).astype(x.dtype)
    return np.where(np.isnan(x), x, rounded)


def _reduce_precision_scalar(op: Op) -> Formula | None:
    """bfloat16's format only rounds the mantissa, which is the conversion there and back.

    So is that of a narrow float to its own format: kernels hold them in f32, with more digits than it has.
    """
    match op.operands[0].tensor.dtype, op.attrs["exponent_bits"], op.attrs["mantissa_bits"]:
        case DType.F32 | DType.BF16, 8, 7:
            return formula("convert_bf16")
        case DType.F16, 5 | 8, 10:
            return formula("convert_f16")
        case (DType.F32, 8, 23) | (DType.BF16, 8, 23) | (DType.F16, 5 | 8, 23) | (DType.F64, 11, 52):
            return itself
        case _:
            return None


def _convert_tf32(x: np.ndarray) -> np.ndarray:
    """The nearest number with ten bits of mantissa, of two the larger one; what is no number stays.

    f64 is as exact as the caller wants it.
    """
    if x.dtype != np.float32:
        return x
    bits = (x.view(np.uint32) + np.uint32(1 << 12)) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(x), bits.view(np.float32), x)


define(
    OpDef(
        "stablehlo.compare",
        OpClass.LIGHT,
        _compare,
        {"comparison_direction": "comparison_direction", "compare_type": "comparison_type"},
        _compare_scalar,
        result_dtype="bool",
    )
)
define(
    OpDef(
        "stablehlo.select",
        OpClass.LIGHT,
        _select,
        scalar=by_dtype(*["select"] * 4),
    )
)
define(
    OpDef(
        "stablehlo.clamp",
        OpClass.LIGHT,
        n.elementwise(_clamp),
        scalar=by_dtype(*[lambda low, x, high: call("minimum", call("maximum", low, x), high)] * 3),
        flops=2.0,
    )
)
define(OpDef(CONVERT, OpClass.LIGHT, _convert, scalar=_convert_scalar, result_dtype="own"))
define(
    OpDef("stablehlo.bitcast_convert", OpClass.LIGHT, _bitcast, scalar=_bitcast_scalar, result_dtype="own")
)
define(
    OpDef(
        "stablehlo.reduce_precision",
        OpClass.LIGHT,
        _reduce_precision,
        {"exponent_bits": "i32", "mantissa_bits": "i32"},
        _reduce_precision_scalar,
    )
)
define(
    OpDef(
        CONVERT_TF32,
        OpClass.LIGHT,
        n.elementwise(_convert_tf32),
        scalar=lambda op: formula("convert_tf32") if op.result.tensor.dtype is DType.F32 else None,
        flops=2.0,
    )
)
