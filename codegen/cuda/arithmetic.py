"""Python's operators in kernel text, and the index arithmetic of `codegen.intrinsics`.

a / b              f32: div.full.f32, as XLA:GPU divides; f64: correctly rounded
(k * 32 + t) * 4   on indices; 128 * k is computed here, nsw lets LLVM split it off as an offset
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping, Sequence

from llvmlite import ir

from jstitch.codegen.cpu import integer
from jstitch.codegen.cpu.expression import Value, select
from jstitch.codegen.cuda.builder import Builder, libdevice
from jstitch.codegen.cuda.declare import Function, Misuse, common, index_common, scalar, widen
from jstitch.codegen.cuda.scalar import BOOL, S64, Argument, Kind, Operand, constant, index_kind

_COMPARISONS: Mapping[type, tuple[str, Callable[[int, int], bool]]] = {
    ast.Eq: ("==", operator.eq),
    ast.NotEq: ("!=", operator.ne),
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
}
_INDEX: Mapping[type, tuple[str, Callable[[int, int], int]]] = {
    ast.Add: ("add", operator.add),
    ast.Sub: ("sub", operator.sub),
    ast.Mult: ("mul", operator.mul),
}
_FLOAT: Mapping[type, Callable[[Value, Value], Value]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
}


def is_index(operand: Operand) -> bool:
    return operand.kind.name in ("index", "s64")


def divide(a: Value, b: Value) -> Value:
    """a / b of floats; f32 to 2 ulp, or exactly where b is a power of two."""
    if a.is_double:
        return a / b
    if isinstance(b.raw, ir.Constant) and _is_power_of_two(b.raw.constant):
        return a * (1.0 / float(b.raw.constant))
    return Value(a.builder, a.builder.inline("div.full.f32 $0, $1, $2;", "=f,f,f", a.type, a.raw, b.raw))


def plus(a: Value, b: Value) -> Value:
    """a + b"""
    return a + b


def times(a: Value, b: Value) -> Value:
    """a * b"""
    return a * b


def rounded(a: Value, b: Value) -> Value:
    """a * b; ptxas fuses products that do not say how they are rounded with what is added to them."""
    kind, letter = ("f64", "d") if a.is_double else ("f32", "f")
    operands = ",".join([letter] * 2)
    text = f"mul.rn.{kind} $0, $1, $2;"
    return Value(a.builder, a.builder.inline(text, f"={letter},{operands}", a.type, a.raw, b.raw))


def logistic(x: Value) -> Value:
    """1 / (1 + e^-x)"""
    return divide(x.constant(1.0), libdevice("exp", -x) + 1.0)


def _is_power_of_two(number: float) -> bool:
    """Whether it is one whose reciprocal is one in f32 too."""
    fraction, exponent = math.frexp(number)
    return abs(fraction) == 0.5 and abs(exponent) < 126


def binary(builder: Builder, kind: ast.operator, left: Argument, right: Argument) -> Operand:
    """left + - * / right, of floats of one kind or of indices."""
    name = type(kind).__name__
    if is_index(scalar(name, left)) and is_index(scalar(name, right)):
        return _index_binary(builder, kind, left, right)
    of, operands = common(name, (left, right))
    build = divide if isinstance(kind, ast.Div) else _FLOAT.get(type(kind))
    if not of.is_float or build is None:
        raise Misuse("+ - * / of floats or + - * of indices", f"{name} of {of.name}")
    return Operand(of, build(*(o.value(builder) for o in operands)).raw)


def _index_binary(builder: Builder, kind: ast.operator, left: Argument, right: Argument) -> Operand:
    if type(kind) not in _INDEX:
        raise Misuse("+ - * of indices", type(kind).__name__)
    method, fold = _INDEX[type(kind)]
    of, (a, b) = index_common(builder, method, (left, right))
    if isinstance(a.number, int) and isinstance(b.number, int):
        return constant(of, fold(a.number, b.number))
    flags = () if of == S64 else ("nsw",)  # an index fits its type; a datum may be anything
    return Operand(of, getattr(builder, method)(a.raw, b.raw, flags=flags))


def negate(builder: Builder, argument: Argument) -> Operand:
    operand = scalar("-", argument)
    if isinstance(operand.number, int | float) and operand.kind != BOOL:
        return constant(operand.kind, -operand.number)
    if not operand.kind.is_float and not is_index(operand):
        raise Misuse("a float or an index after -", operand.kind.name)
    return Operand(operand.kind, (-operand.value(builder)).raw)


def compare(builder: Builder, kind: ast.cmpop, left: Argument, right: Argument) -> Operand:
    """A comparison of any scalars of one kind; known at compile time where both sides are."""
    if type(kind) not in _COMPARISONS:
        raise Misuse("one of == != < <= > >=", type(kind).__name__)
    symbol, fold = _COMPARISONS[type(kind)]
    both = all(is_index(scalar(symbol, a)) for a in (left, right))
    of, (a, b) = index_common(builder, symbol, (left, right)) if both else common(symbol, (left, right))
    if both and isinstance(a.number, int) and isinstance(b.number, int):
        return constant(BOOL, fold(a.number, b.number))
    return Operand(BOOL, a.value(builder).compare(symbol, b.value(builder), of.signed).raw)


def _divides(name: str, fold: Callable[[int, int], int], build: Callable[[Value, Value], Value]) -> Function:
    def emit(builder: Builder, arguments: Sequence[Argument]) -> Operand:
        kind, (a, b) = index_common(builder, name, arguments)
        if isinstance(a.number, int) and isinstance(b.number, int):
            if a.number < 0 or b.number <= 0:
                raise Misuse(f"{name}(a, k) with a >= 0 and k > 0", f"{a.number} and {b.number}")
            return constant(kind, fold(a.number, b.number))
        return Operand(kind, build(a.value(builder), b.value(builder)).raw)

    return Function(name, 2, emit)


quotient = _divides("quotient", operator.floordiv, integer.quotient)
remainder_pos = _divides("remainder_pos", operator.mod, integer.remainder_of_index)


def _clamp(builder: Builder, arguments: Sequence[Argument]) -> Operand:
    """The nearest index in [low, high], computed in the widest kind of the three, as an index."""
    kind, operands = index_common(builder, "clamp_index", arguments)
    i, low, high = (o.value(builder) for o in operands)
    above = select(i > low, i, low)
    return widen(
        builder, "clamp_index", Operand(kind, select(above < high, above, high).raw), index_kind(builder)
    )


clamp_index = Function("clamp_index", 3, _clamp)


def to_s64(builder: Builder, argument: Argument) -> Operand:
    """int64(v): any integer scalar, or an index, as s64."""
    operand = scalar("int64", argument)
    if isinstance(operand.number, int):
        return constant(S64, operand.number)
    if not operand.kind.is_integral:
        raise Misuse("an integer in int64", operand.kind.name)
    return resized(builder, operand, S64)


def resized(builder: Builder, operand: Operand, kind: Kind) -> Operand:
    return Operand(kind, operand.value(builder).resize(kind.bits, operand.kind.signed).raw)
