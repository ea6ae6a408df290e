"""cvt: between integers, floats, and packed pairs of 16-bit and 8-bit floats.

cvt.rzi.s32.f32       truncates, clamps to the range, NaN -> 0
cvt.rn.bf16x2.f32     d, a, b: the pair {high: a, low: b}
"""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np

from jstitch.codegen.cuda.ptx.floating import flush, round_f32, saturate
from jstitch.codegen.cuda.ptx.form import Form, Match, form
from jstitch.codegen.cuda.ptx.scalar import DTYPES, Array, is_float, width

_WHOLE: dict[str, Callable[[Array], Array]] = {
    "rni": np.rint,
    "rzi": np.trunc,
    "rmi": np.floor,
    "rpi": np.ceil,
}
_NARROW = {
    "f16x2": np.dtype(np.float16),
    "bf16x2": np.dtype(ml_dtypes.bfloat16),
    "e4m3x2": np.dtype(ml_dtypes.float8_e4m3fn),
    "e5m2x2": np.dtype(ml_dtypes.float8_e5m2),
}
_SCALAR = r"(?:[us](?:8|16|32|64)|f16|bf16|f32|f64)"


def _to_integer(value: Array, mode: str, result: str) -> Array:
    """A float's nearest integer in the mode, clamped; NaN gives 0 or the top bit (64 bits, f64)."""
    whole = _WHOLE[mode](value.astype(np.float64))
    limits = np.iinfo(DTYPES[result])
    inside = (whole >= float(limits.min)) & (whole < float(limits.max) + 1)
    clean = np.where(inside, whole, 0.0).astype(DTYPES[result])
    clamped = np.where(whole > 0, DTYPES[result].type(limits.max), DTYPES[result].type(limits.min))
    special = value.dtype == np.float64 or width(result) == 64
    bits = np.array([1 << (width(result) - 1)], f"u{width(result) // 8}").view(DTYPES[result])
    invalid = bits if special else np.zeros(1, DTYPES[result])
    return np.where(inside, clean, np.where(np.isnan(whole), invalid, clamped))


def _to_float(value: Array, mode: str | None, result: str) -> Array:
    if mode in _WHOLE:
        value = _WHOLE[mode](value)
    if mode in ("rz", "rm", "rp"):
        if result != "f32" or (value.dtype.itemsize == 8 and value.dtype.kind != "f"):
            raise ValueError(f"cvt.{mode} from {value.dtype} to {result} is not supported")
        return round_f32(value.astype(np.float64), mode)
    return value.astype(DTYPES[result])


def _resize(value: Array, result: str, clamp: bool) -> Array:
    if clamp:
        limits = np.iinfo(DTYPES[result])
        low, high = max(limits.min, np.iinfo(value.dtype).min), min(limits.max, np.iinfo(value.dtype).max)
        value = np.clip(value, low, high)
    return value.astype(DTYPES[result])


@form(
    r"cvt(?:\.(?P<mode>rn|rz|rm|rp|rni|rzi|rmi|rpi))?(?P<ftz>\.ftz)?(?P<sat>\.sat)?"
    rf"\.(?P<result>{_SCALAR})\.(?P<t>{_SCALAR})"
)
def _convert(m: Match) -> Form:
    result, source = m["result"], m["t"]

    def apply(value: Array) -> Array:
        if not is_float(source) and not is_float(result):
            return _resize(value, result, bool(m["sat"]))
        if m["ftz"] and source == "f32":
            value = flush(value)
        if not is_float(result):
            return _to_integer(value, m["mode"] or "rzi", result)
        converted = _to_float(value, m["mode"], result)
        if m["ftz"] and result == "f32":
            converted = flush(converted)
        return saturate(converted) if m["sat"] else converted

    return Form(result, (source,), apply)


@form(r"cvt\.rna\.tf32\.f32")
def _convert_tf32(m: Match) -> Form:
    def apply(value: Array) -> Array:
        bits = np.ascontiguousarray(value).view(np.uint32)
        near = (bits + np.uint32(1 << 12)) & ~np.uint32((1 << 13) - 1)
        return np.where(np.isfinite(value), near, bits)

    return Form("b32", ("f32",), apply)


def _narrow(value: Array, pair: str, clamp: bool, relu: bool) -> Array:
    """f32 values as the bits of one half of the pair."""
    dtype = _NARROW[pair]
    if relu:
        value = np.where(value < 0, np.float32(0), value)
    if clamp:
        limit = np.float32(ml_dtypes.finfo(dtype).max)
        value = np.clip(value, -limit, limit)
    narrow = value.astype(dtype)
    return narrow.view(f"u{dtype.itemsize}")


def _pack(high: Array, low: Array) -> Array:
    bits = high.dtype.itemsize * 8
    wide = np.dtype(f"u{bits // 4}")
    return np.asarray((high.astype(wide) << wide.type(bits)) | low)


@form(r"cvt\.rn(?P<clamp>\.satfinite)?(?P<relu>\.relu)?\.(?P<pair>f16x2|bf16x2|e4m3x2|e5m2x2)\.f32")
def _pack_f32(m: Match) -> Form:
    def apply(high: Array, low: Array) -> Array:
        halves = (_narrow(value, m["pair"], bool(m["clamp"]), bool(m["relu"])) for value in (high, low))
        return _pack(*halves)

    return Form("b16" if m["pair"].startswith("e") else "b32", ("f32", "f32"), apply)


@form(r"cvt\.rn(?P<clamp>\.satfinite)?(?P<relu>\.relu)?\.(?P<pair>e4m3x2|e5m2x2)\.f16x2")
def _pack_f16(m: Match) -> Form:
    def apply(value: Array) -> Array:
        halves = [(value >> np.uint32(n)).astype(np.uint16).view(np.float16) for n in (16, 0)]
        floats = (half.astype(np.float32) for half in halves)
        return _pack(*(_narrow(f, m["pair"], bool(m["clamp"]), bool(m["relu"])) for f in floats))

    return Form("b16", ("b32",), apply)


@form(r"cvt\.rn(?P<relu>\.relu)?\.f16x2\.(?P<pair>e4m3x2|e5m2x2)")
def _unpack_f8(m: Match) -> Form:
    def apply(value: Array) -> Array:
        halves = [(value >> np.uint16(n)).astype(np.uint8).view(_NARROW[m["pair"]]) for n in (8, 0)]
        floats = (half.astype(np.float32) for half in halves)
        return _pack(*(_narrow(f, "f16x2", False, bool(m["relu"])) for f in floats))

    return Form("b32", ("b16",), apply)
