"""Arithmetic of complex numbers on their parts.

Infinities, zeros and NaN go where XLA's own forms (MLIR's complex dialect) and C's Annex G take them.
"""

from __future__ import annotations

import math

from jstitch.ir.graph import Value
from jstitch.ir.ops import build
from jstitch.ir.ops.part_writer import Pair, PartWriter
from jstitch.ir.types import DType

_FINITE = "stablehlo.is_finite"


def multiply(w: PartWriter, x: Pair, y: Pair) -> Pair:
    (a, b), (c, d) = x, y
    re = w.do("subtract", w.do("multiply", a, c), w.do("multiply", b, d))
    return re, w.do("add", w.do("multiply", a, d), w.do("multiply", b, c))


def square(w: PartWriter, x: Pair) -> Pair:
    a, b = x
    half = w.do("multiply", a, b)
    re = w.do("multiply", w.do("subtract", a, b), w.do("add", a, b))
    return re, w.do("add", half, half)


def divide(w: PartWriter, x: Pair, y: Pair) -> Pair:
    """Smith's algorithm, then what it has no number for."""
    if y[1] in w.zeros:
        return _by_real(w, x, y)
    quotient = _smith(w, x, y)
    zero, finite = w.filled(y[0], 0.0), [_are_finite(w, z) for z in (x, y)]
    infinite = [_are_infinite(w, z) for z in (x, y)]
    # infinite by finite, finite by infinite: as if infinities were 1 and all else 0
    found = quotient
    for test, factor, (a, b) in (
        (w.do("and", infinite[0], finite[1]), math.inf, (_units(w, x), y)),
        (w.do("and", finite[0], infinite[1]), 0.0, (x, _units(w, y))),
    ):
        whole = multiply(w, a, (b[0], w.do("negate", b[1])))
        scale = w.filled(zero, factor)
        found = _either(
            w, test, (w.do("multiply", scale, whole[0]), w.do("multiply", scale, whole[1])), found
        )
    # by zero: infinities of the sign that its real part has
    inverse = w.do("divide", w.filled(zero, 1.0), y[0])
    none = w.do("and", *(w.is_("EQ", part, zero) for part in y))
    found = _either(w, none, (w.do("multiply", inverse, x[0]), w.do("multiply", inverse, x[1])), found)
    return _either(w, _are_nan(w, quotient), found, quotient)


def _by_real(w: PartWriter, x: Pair, y: Pair) -> Pair:
    """By a number whose imaginary part is 0, with which the other part is multiplied: it may be infinite."""
    re = w.do("add", x[0], w.do("multiply", x[1], y[1]))
    im = w.do("subtract", x[1], w.do("multiply", x[0], y[1]))
    none = w.is_("EQ", y[0], w.filled(y[0], 0.0))
    lost = w.do("and", _are_nan(w, (re, im)), _are_infinite(w, x))
    above = _either(w, w.do("or", none, lost), x, (re, im))
    return w.do("divide", above[0], y[0]), w.do("divide", above[1], y[0])


def _are_nan(w: PartWriter, x: Pair) -> Value:
    return w.do("and", *(w.is_("NE", part, part) for part in x))


def _smith(w: PartWriter, x: Pair, y: Pair) -> Pair:
    """The larger part of the divisor is divided by."""
    (a, b), (c, d) = x, y
    first = w.is_("GE", w.do("abs", c), w.do("abs", d))
    large, small = w.choose(first, c, d), w.choose(first, d, c)
    ratio = w.do("divide", small, large)
    by = w.do("add", large, w.do("multiply", small, ratio))
    ahead, behind = w.choose(first, a, b), w.choose(first, b, a)
    re = w.do("divide", w.do("add", ahead, w.do("multiply", behind, ratio)), by)
    im = w.do("divide", w.do("subtract", behind, w.do("multiply", ahead, ratio)), by)
    return re, w.choose(first, im, w.do("negate", im))


def _either(w: PartWriter, test: Value, x: Pair, y: Pair) -> Pair:
    return w.choose(test, x[0], y[0]), w.choose(test, x[1], y[1])


def _are_finite(w: PartWriter, x: Pair) -> Value:
    return w.do("and", *(w.write(build.elementwise(_FINITE, part, dtype=DType.BOOL)) for part in x))


def _are_infinite(w: PartWriter, x: Pair) -> Value:
    """Whether one of them is."""
    return w.do("or", *(_is_infinite(w, part) for part in x))


def _is_infinite(w: PartWriter, x: Value) -> Value:
    return w.is_("EQ", w.do("abs", x), w.filled(x, math.inf))


def _units(w: PartWriter, x: Pair) -> Pair:
    """1 where a part is infinite, 0 where not, with its sign."""
    re, im = (_unit(w, part) for part in x)
    return re, im


def _unit(w: PartWriter, x: Value) -> Value:
    zero = w.filled(x, 0.0)
    none = w.choose(w.is_("LT", x, zero), w.filled(x, -0.0), zero)
    return w.choose(_is_infinite(w, x), w.do("sign", x), none)


def _size(w: PartWriter, x: Pair) -> tuple[Value, Value]:
    """The larger of both parts, and the smaller one divided by it (of equal ones 1)."""
    a, b = (w.do("abs", part) for part in x)
    large, small = w.do("maximum", a, b), w.do("minimum", a, b)
    equal = w.is_("EQ", large, small)
    return large, w.choose(equal, w.filled(a, 1.0), w.do("divide", small, large))


def absolute(w: PartWriter, x: Pair) -> Value:
    large, ratio = _size(w, x)
    square = w.do("multiply", ratio, ratio)
    return w.do("multiply", large, w.do("sqrt", w.do("add", w.filled(large, 1.0), square)))


def sign(w: PartWriter, x: Pair) -> Pair:
    size = absolute(w, x)
    zero = w.filled(size, 0.0)
    none = w.is_("EQ", size, zero)
    scaled = w.do("divide", x[0], size), w.do("divide", x[1], size)
    return _either(w, none, (zero, zero), scaled)


def exponential(w: PartWriter, x: Pair) -> Pair:
    a, b = x
    size = w.do("exponential", a)
    real = w.is_("EQ", b, w.filled(b, 0.0))
    im = w.choose(real, b, w.do("multiply", size, w.do("sine", b)))
    return w.do("multiply", size, w.do("cosine", b)), im


def log(w: PartWriter, x: Pair) -> Pair:
    a, b = x
    large, ratio = _size(w, x)
    more = w.do("log_plus_one", w.do("multiply", ratio, ratio))
    size = w.do("add", w.do("log", large), w.do("multiply", w.filled(large, 0.5), more))
    return size, w.do("atan2", b, a)
