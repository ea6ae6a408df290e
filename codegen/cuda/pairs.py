"""Instructions that convert two narrow floats at once: packed codes, the first one in the low bits.

    cvt.rn.bf16x2.f32  cvt.rn.f16x2.f32      from sm_80
    cvt.rn.satfinite.e4m3x2.f32  cvt.rn.f16x2.e4m3x2      from sm_89, of e5m2 too

The 8-bit ones saturate where XLA says NaN (e4m3fn has no inf) or inf (e5m2); that is put right around them.
"""

from __future__ import annotations

import math

from llvmlite import ir

from jstitch.codegen.cpu.convert import BF16, E4M3FN, E5M2, F16, Narrow
from jstitch.codegen.cpu.expression import Value, select
from jstitch.codegen.cuda.builder import Builder

_HALVES = {F16: "f16x2", BF16: "bf16x2"}
_BYTES = {E4M3FN: "e4m3x2", E5M2: "e5m2x2"}
_HALF, _WORD = ir.IntType(16), ir.IntType(32)
E4M3_LARGEST = 464.0  # halfway to where the next value would be: rounds down, to 448
E5M2_OVERFLOW = 61440.0  # rounds up, to inf


def encodes(builder: Builder, form: Narrow) -> bool:
    """Whether the GPU rounds two values to that format in one instruction."""
    return builder.capability >= (8, 0) if form in _HALVES else decodes(builder, form)


def decodes(builder: Builder, form: Narrow) -> bool:
    """Whether the GPU widens two values of that format in one instruction."""
    if form not in _BYTES:
        return False
    return builder.capability >= (9, 0) or (builder.capability == (8, 9) and builder.ptx_version >= (8, 1))


def encode(low: Value, high: Value, form: Narrow) -> Value:
    """Two f32 as an integer of two codes; only where `encodes`."""
    if form is E4M3FN:
        low, high = (select(x.abs() <= E4M3_LARGEST, x, math.nan) for x in (low, high))
    codes = _encode(low, high, form)
    if form is E5M2:  # the code of inf is the one after the largest number
        for x, one in ((low, 1), (high, 1 << 8)):
            codes = codes + select(x.abs() >= E5M2_OVERFLOW, codes.constant(one), 0)
    return codes


def _encode(low: Value, high: Value, form: Narrow) -> Value:
    if form in _HALVES:
        text, letter, kind = f"cvt.rn.{_HALVES[form]}.f32 $0, $1, $2;", "r", _WORD
    else:
        text, letter, kind = f"cvt.rn.satfinite.{_BYTES[form]}.f32 $0, $1, $2;", "h", _HALF
    return Value(low.builder, low.builder.inline(text, f"={letter},f,f", kind, high.raw, low.raw))


def decode(codes: Value, form: Narrow) -> list[Value]:
    """Two f32 from an i16 of two 8-bit codes; only where `decodes`."""
    text = f"cvt.rn.f16x2.{_BYTES[form]} $0, $1;"
    both = Value(codes.builder, codes.builder.inline(text, "=r,h", _WORD, codes.raw))
    halves = (both.resize(16, signed=False), both.shift_down(16).resize(16, signed=False))
    return [half.as_float().to_single() for half in halves]
