"""Floating-point arithmetic. `.approx` and `.full` operations are computed exactly and rounded once.

fma.f32 goes through f64: it differs from the fused result once in 2**29. fma.f64 keeps the product's rounding
error. `.ftz` flushes f32 subnormals to zero, of operands and of results.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np

from jstitch.codegen.cuda.ptx.form import Form, Match, form, pure
from jstitch.codegen.cuda.ptx.scalar import DTYPES, UNSIGNED, Array, width

Apply = Callable[..., Array]

_TYPE = r"(?P<t>f16|bf16|f32|f64)"
_ROUND = r"(?:\.(?P<round>rn|rz|rm|rp))?"
_FTZ = r"(?P<ftz>\.ftz)?"
_SAT = r"(?P<sat>\.sat)?"


def flush(value: Array) -> Array:
    """Zeros of the same sign for f32 subnormals."""
    small = np.abs(value) < np.float32(2.0**-126)
    return np.where(small, np.copysign(np.float32(0), value), value) if small.any() else value


def round_f32(value: Array, mode: str) -> Array:
    """f64 -> f32 in the rounding mode rn, rz, rm or rp."""
    near = value.astype(np.float32)
    if mode == "rn":
        return near
    up = near.astype(np.float64) > value
    below = np.where(up, np.nextafter(near, np.float32(-np.inf)), near)
    down = near.astype(np.float64) < value
    above = np.where(down, np.nextafter(near, np.float32(np.inf)), near)
    return {"rm": below, "rp": above, "rz": np.where(value > 0, below, above)}[mode]


def _finish(m: Match, apply: Apply, arity: int) -> Form:
    """The form, with the modifiers ftz, sat and a directed rounding of f32."""
    groups, inner = m.groupdict(), apply
    mode = groups.get("round") or "rn"
    if mode != "rn":
        if m["t"] != "f32":
            raise ValueError(f".{mode}.{m['t']} is not supported")
        inner = lambda *xs: round_f32(apply(*(x.astype(np.float64) for x in xs)), mode)  # noqa: E731
    if not groups.get("ftz") and not groups.get("sat"):
        return pure(m["t"], inner, arity)

    def modified(*values: Array) -> Array:
        if groups.get("ftz") and m["t"] == "f32":
            result = flush(inner(*(flush(value) for value in values)))
        else:
            result = inner(*values)
        return saturate(result) if groups.get("sat") else result

    return pure(m["t"], modified, arity)


def saturate(value: Array) -> Array:
    """Clamped to [0, 1]; NaN becomes 0."""
    kind = value.dtype.type
    return np.asarray(np.where(value > 0, np.minimum(value, kind(1)), kind(0)))


_SIMPLE: dict[str, Apply] = {"add": operator.add, "sub": operator.sub, "mul": operator.mul}


@form(rf"(?P<name>add|sub|mul){_ROUND}{_FTZ}{_SAT}\.{_TYPE}")
def _simple(m: Match) -> Form:
    return _finish(m, _SIMPLE[m["name"]], 2)


def _split(a: Array) -> tuple[Array, Array]:
    scaled = a * 134217729.0
    up = scaled - (scaled - a)
    return up, a - up


def _fused_f64(a: Array, b: Array, c: Array) -> Array:
    product = a * b
    (a1, a2), (b1, b2) = _split(a), _split(b)
    error = ((a1 * b1 - product) + a1 * b2 + a2 * b1) + a2 * b2
    total = product + c
    back = total - product
    lost = (product - (total - back)) + (c - back)
    exact = total + (lost + error)
    return np.where(np.isfinite(exact), exact, total)


def _fused(a: Array, b: Array, c: Array) -> Array:
    if a.dtype == np.float64:
        return _fused_f64(a, b, c)
    wide = a.astype(np.float64) * b.astype(np.float64) + c.astype(np.float64)
    return np.asarray(wide.astype(a.dtype))


@form(rf"(?:fma|mad){_ROUND}{_FTZ}{_SAT}\.{_TYPE}")
def _fma(m: Match) -> Form:
    directed = (m["round"] or "rn") != "rn"
    return _finish(m, (lambda a, b, c: a * b + c) if directed else _fused, 3)


@form(rf"div(?:\.(?:full|approx))?{_ROUND}{_FTZ}\.{_TYPE}")
def _div(m: Match) -> Form:
    return _finish(m, operator.truediv, 2)


@form(rf"neg{_FTZ}\.{_TYPE}")
def _neg(m: Match) -> Form:
    return _sign(m, lambda bits, sign: bits ^ sign)


@form(rf"abs{_FTZ}\.{_TYPE}")
def _abs(m: Match) -> Form:
    return _sign(m, lambda bits, sign: bits & ~sign)


def _sign(m: Match, change: Apply) -> Form:
    dtype, bits = DTYPES[m["t"]], UNSIGNED[width(m["t"])]
    sign = bits.type(1 << (width(m["t"]) - 1))
    return _finish(m, lambda a: change(a.view(bits), sign).view(dtype), 1)


@form(r"copysign\.(?P<t>f32|f64)")
def _copysign(m: Match) -> Form:
    return pure(m["t"], lambda sign, value: np.copysign(value, sign), 2)


@form(rf"(?P<name>min|max){_FTZ}(?P<nan>\.NaN)?\.{_TYPE}")
def _extreme(m: Match) -> Form:
    dtype, bits = DTYPES[m["t"]], UNSIGNED[width(m["t"])]
    table: dict[tuple[str, bool], Apply] = {
        ("min", False): np.fmin, ("min", True): np.minimum, ("max", False): np.fmax, ("max", True): np.maximum
    }  # fmt: skip
    choose = table[m["name"], bool(m["nan"])]
    join = operator.or_ if m["name"] == "min" else operator.and_  # of equal values: -0 against +0

    def apply(a: Array, b: Array) -> Array:
        equal = join(a.view(bits), b.view(bits)).view(dtype)
        return np.where(a == b, equal, choose(a, b))

    return _finish(m, apply, 2)


_ONE_OPERAND: dict[str, Apply] = {
    "rcp": lambda x: 1 / x,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "ex2": np.exp2,
    "lg2": np.log2,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
}


@form(rf"(?P<name>rcp|sqrt|rsqrt|ex2|lg2|sin|cos|tanh)(?:\.approx)?{_ROUND}{_FTZ}\.{_TYPE}")
def _one_operand(m: Match) -> Form:
    apply = _ONE_OPERAND[m["name"]]
    if m["t"] == "f64":
        return _finish(m, apply, 1)
    dtype = DTYPES[m["t"]]
    return _finish(m, lambda x: apply(x.astype(np.float64)).astype(dtype), 1)


_PROPERTIES: dict[str, Apply] = {
    "finite": np.isfinite,
    "infinite": np.isinf,
    "number": lambda x: ~np.isnan(x),
    "notanumber": np.isnan,
    "normal": lambda x: np.isfinite(x) & (np.abs(x) >= np.finfo(x.dtype).tiny),
    "subnormal": lambda x: np.abs(x) < np.finfo(x.dtype).tiny,
}


@form(rf"testp\.(?P<name>{'|'.join(_PROPERTIES)})\.(?P<t>f32|f64)")
def _testp(m: Match) -> Form:
    return Form("pred", (m["t"],), _PROPERTIES[m["name"]])
