"""Integer, bit and index arithmetic: wrap-around, and XLA's answers where C has none.

x / 0 = -1, x % 0 = x, INT_MIN / -1 = INT_MIN; a shift by the width or more gives 0 (or the sign).
"""

from __future__ import annotations

from llvmlite import ir

from jstitch.codegen.cpu.expression import Value, select


def add(a: Value, b: Value, signed: bool) -> Value:
    return a + b


def subtract(a: Value, b: Value, signed: bool) -> Value:
    return a - b


def multiply(a: Value, b: Value, signed: bool) -> Value:
    return a * b


def negate(a: Value, signed: bool) -> Value:
    return -a


def absolute(a: Value, signed: bool) -> Value:
    return select(a < 0, -a, a) if signed else a


def sign(a: Value, signed: bool) -> Value:
    """-1, 0 or 1 in the operand's type."""
    if not signed:
        return a.compare("!=", 0).resize(a.width, signed=False)
    return (a >> (a.width - 1)) | (a > 0).resize(a.width, signed=False)


def _safe_divisor(a: Value, b: Value, signed: bool) -> Value:
    """b, or 1 where the hardware would trap."""
    unsafe = b.equals(0)
    if signed:
        unsafe = unsafe | (b.equals(-1) & a.equals(-(1 << (a.width - 1))))
    return select(unsafe, 1, b)


def divide(a: Value, b: Value, signed: bool) -> Value:
    divisor = _safe_divisor(a, b, signed)
    method = a.builder.sdiv if signed else a.builder.udiv
    return select(b.equals(0), -1, Value(a.builder, method(a.raw, divisor.raw)))


def remainder(a: Value, b: Value, signed: bool) -> Value:
    divisor = _safe_divisor(a, b, signed)
    method = a.builder.srem if signed else a.builder.urem
    return select(b.equals(0), a, Value(a.builder, method(a.raw, divisor.raw)))


def both(a: Value, b: Value, signed: bool) -> Value:
    return a & b


def either(a: Value, b: Value, signed: bool) -> Value:
    return a | b


def exclusive(a: Value, b: Value, signed: bool) -> Value:
    return a ^ b


def complement(a: Value, signed: bool) -> Value:
    return a ^ a.constant(-1 if a.width > 1 else 1)


def shift_left(a: Value, b: Value, signed: bool) -> Value:
    return select(b.compare("<", a.width, signed=False), a << b, 0)


def shift_right_logical(a: Value, b: Value, signed: bool) -> Value:
    return select(b.compare("<", a.width, signed=False), a.shift_down(b), 0)


def shift_right_arithmetic(a: Value, b: Value, signed: bool) -> Value:
    return a >> select(b.compare("<", a.width, signed=False), b, a.width - 1)


def population_count(a: Value, signed: bool) -> Value:
    return a.call("llvm.ctpop")


def leading_zeros(a: Value, signed: bool) -> Value:
    """The width for 0."""
    flag = Value(a.builder, ir.Constant(ir.IntType(1), 0))
    return a.call("llvm.ctlz", flag)


def quotient(a: Value, b: Value) -> Value:
    """a // b for a >= 0, b > 0."""
    return Value(a.builder, a.builder.udiv(a.raw, b.raw))


def remainder_of_index(a: Value, b: Value) -> Value:
    """a % b for a >= 0, b > 0."""
    return Value(a.builder, a.builder.urem(a.raw, b.raw))


def clamp_index(i: Value, low: Value, high: Value) -> Value:
    """The nearest index in [low, high]."""
    return i.call("llvm.smax", low).call("llvm.smin", high)
