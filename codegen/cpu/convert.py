"""Conversions between kernel types, and the narrow floats: f16, bf16, f8e4m3fn, f8e5m2.

Kernels hold narrow floats as f32 values on the narrow grid: `decode` widens bits, `encode` rounds to nearest
even. NaN stays NaN. Nothing here depends on denormal f32 arithmetic, which XLA's threads flush to zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from llvmlite import ir

from jstitch.codegen.cpu.expression import Value, larger, select, smaller
from jstitch.codegen.cpu.processor import host_has, is_arm, is_x86

SINGLE = ir.FloatType()


@dataclass(frozen=True)
class Narrow:
    """A narrow float format: its fields, and whether the top exponent means inf (IEEE) or just NaN (fn)."""

    width: int
    mantissa: int
    bias: int
    has_inf: bool = True

    @property
    def exponent_mask(self) -> int:
        return (1 << (self.width - 1 - self.mantissa)) - 1

    @property
    def smallest_normal(self) -> float:
        return 2.0 ** (1 - self.bias)

    @property
    def inf_code(self) -> int:
        """The code of inf; in a format without it, the code of NaN, which overflow becomes."""
        return self.exponent_mask << self.mantissa if self.has_inf else (1 << (self.width - 1)) - 1

    @property
    def nan_code(self) -> int:
        return self.inf_code | (1 << (self.mantissa - 1))


F16 = Narrow(16, 10, 15)
BF16 = Narrow(16, 7, 127)
E4M3FN = Narrow(8, 3, 7, has_inf=False)
E5M2 = Narrow(8, 2, 15)
NARROW = {"f16": F16, "bf16": BF16, "f8e4m3fn": E4M3FN, "f8e5m2": E5M2}


def _native_half() -> bool:
    """Whether f16 conversions are instructions; elsewhere LLVM would call a library that may not be there."""
    return host_has("f16c") if is_x86() else is_arm()


def decode(bits: Value, form: Narrow) -> Value:
    """iN bits -> f32, exact."""
    if form is BF16:
        return (bits.resize(32, signed=False) << 16).as_float()
    if form is F16 and _native_half():
        return bits.as_float().to_single()
    return _decode_by_fields(bits.resize(32, signed=False), form)


def _decode_by_fields(code: Value, form: Narrow) -> Value:
    magnitude = code & ((1 << (form.width - 1)) - 1)
    sign = (code & (1 << (form.width - 1))) << (32 - form.width)
    normal = (magnitude << (23 - form.mantissa)) + ((127 - form.bias) << 23)
    tiny = magnitude.to_float(SINGLE) * 2.0 ** (1 - form.bias - form.mantissa)
    value = select(magnitude < (1 << form.mantissa), tiny.bits(), normal)
    value = select(magnitude.equals(form.inf_code), 0x7F800000 if form.has_inf else 0x7FC00000, value)
    if form.has_inf:
        value = select(magnitude > form.inf_code, value | 0x7FC00000, value)
    return (value | sign).as_float()


def encode(x: Value, form: Narrow) -> Value:
    """f32 -> iN bits, to nearest even; overflow gives inf, or NaN where the format has no inf."""
    if form is F16 and _native_half():
        return x._cast("fptrunc", ir.HalfType()).bits()
    if form is BF16:
        return _encode_bf16(x)
    bits = x.bits()
    magnitude = bits & 0x7FFFFFFF
    code = _round_bits(magnitude, form)
    code = select(x.abs() < form.smallest_normal, _encode_tiny(x, form), code)
    code = select(code > form.inf_code, form.inf_code, code)
    code = select(magnitude > 0x7F800000, form.nan_code, code)
    sign = bits.shift_down(31) << (form.width - 1)
    return (code | sign).resize(form.width, signed=False)


def _encode_bf16(x: Value) -> Value:
    """The upper half, rounded. A carry stays below the sign, except from a NaN, which is only made quiet."""
    bits = x.bits()
    upper = bits.shift_down(16)
    rounded = (bits + 0x7FFF + (upper & 1)).shift_down(16)
    return select(x.is_nan(), upper | 0x40, rounded).resize(16, signed=False)


def low_bf16(word: Value) -> Value:
    """The bf16 in the lower half of a word, as f32."""
    return (word << 16).as_float()


def high_bf16(word: Value) -> Value:
    """The bf16 in the upper half of a word, as f32."""
    return (word & -0x10000).as_float()


def pack_bf16(low: Value, high: Value) -> Value:
    """The word of two f32, rounded as `encode` rounds."""
    return _rounded_bf16(low).shift_down(16) | (_rounded_bf16(high) & -0x10000)


def _rounded_bf16(x: Value) -> Value:
    """Bits of which the upper half is the bf16, and the lower half nothing."""
    bits = x.bits()
    rounded = bits + 0x7FFF + (bits.shift_down(16) & 1)
    return select(x.is_nan(), bits | 0x400000, rounded)


def convert_tf32(x: Value) -> Value:
    """The nearest f32 with ten bits of mantissa, of two the larger one; what is no number stays."""
    near = ((x.bits() + (1 << 12)) & -(1 << 13)).as_float()
    return select(x.abs() < math.inf, near, x)


def _round_bits(magnitude: Value, form: Narrow) -> Value:
    """The code of a value that is normal in the format: drop mantissa bits to nearest even."""
    drop = 23 - form.mantissa
    odd = magnitude.shift_down(drop) & 1
    rounded = magnitude + odd + ((1 << (drop - 1)) - 1)
    return rounded.shift_down(drop) - ((127 - form.bias) << form.mantissa)


def _encode_tiny(x: Value, form: Narrow) -> Value:
    """The code of a value below the smallest normal: adding a power of two makes the hardware round it."""
    anchor = x.constant(2.0 ** (1 - form.bias - form.mantissa + 23))
    return (x.abs() + anchor).bits() - anchor.bits()


def round_to(x: Value, form: Narrow) -> Value:
    """The nearest value of the format, as f32."""
    return decode(encode(x, form), form)


def to_bool(x: Value, signed: bool) -> Value:
    return x.compare("!=", 0)


def to_integer(x: Value, width: int, signed: bool, to_signed: bool) -> Value:
    """Floats truncate and saturate, NaN gives 0; integers wrap."""
    return _truncate(x, width, to_signed) if x.is_float else x.resize(width, signed)


def _truncate(x: Value, width: int, signed: bool) -> Value:
    """What llvm.fptosi.sat means, in steps that vectorise."""
    if width < 32 or (x.is_double and width == 32 and signed):
        return _truncate_narrow(x, width, signed)
    low, top = (-(1 << (width - 1)), 1 << (width - 1)) if signed else (0, 1 << width)
    largest = float(top) * (1.0 - 2.0 ** -(53 if x.is_double else 24))  # the last float below top
    bounded = select(x >= largest, largest, select(x > float(low), x, float(low)))
    bounded = select(x.is_nan(), 0.0, bounded)
    method = x.builder.fptosi if signed else x.builder.fptoui
    whole = Value(x.builder, method(bounded.raw, ir.IntType(width)))
    return select(x >= float(top), top - 1, whole)


def _truncate_narrow(x: Value, width: int, signed: bool) -> Value:
    """The same where every bound is a float and fits i32: nothing is left to choose after the conversion."""
    low, top = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if signed else (0, (1 << width) - 1)
    bounded = smaller(x.constant(float(top)), larger(x.constant(float(low)), x))
    bounded = select(x.is_nan(), 0.0, bounded)
    return Value(x.builder, x.builder.fptosi(bounded.raw, ir.IntType(32))).resize(width, signed=True)


def to_floating(x: Value, target: ir.Type, signed: bool) -> Value:
    """Any scalar as f32 or f64."""
    if not x.is_float:
        return x.to_float(target, signed)
    return x.to_double() if isinstance(target, ir.DoubleType) else x.to_single()


def to_narrow(x: Value, form: Narrow, signed: bool) -> Value:
    """Any scalar on the grid of the format, as f32."""
    return round_to(to_floating(x, SINGLE, signed), form)
