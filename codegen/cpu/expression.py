"""A tiny expression layer over llvmlite: polynomial code that reads like mathematics and writes LLVM IR.

    y = x * x                      # fmul, mul: by the value's type
    p = polynomial(x, (1.0, 0.5))  # Horner, with fused multiply-add where the machine has it
    select(x < 0.0, -y, y)

A `Value` lives only while one intrinsic is being written. Everything is straight-line code: LLVM's loop
vectoriser widens it together with the loop around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from jstitch.codegen.cpu.processor import fuses

Number = float | int


@dataclass(frozen=True, eq=False)
class Value:
    """An LLVM value and the builder that extends it. Comparisons are methods or `<`; `==` is Python's."""

    builder: Any
    raw: Any

    @property
    def type(self) -> Any:
        return self.raw.type

    @property
    def is_float(self) -> bool:
        return isinstance(self.type, (ir.FloatType, ir.DoubleType, ir.HalfType))

    @property
    def is_double(self) -> bool:
        return isinstance(self.type, ir.DoubleType)

    @property
    def width(self) -> int:
        """Bits."""
        if isinstance(self.type, ir.IntType):
            return int(self.type.width)
        return {ir.HalfType: 16, ir.FloatType: 32, ir.DoubleType: 64}[type(self.type)]

    def constant(self, number: Number) -> Value:
        """A constant of this value's type."""
        return Value(self.builder, ir.Constant(self.type, number))

    def lift(self, other: Value | Number) -> Value:
        return other if isinstance(other, Value) else self.constant(other)

    def _binary(self, other: Value | Number, floating: str, integer: str) -> Value:
        method = getattr(self.builder, floating if self.is_float else integer)
        return Value(self.builder, method(self.raw, self.lift(other).raw))

    def __add__(self, other: Value | Number) -> Value:
        return self._binary(other, "fadd", "add")

    def __radd__(self, other: Number) -> Value:
        return self.lift(other) + self

    def __sub__(self, other: Value | Number) -> Value:
        return self._binary(other, "fsub", "sub")

    def __rsub__(self, other: Number) -> Value:
        return self.lift(other) - self

    def __mul__(self, other: Value | Number) -> Value:
        return self._binary(other, "fmul", "mul")

    def __rmul__(self, other: Number) -> Value:
        return self.lift(other) * self

    def __truediv__(self, other: Value | Number) -> Value:
        return self._binary(other, "fdiv", "sdiv")

    def __rtruediv__(self, other: Number) -> Value:
        return self.lift(other) / self

    def __neg__(self) -> Value:
        return Value(self.builder, self.builder.fneg(self.raw)) if self.is_float else self.lift(0) - self

    def __and__(self, other: Value | Number) -> Value:
        return Value(self.builder, self.builder.and_(self.raw, self.lift(other).raw))

    def __or__(self, other: Value | Number) -> Value:
        return Value(self.builder, self.builder.or_(self.raw, self.lift(other).raw))

    def __xor__(self, other: Value | Number) -> Value:
        return Value(self.builder, self.builder.xor(self.raw, self.lift(other).raw))

    def __lshift__(self, bits: Value | Number) -> Value:
        return Value(self.builder, self.builder.shl(self.raw, self.lift(bits).raw))

    def __rshift__(self, bits: Value | Number) -> Value:
        """Arithmetic shift; `shift_down` is the logical one."""
        return Value(self.builder, self.builder.ashr(self.raw, self.lift(bits).raw))

    def shift_down(self, bits: Value | Number) -> Value:
        return Value(self.builder, self.builder.lshr(self.raw, self.lift(bits).raw))

    def compare(self, operator: str, other: Value | Number, signed: bool = True) -> Value:
        """i1: `self operator other`; floats ordered, except `!=`, which is true for NaN."""
        right = self.lift(other).raw
        if not self.is_float:
            method = self.builder.icmp_signed if signed else self.builder.icmp_unsigned
        else:
            method = self.builder.fcmp_unordered if operator == "!=" else self.builder.fcmp_ordered
        return Value(self.builder, method(operator, self.raw, right))

    def __lt__(self, other: Value | Number) -> Value:
        return self.compare("<", other)

    def __le__(self, other: Value | Number) -> Value:
        return self.compare("<=", other)

    def __gt__(self, other: Value | Number) -> Value:
        return self.compare(">", other)

    def __ge__(self, other: Value | Number) -> Value:
        return self.compare(">=", other)

    def equals(self, other: Value | Number) -> Value:
        return self.compare("==", other)

    def is_nan(self) -> Value:
        return Value(self.builder, self.builder.fcmp_unordered("uno", self.raw, self.raw))

    def _cast(self, name: str, target: Any) -> Value:
        if self.type == target:
            return self
        return Value(self.builder, getattr(self.builder, name)(self.raw, target))

    def bits(self) -> Value:
        """The float's bits as an integer of its width."""
        return self._cast("bitcast", ir.IntType(self.width))

    def as_float(self) -> Value:
        """The integer's bits as a float of its width (16, 32 or 64)."""
        target = {16: ir.HalfType, 32: ir.FloatType, 64: ir.DoubleType}[self.width]
        return self._cast("bitcast", target())

    def resize(self, width: int, signed: bool) -> Value:
        """The integer at another width."""
        if width < self.width:
            return self._cast("trunc", ir.IntType(width))
        return self._cast("sext" if signed else "zext", ir.IntType(width))

    def to_float(self, target: Any, signed: bool = True) -> Value:
        """The integer's value as a float."""
        return self._cast("sitofp" if signed else "uitofp", target)

    def to_double(self) -> Value:
        return self._cast("fpext", ir.DoubleType())

    def to_single(self) -> Value:
        return self._cast("fptrunc" if self.is_double else "fpext", ir.FloatType())

    def call(self, name: str, *others: Value | Number, flags: Sequence[str] = ()) -> Value:
        """An LLVM intrinsic overloaded on this value's type alone: x.call("llvm.sqrt")."""
        arguments = [self, *(self.lift(other) for other in others)]
        signature = ir.FunctionType(self.type, [a.type for a in arguments])
        function = self.builder.module.declare_intrinsic(name, [self.type], signature)
        return Value(self.builder, self.builder.call(function, [a.raw for a in arguments], fastmath=flags))

    def libm(self, name: str, *others: Value) -> Value:
        """A call into the C library: scalar, for doubles only where no short polynomial is accurate."""
        module, arguments = self.builder.module, [self, *others]
        function = module.globals.get(name)
        if function is None:
            function = ir.Function(module, ir.FunctionType(self.type, [a.type for a in arguments]), name)
        return Value(self.builder, self.builder.call(function, [a.raw for a in arguments]))

    def abs(self) -> Value:
        return self.call("llvm.fabs")

    def sqrt(self) -> Value:
        return self.call("llvm.sqrt")

    def with_sign_of(self, other: Value) -> Value:
        return self.call("llvm.copysign", other)

    def fma(self, factor: Value | Number, addend: Value | Number) -> Value:
        """self * factor + addend; one rounding where the machine can, two where it would cost a libm call."""
        if fuses():
            return self.call("llvm.fma", factor, addend)
        return self * factor + addend


def select(condition: Value, yes: Value | Number, no: Value | Number) -> Value:
    """Both sides are computed; at least one is a Value."""
    model = yes if isinstance(yes, Value) else no
    assert isinstance(model, Value)
    raw = condition.builder.select(condition.raw, model.lift(yes).raw, model.lift(no).raw)
    return Value(condition.builder, raw)


def polynomial(x: Value, coefficients: Sequence[float]) -> Value:
    """c0 + c1 x + c2 x^2 + ..., lowest power first."""
    result = x.constant(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = result.fma(x, coefficient)
    return result


def smaller(a: Value, b: Value | Number) -> Value:
    """a < b ? a : b; b when a is NaN (one instruction, unlike llvm.minimum)."""
    return select(a < b, a, b)


def larger(a: Value, b: Value | Number) -> Value:
    """a > b ? a : b; b when a is NaN."""
    return select(a > b, a, b)
