"""Float functions that need no approximation: signs, rounding, roots, order, classification."""

from __future__ import annotations

import math

from jstitch.codegen.cpu.expression import Value, select


def absolute(x: Value) -> Value:
    return x.abs()


def sign(x: Value) -> Value:
    """-1, +-0, 1 or NaN."""
    return select(x > 0.0, 1.0, select(x < 0.0, -1.0, x))


def floor(x: Value) -> Value:
    return x.call("llvm.floor")


def ceil(x: Value) -> Value:
    return x.call("llvm.ceil")


def round_half_even(x: Value) -> Value:
    return x.call("llvm.rint")


def round_half_away(x: Value) -> Value:
    """Halves go away from zero."""
    whole = x.call("llvm.trunc")
    away = whole + x.constant(1.0).with_sign_of(x)
    return select((x - whole).abs() >= 0.5, away, whole).with_sign_of(x)


def sqrt(x: Value) -> Value:
    return x.sqrt()


def rsqrt(x: Value) -> Value:
    return 1.0 / x.sqrt()


def is_finite(x: Value) -> Value:
    return x.abs() < math.inf


def remainder(x: Value, y: Value) -> Value:
    """C's fmod: the sign of x."""
    return Value(x.builder, x.builder.frem(x.raw, y.raw))


def maximum(a: Value, b: Value, signed: bool) -> Value:
    """NaN when either is; +0 is above -0. Bools: or."""
    return _extremum(a, b, "llvm.maximum", "llvm.smax" if signed else "llvm.umax")


def minimum(a: Value, b: Value, signed: bool) -> Value:
    """NaN when either is; -0 is below +0. Bools: and."""
    return _extremum(a, b, "llvm.minimum", "llvm.smin" if signed else "llvm.umin")


def _extremum(a: Value, b: Value, floating: str, integer: str) -> Value:
    if a.is_float:
        return a.call(floating, b)
    if a.width == 1:
        return a | b if integer == "llvm.umax" else a & b
    return a.call(integer, b)


def next_after(x: Value, y: Value) -> Value:
    """The neighbour of x towards y."""
    bits, width = x.bits(), x.width
    outward = (x < y).equals(x > 0.0)  # away from zero
    step = select(outward, bits.constant(1), -1)
    smallest = (y.bits() & (-1 << (width - 1))) | 1
    moved = select(x.equals(0.0), smallest, bits + step).as_float()
    return select(x.equals(y), y, select(x.is_nan() | y.is_nan(), x + y, moved))


def add_reassociated(a: Value, b: Value) -> Value:
    """a + b, in any order: what lets LLVM vectorise a sum."""
    return Value(a.builder, a.builder.fadd(a.raw, b.raw, flags=("reassoc", "contract")))


def multiply_reassociated(a: Value, b: Value) -> Value:
    """a * b, in any order."""
    return Value(a.builder, a.builder.fmul(a.raw, b.raw, flags=("reassoc", "contract")))


def multiply_rounded(a: Value, b: Value) -> Value:
    """a * b, rounded before anything is added to it.

    Everything without flags gets `contract`; `arcp` says nothing of a product.
    """
    return Value(a.builder, a.builder.fmul(a.raw, b.raw, flags=("arcp",)))


def maximum_reassociated(a: Value, b: Value) -> Value:
    """maximum of floats where either zero will do: no instructions for telling -0 from +0."""
    return a.call("llvm.maximum", b, flags=("nsz",))


def minimum_reassociated(a: Value, b: Value) -> Value:
    """minimum of floats where either zero will do."""
    return a.call("llvm.minimum", b, flags=("nsz",))
