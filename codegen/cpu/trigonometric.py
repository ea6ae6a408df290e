"""Circular functions. f32: vectorised, exact argument reduction for every finite x; f64: the C library.

Reduction of x = m 2^e (m an integer of 24 bits): x 2/pi mod 4 = m (2^e 2/pi mod 4), and the second factor is
a table of 256 exponents in two doubles. The first holds 28 bits, so m times it is exact.
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from typing import Any

from llvmlite import ir

from jstitch.codegen.cpu.exponential import inverse_factorials
from jstitch.codegen.cpu.expression import Value, polynomial, select
from jstitch.codegen.cpu.scopes import CONSTANTS, tag

ROUND = 1.5 * 2.0**52
# (sin r - r) / r^3 and (cos r - 1 + r^2/2) / r^4 in r^2, |r| <= pi/4: errors 4e-9, 2e-9
SIN_TAIL = (-0.16666654647916306, 0.0083321577221818744, -0.00019514371429108617)
COS_TAIL = (0.041666664610456323, -0.0013888292108345481, 2.4545513926388015e-5)
# atan(t) / t in t^2, |t| <= 1, error 5e-11
ATAN = (
    *(0.99999999994740988, -0.33333331721341593, 0.19999918078246982, -0.14284075039730877),
    *(0.11093997205602125, -0.08983773551990702, 0.072560172114447823, -0.054471781341058207),
    *(0.034441112397186643, -0.016284371221627402, 0.0049237205768521599, -0.0006980388362120556),
)


def _arctan_inverse(n: int, bits: int) -> int:
    """atan(1/n) * 2^bits, from its series."""
    total, term, k = 0, (1 << bits) // n, 0
    while term:
        total += -term // (2 * k + 1) if k % 2 else term // (2 * k + 1)
        term //= n * n
        k += 1
    return total


@functools.cache
def reduction_table() -> tuple[tuple[float, float], ...]:
    """For every biased exponent E: 2^(E-150) 2/pi mod 4, in two doubles; NaN for inf and NaN."""
    bits = 400
    pi = 4 * (4 * _arctan_inverse(5, bits) - _arctan_inverse(239, bits))  # Machin
    ratio = Fraction(2 << bits, pi)
    finite = [_split(ratio * Fraction(2) ** (e - 150) % 4) for e in range(255)]
    return (*finite, (math.nan, math.nan))


def _split(value: Fraction) -> tuple[float, float]:
    """The first 28 bits, the rest."""
    unit = Fraction(2) ** (math.frexp(float(value))[1] - 28)
    high = value // unit * unit
    return float(high), float(value - high)


def _table(builder: Any, column: int) -> Any:
    """The module's constant array of one column."""
    name = f"jstitch.two_over_pi.{column}"
    found = builder.module.globals.get(name)
    if found is not None:
        return found
    shape = ir.ArrayType(ir.DoubleType(), 256)
    table = ir.GlobalVariable(builder.module, shape, name)
    table.linkage, table.global_constant = "internal", True
    table.initializer = ir.Constant(shape, [row[column] for row in reduction_table()])
    return table


def _lookup(exponent: Value, column: int) -> Value:
    builder, zero = exponent.builder, ir.Constant(ir.IntType(64), 0)
    pointer = builder.gep(_table(builder, column), [zero, exponent.raw], inbounds=True)
    loaded = builder.load(pointer, typ=ir.DoubleType(), align=8)
    tag(loaded, builder.module, CONSTANTS)  # else the stores of the loop keep it from vectorising
    return Value(builder, loaded)


def _reduce(x: Value) -> tuple[Value, Value]:
    """|x| = q pi/2 + r: r as f64 with |r| <= pi/4, and an i32 whose low two bits are those of q."""
    bits = x.bits() & 0x7FFFFFFF
    exponent = bits.shift_down(23).resize(64, signed=False)
    mantissa = ((bits & 0x7FFFFF) | 0x800000).to_float(ir.DoubleType())
    product, rest = mantissa * _lookup(exponent, 0), _lookup(exponent, 1)
    shifted = mantissa.fma(rest, product) + ROUND
    quarter = mantissa.fma(rest, product - (shifted - ROUND))
    return quarter * (math.pi / 2), shifted.bits().resize(32, signed=False)


def _sine_cosine(r: Value) -> tuple[Value, Value]:
    """sin and cos of an f64 |r| <= pi/4, to f32 accuracy."""
    square = r * r
    sine = (square * r).fma(polynomial(square, SIN_TAIL), r)
    cosine = (square * square).fma(polynomial(square, COS_TAIL), square.fma(-0.5, 1.0))
    return sine, cosine


def sin(x: Value) -> Value:
    if x.is_double:
        return x.libm("sin")
    wide, quadrant = _reduce(x)
    sine, cosine = _sine_cosine(wide)
    result = select((quadrant & 1).equals(0), sine, cosine).to_single()
    flip = ((quadrant & 2) << 30) ^ (x.bits() & -0x80000000)
    return select(x.abs() < 2.0**-12, x, (result.bits() ^ flip).as_float())


def cos(x: Value) -> Value:
    if x.is_double:
        return x.libm("cos")
    wide, quadrant = _reduce(x)
    sine, cosine = _sine_cosine(wide)
    result = select((quadrant & 1).equals(0), cosine, sine).to_single()
    return (result.bits() ^ (((quadrant + 1) & 2) << 30)).as_float()


def tan(x: Value) -> Value:
    if x.is_double:
        return x.libm("tan")
    r, quadrant = _reduce(x)
    square = r * r
    sines, cosines = inverse_factorials(1, 13)[::2], (1.0, *inverse_factorials(2, 12)[::2])
    sine = r * polynomial(square, [c * (-1) ** k for k, c in enumerate(sines)])
    cosine = polynomial(square, [c * (-1) ** k for k, c in enumerate(cosines)])
    even = (quadrant & 1).equals(0)
    result = (select(even, sine, -cosine) / select(even, cosine, sine)).to_single()
    flip = x.bits() & -0x80000000
    return select(x.abs() < 2.0**-12, x, (result.bits() ^ flip).as_float())


def _arc(opposite: Value, adjacent: Value) -> Value:
    """The angle in [0, pi/2] of two f64 sides >= 0, to f32 accuracy; 0 of (0, 0), pi/4 of (inf, inf)."""
    steep = opposite > adjacent
    ratio = select(steep, adjacent, opposite) / select(steep, opposite, adjacent)
    ratio = select(opposite.equals(adjacent), select(opposite.equals(0.0), ratio.constant(0.0), 1.0), ratio)
    angle = ratio * polynomial(ratio * ratio, ATAN)
    return select(steep, math.pi / 2 - angle, angle)


def _cathetus(x: Value) -> Value:
    """sqrt(1 - x^2); NaN for |x| > 1."""
    return ((1.0 - x) * (x + 1.0)).sqrt()


def asin(x: Value) -> Value:
    if x.is_double:
        return x.libm("asin")
    wide = x.to_double()
    return _arc(wide.abs(), _cathetus(wide)).to_single().with_sign_of(x)


def acos(x: Value) -> Value:
    if x.is_double:
        return x.libm("acos")
    wide = x.to_double()
    angle = _arc(_cathetus(wide), wide.abs())
    return select(wide < 0.0, math.pi - angle, angle).to_single()


def atan(x: Value) -> Value:
    if x.is_double:
        return x.libm("atan")
    wide = x.to_double().abs()
    return _arc(wide, wide.constant(1.0)).to_single().with_sign_of(x)


def atan2(y: Value, x: Value) -> Value:
    """The angle of the point (x, y), in [-pi, pi]."""
    if x.is_double:
        return y.libm("atan2", x)
    wide = x.to_double()
    angle = _arc(y.to_double().abs(), wide.abs())
    angle = select(x.bits() < 0, math.pi - angle, angle)
    angle = select(x.is_nan(), math.nan, angle)
    return angle.to_single().with_sign_of(y)
