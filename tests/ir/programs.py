"""Small graphs of one op each, for tests driven by the op table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import OPS, OpDef
from jstitch.ir.ops.convert import CONVERT_TF32
from jstitch.ir.types import DType, TensorType

FLOATS = (DType.F16, DType.BF16, DType.F32, DType.F64)
SIGNED = (DType.S8, DType.S16, DType.S32, DType.S64)
UNSIGNED = (DType.U8, DType.U16, DType.U32, DType.U64)
INTEGERS = SIGNED + UNSIGNED
COMPLEX = (DType.C64, DType.C128)
BOOL = (DType.BOOL,)

# What StableHLO and XLA:CPU accept, by op; every other elementwise op takes floats.
DTYPES: dict[str, tuple[DType, ...]] = {
    **dict.fromkeys(("stablehlo.add", "stablehlo.multiply"), FLOATS + INTEGERS + BOOL + COMPLEX),
    **dict.fromkeys(("stablehlo.subtract", "stablehlo.divide"), FLOATS + INTEGERS + COMPLEX),
    **dict.fromkeys(("stablehlo.maximum", "stablehlo.minimum"), FLOATS + INTEGERS + BOOL),
    **dict.fromkeys(("stablehlo.and", "stablehlo.or", "stablehlo.xor", "stablehlo.not"), INTEGERS + BOOL),
    **dict.fromkeys(("stablehlo.popcnt", "stablehlo.count_leading_zeros"), INTEGERS),
    **dict.fromkeys(("stablehlo.shift_left", "stablehlo.shift_right_logical"), INTEGERS),
    "stablehlo.shift_right_arithmetic": INTEGERS,
    "stablehlo.remainder": FLOATS + INTEGERS,
    "stablehlo.abs": FLOATS + SIGNED,
    "stablehlo.sign": FLOATS + SIGNED + COMPLEX,
    "stablehlo.negate": FLOATS + INTEGERS + COMPLEX,
    "stablehlo.clamp": FLOATS + INTEGERS,
    "stablehlo.compare": FLOATS + INTEGERS + BOOL,
    "stablehlo.power": FLOATS + COMPLEX,
    "stablehlo.select": FLOATS + INTEGERS + BOOL + COMPLEX,
    **dict.fromkeys(("stablehlo.exponential", "stablehlo.log", "stablehlo.tanh"), FLOATS + COMPLEX),
    **dict.fromkeys(("stablehlo.real", "stablehlo.imag", "chlo.conj"), COMPLEX),
    "stablehlo.complex": (DType.F32, DType.F64),
    "stablehlo.reduce_precision": FLOATS,
    "chlo.next_after": (DType.F32, DType.F64),
    "chlo.bessel_i1e": (DType.F32, DType.F64),
    "chlo.zeta": (DType.F32, DType.F64),
    "chlo.polygamma": (DType.F32, DType.F64),
    "chlo.mulhi": (DType.S32, DType.U32),
}
_BINARY = ("add", "subtract", "multiply", "divide", "remainder", "maximum", "minimum", "and", "or", "xor")
_SHIFTS = ("shift_left", "shift_right_logical", "shift_right_arithmetic")
ARITY = {
    **{f"stablehlo.{name}": 2 for name in (*_BINARY, *_SHIFTS, "atan2", "power", "complex", "compare")},
    **{f"chlo.{name}": 2 for name in ("next_after", "mulhi", "zeta", "polygamma")},
    "stablehlo.clamp": 3,
    "stablehlo.select": 3,
}
ATTRS: dict[str, dict[str, object]] = {
    "stablehlo.compare": {"comparison_direction": "LT"},
    "stablehlo.reduce_precision": {"exponent_bits": 8, "mantissa_bits": 7},
}
NO_SPECIAL = ("chlo.zeta", "chlo.polygamma", "chlo.digamma")  # jaxlib's versions disagree at their poles
SPECIAL = (0.0, -0.0, np.nan, np.inf, -np.inf, 1.0, -1.0, 0.5, 2.5, -2.5)


def build(name: str, types: Sequence[TensorType], result: TensorType, **attrs: object) -> Graph:
    """A graph of one op over its own inputs."""
    inputs = tuple(map(Value, types))
    op = Op(name, inputs, (Value(result),), attrs)
    return Graph(inputs, (op,), op.results)


def elementwise_graph(name: str, dtype: DType, shape: tuple[int, ...]) -> Graph:
    types = [TensorType(shape, dtype)] * ARITY.get(name, 1)
    if name == "stablehlo.select":
        types[0] = TensorType(shape, DType.BOOL)
    attrs = dict(ATTRS.get(name, {}))
    if name == "stablehlo.compare":
        attrs["compare_type"] = compare_type(dtype)
    return build(name, types, TensorType(shape, result_dtype(name, dtype)), **attrs)


def compare_type(dtype: DType) -> str:
    """XLA rejects a comparison whose type does not fit its operands."""
    return "FLOAT" if dtype.is_float else "SIGNED" if dtype.is_signed else "UNSIGNED"


def result_dtype(name: str, dtype: DType) -> DType:
    if name in ("stablehlo.compare", "stablehlo.is_finite"):
        return DType.BOOL
    if name in ("stablehlo.real", "stablehlo.imag"):
        return DType.F32 if dtype is DType.C64 else DType.F64
    if name == "stablehlo.complex":
        return DType.C64 if dtype is DType.F32 else DType.C128
    return dtype


def draw(rng: np.random.Generator, definition: OpDef, type_: TensorType, special: bool = True) -> np.ndarray:
    """Values in the op's domain; floats also get NaN, infinities and signed zeros."""
    low, high = definition.domain
    shape, dtype = type_.shape, type_.dtype
    if dtype is DType.BOOL:
        return rng.integers(0, 2, shape).astype(np.bool_)
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        values = rng.integers(info.min, info.max, shape, dtype=dtype.numpy, endpoint=True)
        small = rng.integers(0 if dtype.is_unsigned else -9, 9, shape).astype(dtype.numpy)
        return np.where(rng.random(shape) < 0.5, values, small)
    values = rng.uniform(low, high, shape)
    if dtype.is_complex:
        return (values + 1j * rng.uniform(low, high, shape)).astype(dtype.numpy)
    if definition.name == "chlo.polygamma" and special:
        values = np.ceil(values)  # a whole order; any positive number is a fine second operand
    if definition.name not in NO_SPECIAL and special:
        flat = values.reshape(-1)
        flat[: len(SPECIAL)] = rng.permutation(SPECIAL)[: flat.size]
    return values.astype(dtype.numpy)


def elementwise_names() -> list[str]:
    """Elementwise ops whose operands and result have one dtype, or as `result_dtype` says; those of XLA."""
    converts = ("stablehlo.convert", "stablehlo.bitcast_convert", CONVERT_TF32)
    return [n for n, d in OPS.items() if d.op_class.is_elementwise and n not in converts]
