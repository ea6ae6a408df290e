"""exp, log and what follows from them, as straight-line LLVM IR.

f32: exp, log, expm1, log1p, tanh and logistic are native f32 polynomials (the hot ones); the rest goes
through short f64 polynomials, which halve the lanes and make cancellation a non-issue. f64: exp, log,
tanh, logistic and cbrt are polynomials, the rest calls the C library. The polynomials are minimax fits,
or plain Taylor series where a few terms more do not matter. Results below the smallest normal number are
flushed to zero, as XLA's threads do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from llvmlite import ir

from jstitch.codegen.cpu.expression import Value, larger, polynomial, select, smaller
from jstitch.codegen.cpu.processor import fuses, host_has

LN2 = math.log(2.0)
ROUND32 = 1.5 * 2.0**23  # adding it leaves the nearest integer in the low bits, without a float-to-int of NaN
ROUND64 = 1.5 * 2.0**52
LOWEST32 = -88.0296875  # -127 ln 2: from there on e^x counts as 2^-127, whose exponent is that of zero
MIN32, MIN64 = 2.0**-126, 2.0**-1022
SQRT_HALF32, SQRT_HALF64 = 0x3F3504F3, 0x3FE6A09E667F3BCD

# (e^r - 1 - r) / r^2 on |r| <= ln(2)/2, error 6e-8
EXP_TAIL = (
    0.50000000270951124,
    0.16666576642917619,
    0.041666374103579421,
    0.0083632357291579069,
    0.0013941216508162343,
)
# (log(1+f) - f + f^2/2) / f^3 on [sqrt(1/2)-1, sqrt(2)-1], weighted by f^2, error 7e-10
LOG_TAIL = (
    *(
        0.33333310570575781,
        -0.24999986679051159,
        0.20002219717335329,
        -0.1666924412744919,
        0.14218771393046998,
    ),
    *(-0.12384498974157881, 0.11872370144366865, -0.11788833890180475, 0.06915524232837273),
)
TERMS32, TERMS64 = 7, 11  # of the f64 series: enough for an f32, an f64 result


def inverse_factorials(first: int, last: int) -> tuple[float, ...]:
    return tuple(1.0 / math.factorial(k) for k in range(first, last + 1))


def clamp(x: Value, low: float, high: float) -> Value:
    """x within [low, high]; NaN stays. Two instructions: the constants come first in both."""
    return smaller(x.constant(high), larger(x.constant(low), x))


def _round(x: Value, factor: float) -> tuple[Value, Value]:
    """The integer nearest to x * factor as a float, and as an integer of the width of x."""
    magic = x.constant(ROUND64 if x.is_double else ROUND32)
    shifted = x.fma(factor, magic)
    return shifted - magic, shifted.bits() - magic.bits()


def _reduce(x: Value) -> tuple[Value, Value]:
    """(r, n) with x = n ln 2 + r, |r| <= ln(2)/2; the first part of ln 2 is short, so n times it is exact."""
    n, integer = _round(x, 1.0 / LN2)
    high = 0.693359375 if not x.is_double else float.fromhex("0x1.62e42fefa3800p-1")
    low = -2.1219444005469058e-4 if not x.is_double else 5.497923018708371e-14
    return n.fma(-low, n.fma(-high, x)), integer


def exp(x: Value) -> Value:
    r, n = _reduce(x)
    if x.is_double:
        power = (r * r).fma(polynomial(r, inverse_factorials(2, 13)), r) + 1.0
    else:
        power = polynomial(r, (1.0, 1.0, *EXP_TAIL))
    top, bottom = (709.78271289338397, -708.3964185322641) if x.is_double else (88.7228317, -87.3365402)
    result = _scale(power, n)
    above = Value(x.builder, x.builder.fcmp_unordered(">", x.raw, x.constant(top).raw))
    result = select(above, x + math.inf, result)  # NaN too
    return select(x < bottom, 0.0, result)


def exp_nonpositive(x: Value) -> Value:
    """exp of an x that is not above 0 (or NaN). A product brings in the power of two, 0 at the end."""
    if x.is_double or host_has("avx512f"):
        return exp(x)
    x = larger(x.constant(LOWEST32), x)
    shifted = x.fma(1.0 / LN2, x.constant(ROUND32 + 127))
    n = shifted - (ROUND32 + 127)
    r = n.fma(2.1219444005469058e-4, n.fma(-0.693359375, x))
    return polynomial(r, (1.0, 1.0, *EXP_TAIL)) * (shifted.bits() << 23).as_float()


def _scale(x: Value, n: Value) -> Value:
    """x * 2^n for a normal result."""
    if host_has("avx512f"):  # one instruction there; elsewhere it would be a scalar call
        small = ir.IntType(32)
        shape = ir.FunctionType(x.type, [x.type, small])
        function = x.builder.module.declare_intrinsic("llvm.ldexp", [x.type, small], shape)
        return Value(x.builder, x.builder.call(function, [x.raw, n.resize(32, signed=True).raw]))
    return (x.bits() + (n << (52 if x.is_double else 23))).as_float()


def log(x: Value) -> Value:
    result = log64(x, TERMS64) if x.is_double else _log32(x)
    return _log_limits(x, result)


def _log_limits(x: Value, result: Value) -> Value:
    """log of NaN and inf is itself, of zero (and of denormals, which XLA flushes) -inf, of the rest NaN."""
    smallest = MIN64 if x.is_double else MIN32
    result = select(x < math.inf, result, x)
    return select(x < smallest, select(x > -smallest, x.constant(-math.inf), math.nan), result)


def _log32(x: Value) -> Value:
    bits = x.bits() - SQRT_HALF32
    exponent = (bits >> 23).to_float(x.type)
    f = ((bits & 0x7FFFFF) + SQRT_HALF32).as_float() - 1.0
    square = f * f
    tail = (square * f) * polynomial(f, LOG_TAIL)
    tail = exponent.fma(-2.1219444005469058e-4, tail)
    return exponent.fma(0.693359375, f + square.fma(-0.5, tail))


def log64(x: Value, terms: int) -> Value:
    """log of a positive normal f64: with s = f / (2 + f), log(1+f) = 2 s + s (2/3 s^2 + 2/5 s^4 + ...)."""
    bits = x.bits() - (SQRT_HALF64 - (1023 << 52))
    exponent = ((bits.shift_down(52)) | 0x4330000000000000).as_float() - (2.0**52 + 1023)
    f = ((bits & ((1 << 52) - 1)) + SQRT_HALF64).as_float() - 1.0
    s = f / (f + 2.0)
    z = s * s
    series = z * polynomial(z, [2.0 / (2 * k + 1) for k in range(1, terms)])
    half = f * f * 0.5
    low = exponent.fma(5.497923018708371e-14, s * (half + series))
    return exponent.fma(float.fromhex("0x1.62e42fefa3800p-1"), f - (half - low))


def exp_parts(x: Value, last: int) -> tuple[Value, Value]:
    """(expm1(r), 2^n) of an f64 x with |x| < 700; `last`: the series' last power."""
    r, n = _reduce(x)
    scale = ((n + 1023) << 52).as_float()
    return (r * r).fma(polynomial(r, inverse_factorials(2, last)), r), scale


def _wide(x: Value) -> Value:
    """An f32 exponent as f64, bounded where every f32 result has long become 0, 1 or inf."""
    return clamp(x.to_double(), -200.0, 200.0)


OWN = 2.0**-26  # below it e^x - 1 is x


def expm1(x: Value) -> Value:
    if x.is_double:
        return x.libm("expm1")
    r, n = _reduce(clamp(x, -30.0, 89.0))
    small = (r * r).fma(polynomial(r, EXP_TAIL), r)
    half = ((n + 126) << 23).as_float()  # 2^(n-1): 2^n itself may overflow where the result does not
    result = half.fma(small, half - 0.5) * 2.0
    return select(x.abs() < OWN, x, result)  # zeros keep their sign; half of the smallest is none


def log1p(x: Value) -> Value:
    """log(u) + (x + 1 - u) / u with u = x + 1, rounded."""
    if x.is_double:
        return x.libm("log1p")
    shifted = x + 1.0
    lost = select(x > 1.0, 1.0 - (shifted - x), x - (shifted - 1.0))
    result = _log_limits(shifted, _log32(shifted) + lost / shifted)
    return select(x.equals(0.0), x, result)


# tanh(x)/x = P(x^2)/Q(x^2) on |x| < 9, error 2e-8. TANH_ONE: the first f32 whose ratio, in f32, is 1
TANH_ONE = 7.904656887054443
TANH_P = (
    0.99999997886050371,
    0.13379777226004871,
    0.0034941032322887981,
    2.0584538383235199e-5,
    1.3320395757575827e-8,
)
TANH_Q = (1.0, 0.46713092514681222, 0.025871339018809672, 0.00032832020281980893, 7.7625912487798532e-7)


def odd_ratio(x: Value, above: Sequence[float], below: Sequence[float], limit: float) -> Value:
    """x P(x^2) / Q(x^2), where it is 1 at `limit`: from there on it grows like x, and is cut to 1."""
    square = smaller(x.constant(limit * limit), x * x)
    return clamp(x * polynomial(square, above) / polynomial(square, below), -1.0, 1.0)


def tanh(x: Value) -> Value:
    if x.is_double:
        return _tanh64(x)
    bounded = clamp(x, -TANH_ONE, TANH_ONE)
    square = bounded * bounded
    ratio = bounded * polynomial(square, TANH_P) / polynomial(square, TANH_Q)
    return ratio if fuses() else clamp(ratio, -1.0, 1.0)  # two roundings may end above 1


def _tanh64(x: Value) -> Value:
    small, scale = exp_parts(clamp(x.abs() * 2.0, -1.0, 44.0), 13)
    grown = scale.fma(small, scale - 1.0)
    return (grown / (grown + 2.0)).with_sign_of(x)


def logistic(x: Value) -> Value:
    """1 / (1 + e^-x)"""
    return 1.0 / (exp(-x) + 1.0)


def sinh(x: Value) -> Value:
    if x.is_double:
        return x.libm("sinh")
    small, scale = exp_parts(_wide(x.abs()), 9)
    grown = scale.fma(small, scale - 1.0)
    result = (grown + grown / (grown + 1.0)) * 0.5
    return result.to_single().with_sign_of(x)


def cosh(x: Value) -> Value:
    if x.is_double:
        return x.libm("cosh")
    small, scale = exp_parts(_wide(x), 9)
    grown = scale.fma(small, scale)
    return ((grown + 1.0 / grown) * 0.5).to_single()


def asinh(x: Value) -> Value:
    if x.is_double:
        return x.libm("asinh")
    a = x.to_double().abs()
    square = a * a
    total = a + (square + 1.0).sqrt()
    result = _log_limits(total, log64(total, TERMS32))
    result = select(a < 2.0**-8, a * polynomial(square, (1.0, -1 / 6, 3 / 40)), result)
    return result.to_single().with_sign_of(x)


def acosh(x: Value) -> Value:
    if x.is_double:
        return x.libm("acosh")
    wide = x.to_double()
    total = wide + ((wide - 1.0) * (wide + 1.0)).sqrt()
    return select(x < 1.0, math.nan, _log_limits(total, log64(total, TERMS32)).to_single())


def atanh(x: Value) -> Value:
    if x.is_double:
        return x.libm("atanh")
    a = x.to_double().abs()
    ratio = (a + 1.0) / (1.0 - a)
    result = _log_limits(ratio, log64(ratio, TERMS32)) * 0.5
    result = select(a < 2.0**-7, a * polynomial(a * a, (1.0, 1 / 3, 1 / 5)), result)
    return result.to_single().with_sign_of(x)


def cbrt(x: Value) -> Value:
    wide = x.to_double().abs()
    small, scale = exp_parts(log64(wide, TERMS32) * (1 / 3), 9)
    result = scale.fma(small, scale)
    if x.is_double:
        for _ in range(2):  # Newton: the error squares, from 1e-10
            result = result - (result - wide / (result * result)) * (1 / 3)
    else:
        result = result.to_single()
    ordinary = x.abs().compare("<", math.inf) & x.abs().compare(">=", MIN64 if x.is_double else 1e-45)
    return select(ordinary, result.with_sign_of(x), x)


def power(x: Value, y: Value) -> Value:
    """C's pow."""
    if x.is_double:
        return x.libm("pow", y)
    base = x.abs()
    log_base = _wide_log(base)
    log_base = select(base < math.inf, select(base >= MIN32, log_base, -math.inf), math.inf)
    scaled = select(base.equals(1.0) | y.equals(0.0), 0.0, y.to_double() * log_base)
    return _power_sign(x, y, base, _narrow_exp(clamp(scaled, -104.0, 104.0)))


def _wide_log(x: Value) -> Value:
    """log of a positive normal f32, as f64 to 2e-12; the exponent is taken apart at f32's lanes."""
    bits = x.bits() - SQRT_HALF32
    exponent = (bits >> 23).to_float(ir.DoubleType())
    f = ((bits & 0x7FFFFF) + SQRT_HALF32).as_float().to_double() - 1.0
    s = f / (f + 2.0)
    z = s * s
    series = polynomial(z, [2.0 / (2 * k + 1) for k in range(TERMS32)])
    return exponent.fma(LN2, s * series)


def _narrow_exp(x: Value) -> Value:
    """exp of an f64 as f32: reduced as f64, the polynomial and the scaling (by two halves) as f32."""
    wide, n = _round(x, 1.0 / LN2)
    r, whole = wide.fma(-LN2, x).to_single(), n.resize(32, signed=True)
    power = (r * r).fma(polynomial(r, EXP_TAIL), r) + 1.0
    half = whole >> 1
    return power * ((half + 127) << 23).as_float() * ((whole - half + 127) << 23).as_float()


def _power_sign(x: Value, y: Value, base: Value, result: Value) -> Value:
    """The sign of x^y from |x|^y, and its NaN cases."""
    whole = y.call("llvm.floor").equals(y)
    half = y * 0.5
    odd = whole & half.call("llvm.floor").compare("!=", half)
    result = select(odd, result.with_sign_of(x), result)
    bad = ((x < 0.0) & (base < math.inf) & whole.equals(0)) | x.is_nan() | y.is_nan()
    return select(bad & y.compare("!=", 0.0) & x.compare("!=", 1.0), math.nan, result)
