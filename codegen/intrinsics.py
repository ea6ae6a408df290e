"""The functions that kernels compute with: one row each, for every reader.

    add_reassoc    2 floats    like stablehlo.add    CPU: rounding.add_reassociated    CUDA: +

A row says what a function means (on NumPy scalars and arrays, narrow floats as float32), what it costs, and
how each target writes it. Interpreter, simulator, cost models and both backends read the table; a new scalar
function is a new row. Functions of memory and of threads are the backends' own.
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Protocol

import numpy as np

from jstitch.ir.graph import Op, Value
from jstitch.ir.ops import OpDef, lookup
from jstitch.ir.ops import numerics as n
from jstitch.ir.ops.build import elementwise
from jstitch.ir.ops.convert import CONVERT_TF32
from jstitch.ir.ops.evaluate import run_op
from jstitch.ir.types import DType, TensorType

Scalar = Any
Function = Callable[..., Scalar]
Build = Callable[..., Any]
"""From LLVM values to one (codegen.cpu.expression)."""

LIGHT = 0.3  # cycles of a light op among others: adds that wait for each other, which define a cycle, take 1


class Takes(enum.Enum):
    """What a function's operands are, and how the backends type it."""

    FLOATS = "f32 or f64 of one type"
    TESTS = "f32 or f64 of one type; the result is a bool"
    INTEGERS = "integers of one type"
    BITS = "integers or bools of one type"
    SCALARS = "any scalars of one type"
    OPERATORS = "what Python's operator takes"
    INDICES = "indices"
    OTHERS = "what the backends say: another type than the result's"


@dataclass(frozen=True)
class Intrinsic:
    """A function of `arity` scalars.

    reference: what it means. cpu, cuda: what writes its LLVM IR, where `takes` leaves that open; those of
    integers and scalars are also told whether these are signed. cycles: per element, relative to an add;
    cpu_cycles: of the CPU's form, as measured. symbol: Python's operator, where it is one.
    """

    name: str
    arity: int
    takes: Takes
    reference: Function
    cpu: Build | None = None
    cuda: Build | None = None
    cycles: float = 1.0
    cpu_cycles: float = LIGHT
    symbol: str | None = None


class Declare(Protocol):
    """What a backend makes functions with: its module `declare`."""

    def floats(self, name: str, arity: int, build: Build, predicate: bool = False) -> Any: ...
    def integers(self, name: str, arity: int, build: Build, booleans: bool = False) -> Any: ...
    def anything(self, name: str, arity: int, build: Build) -> Any: ...


def declared(row: Intrinsic, build: Build, by: Declare) -> Any:
    """The row as a function of a backend, written by `build`."""
    given = row.name, row.arity, build
    match row.takes:
        case Takes.FLOATS | Takes.TESTS:
            return by.floats(*given, predicate=row.takes is Takes.TESTS)
        case Takes.INTEGERS | Takes.BITS:
            return by.integers(*given, booleans=row.takes is Takes.BITS)
    return by.anything(*given)


INTRINSICS: dict[str, Intrinsic] = {}


def define_intrinsic(row: Intrinsic) -> None:
    """Add a function to the table. Raises ValueError when its name is there already."""
    if row.name in INTRINSICS:
        raise ValueError(f"The function '{row.name}' is defined twice.")
    INTRINSICS[row.name] = row


def cycles(name: str) -> float:
    """Cycles per element of a function, relative to an add; 1 for functions of memory."""
    return INTRINSICS[name].cycles if name in INTRINSICS else 1.0


def cpu_cycles(name: str) -> float:
    """Cycles of the CPU backend's form of a function, as it measures."""
    return INTRINSICS[name].cpu_cycles if name in INTRINSICS else LIGHT


def cpu_cpi(definition: OpDef) -> float:
    """Cycles of an op's CPU form; a core starts several light ones in one."""
    if definition.cpu_cpi is not None:
        return definition.cpu_cpi
    return LIGHT if definition.cpi == 1.0 else definition.cpi


# -- rows that compute what an op of StableHLO does ---------------------------------------------------------


def _reference(name: str) -> Function:
    """What the op's reference says of scalars or arrays."""

    @cache
    def op_on(*dtypes: np.dtype[Any]) -> Op:
        operands = [Value(TensorType((), DType.of(dtype))) for dtype in dtypes]
        return elementwise(name, *operands, dtype=DType.BOOL if name == "stablehlo.is_finite" else None)

    def call(*arguments: Scalar) -> Scalar:
        arrays = [np.asarray(a) for a in arguments]
        return run_op(op_on(*(a.dtype for a in arrays)), arrays)[0][()]

    return call


def _written(path: str) -> Build:
    """What writes LLVM IR: "module.function" of codegen, or a function of libdevice.

    It is imported when a kernel is built: all other readers do without Numba and llvmlite.
    """
    place, _, name = f"jstitch.codegen.{path}".rpartition(".")
    if "." not in path:
        return lambda *xs: import_module("jstitch.codegen.cuda.builder").libdevice(name, *xs)
    return lambda *xs: getattr(import_module(place), name)(*xs)


def _row(name: str, arity: int, takes: Takes, op: str, cpu: str, cuda: str = "") -> None:
    """A function with an op's meaning and cost. cuda: where it is not the CPU's."""
    definition = lookup(op)
    times = definition.cpi, cpu_cpi(definition)
    writes = _written(f"cpu.{cpu}"), _written(cuda or f"cpu.{cpu}")
    define_intrinsic(Intrinsic(name, arity, takes, _reference(op), *writes, *times))


def _floats(name: str, op: str, cpu: str, cuda: str, arity: int = 1) -> None:
    _row(name, arity, Takes.FLOATS, op, cpu, cuda)


for _name, _arity, _op, _build in (
    ("iadd", 2, "add", "integer.add"),
    ("isub", 2, "subtract", "integer.subtract"),
    ("imul", 2, "multiply", "integer.multiply"),
    ("idiv", 2, "divide", "integer.divide"),
    ("irem", 2, "remainder", "integer.remainder"),
    ("ineg", 1, "negate", "integer.negate"),
    ("iabs", 1, "abs", "integer.absolute"),
    ("isign", 1, "sign", "integer.sign"),
    ("shl", 2, "shift_left", "integer.shift_left"),
    ("shr_logical", 2, "shift_right_logical", "integer.shift_right_logical"),
    ("shr_arithmetic", 2, "shift_right_arithmetic", "integer.shift_right_arithmetic"),
    ("popcnt", 1, "popcnt", "integer.population_count"),
    ("clz", 1, "count_leading_zeros", "integer.leading_zeros"),
):
    _row(_name, _arity, Takes.INTEGERS, f"stablehlo.{_op}", _build)

_row("and_", 2, Takes.BITS, "stablehlo.and", "integer.both")
_row("or_", 2, Takes.BITS, "stablehlo.or", "integer.either")
_row("xor", 2, Takes.BITS, "stablehlo.xor", "integer.exclusive")
_row("not_", 1, Takes.BITS, "stablehlo.not", "integer.complement")
_row("maximum", 2, Takes.SCALARS, "stablehlo.maximum", "rounding.maximum", "cuda.order.maximum")
_row("minimum", 2, Takes.SCALARS, "stablehlo.minimum", "rounding.minimum", "cuda.order.minimum")
_row("is_finite", 1, Takes.TESTS, "stablehlo.is_finite", "rounding.is_finite")

_floats("abs_", "stablehlo.abs", "rounding.absolute", "fabs")
_floats("sign", "stablehlo.sign", "rounding.sign", "cpu.rounding.sign")
_floats("floor", "stablehlo.floor", "rounding.floor", "floor")
_floats("ceil", "stablehlo.ceil", "rounding.ceil", "ceil")
_floats("round_half_even", "stablehlo.round_nearest_even", "rounding.round_half_even", "rint")
_floats(
    "round_half_away",
    "stablehlo.round_nearest_afz",
    "rounding.round_half_away",
    "cpu.rounding.round_half_away",
)
_floats("sqrt", "stablehlo.sqrt", "rounding.sqrt", "sqrt")
_floats("rsqrt", "stablehlo.rsqrt", "rounding.rsqrt", "rsqrt")
_floats("remainder_", "stablehlo.remainder", "rounding.remainder", "fmod", 2)
_floats("next_after", "chlo.next_after", "rounding.next_after", "cpu.rounding.next_after", 2)
_floats("add_reassoc", "stablehlo.add", "rounding.add_reassociated", "cuda.arithmetic.plus", 2)
_floats("mul_reassoc", "stablehlo.multiply", "rounding.multiply_reassociated", "cuda.arithmetic.times", 2)
_floats("mul_rounded", "stablehlo.multiply", "rounding.multiply_rounded", "cuda.arithmetic.rounded", 2)
_floats("max_reassoc", "stablehlo.maximum", "rounding.maximum_reassociated", "cuda.order.maximum", 2)
_floats("min_reassoc", "stablehlo.minimum", "rounding.minimum_reassociated", "cuda.order.minimum", 2)
_floats("divide_invariant", "stablehlo.divide", "division.by_invariant", "cuda.arithmetic.divide", 2)

_floats("exp", "stablehlo.exponential", "exponential.exp", "exp")
_floats("exp_nonpositive", "stablehlo.exponential", "exponential.exp_nonpositive", "exp")
_floats("expm1", "stablehlo.exponential_minus_one", "exponential.expm1", "expm1")
_floats("log", "stablehlo.log", "exponential.log", "log")
_floats("log1p", "stablehlo.log_plus_one", "exponential.log1p", "log1p")
_floats("tanh", "stablehlo.tanh", "exponential.tanh", "tanh")
_floats("logistic", "stablehlo.logistic", "exponential.logistic", "cuda.arithmetic.logistic")
_floats("cbrt", "stablehlo.cbrt", "exponential.cbrt", "cbrt")
_floats("pow_", "stablehlo.power", "exponential.power", "pow", 2)
_floats("sinh", "chlo.sinh", "exponential.sinh", "sinh")
_floats("cosh", "chlo.cosh", "exponential.cosh", "cosh")
_floats("asinh", "chlo.asinh", "exponential.asinh", "asinh")
_floats("acosh", "chlo.acosh", "exponential.acosh", "acosh")
_floats("atanh", "chlo.atanh", "exponential.atanh", "atanh")

_floats("sin", "stablehlo.sine", "trigonometric.sin", "sin")
_floats("cos", "stablehlo.cosine", "trigonometric.cos", "cos")
_floats("tan", "stablehlo.tan", "trigonometric.tan", "tan")
_floats("asin", "chlo.asin", "trigonometric.asin", "asin")
_floats("acos", "chlo.acos", "trigonometric.acos", "acos")
_floats("atan", "chlo.atan", "trigonometric.atan", "atan")
_floats("atan2", "stablehlo.atan2", "trigonometric.atan2", "atan2", 2)

_floats("erf", "chlo.erf", "special.erf", "erf")
_floats("erfc", "chlo.erfc", "special.erfc", "erfc")
_floats("erf_inv", "chlo.erf_inv", "special.erf_inv", "erfinv")
_floats("lgamma", "chlo.lgamma", "special.lgamma", "lgamma")
_floats("digamma", "chlo.digamma", "special.digamma", "cpu.special.digamma")


# -- rows that no op stands for -----------------------------------------------------------------------------


def _operator(name: str, symbol: str, reference: Function, costs_as: str = "iadd") -> None:
    """Python's operators, which both backends know."""
    like, arity = INTRINSICS[costs_as], 1 if name == "neg" else 2
    times = (0.0, 0.0) if name == "neg" else (like.cycles, like.cpu_cycles)
    define_intrinsic(Intrinsic(name, arity, Takes.OPERATORS, reference, None, None, *times, symbol=symbol))


_operator("add", "+", operator.add)
_operator("sub", "-", operator.sub)
_operator("mul", "*", operator.mul)
_operator("div", "/", operator.truediv, "idiv")
_operator("neg", "-", operator.neg)
_operator("eq", "==", operator.eq)
_operator("ne", "!=", operator.ne)
_operator("lt", "<", operator.lt)
_operator("le", "<=", operator.le)
_operator("gt", ">", operator.gt)
_operator("ge", ">=", operator.ge)


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


def _clamp(i: int, low: int, high: int) -> int:
    return min(max(int(i), low), high)


def _select(condition: Scalar, yes: Scalar, no: Scalar) -> Scalar:
    return yes if bool(condition) else no


def _others(rows: Iterable[tuple[str, int, Function]], takes: Takes = Takes.OTHERS) -> None:
    for name, arity, reference in rows:
        define_intrinsic(Intrinsic(name, arity, takes, reference))


_NARROW = {name: d for d in DType if (name := n.kernel_name(d)) is not None}
_others((f"convert_{name}", 1, _convert(dtype)) for name, dtype in _NARROW.items())
_others((f"bitcast_{name}", 1, _bitcast(dtype)) for name, dtype in _NARROW.items())
_others([("convert_tf32", 1, _reference(CONVERT_TF32))])
_others([("select", 3, _select)])
_others([("quotient", 2, _quotient), ("remainder_pos", 2, _remainder)], Takes.INDICES)
_others([("clamp_index", 3, _clamp)], Takes.INDICES)


# -- words that hold two bf16 -------------------------------------------------------------------------------


def _half(shift: int) -> Function:
    """A bf16 is the upper half of the f32 that it equals."""
    return lambda word: (np.asarray(word, np.uint32) >> shift << 16).astype(np.uint32).view(np.float32)[()]


_others([("low_bf16", 1, _half(0)), ("high_bf16", 1, _half(16))])
