"""Conversions of kernel scalars on a GPU: narrow floats to and from bits, and floats to integers.

f16         cvt.rn.f16.f32, two at once from sm_80
bf16        cvt.rn.bf16x2.f32 from sm_80, before it integer code
f8          widened through f16, whose exponent has room for both; rounded by integer code (the hardware's
            cvt.rn.satfinite saturates where XLA says inf or NaN)
f32 -> s32  cvt.rzi.s32.f32: saturates, NaN gives 0
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from llvmlite import ir

from jstitch.codegen.cpu import convert
from jstitch.codegen.cpu.convert import BF16, E4M3FN, F16, Narrow
from jstitch.codegen.cpu.expression import Value, select
from jstitch.codegen.cuda.builder import Builder
from jstitch.codegen.cuda.declare import Function, Misuse, scalar
from jstitch.codegen.cuda.scalar import BOOL, KINDS, STORAGE, Argument, Kind, Operand, Storage, constant

_WORD = ir.IntType(32)
_PAIRS = {F16: "f16x2", BF16: "bf16x2"}


def has_pairs(x: Value, form: Narrow) -> bool:
    """Whether the GPU rounds two values to that format in one instruction."""
    return form in _PAIRS and bool(x.builder.capability >= (8, 0))


def encode_pair(low: Value, high: Value, form: Narrow) -> Value:
    """Two f32 as one i32 of two codes; only where has_pairs."""
    instruction = f"cvt.rn.{_PAIRS[form]}.f32 $0, $1, $2;"
    return Value(low.builder, low.builder.inline(instruction, "=r,f,f", _WORD, high.raw, low.raw))


def decode(bits: Value, form: Narrow) -> Value:
    """iN bits -> f32, exact."""
    if form is BF16:
        return convert.decode(bits, form)
    if form is F16:
        return bits.as_float().to_single()
    wide = bits.resize(16, signed=False)
    return _decode_e4m3(wide) if form is E4M3FN else (wide << 8).as_float().to_single()  # e5m2: half an f16


def _decode_e4m3(code: Value) -> Value:
    """The fields in those of an f16, whose bias is larger by 8; the top code is NaN."""
    magnitude = code & 0x7F
    half = (magnitude << 7) | ((code & 0x80) << 8)
    return select(magnitude.equals(0x7F), math.nan, half.as_float().to_single() * 256.0)


def encode(x: Value, form: Narrow) -> Value:
    """f32 -> iN bits, to nearest even."""
    if form is F16:
        return Value(x.builder, x.builder.fptrunc(x.raw, ir.HalfType())).bits()
    if form is BF16 and has_pairs(x, form):
        return encode_pair(x, x.constant(0.0), form).resize(16, signed=False)
    return convert.encode(x, form)


def to_integer(x: Value, kind: Kind) -> Value:
    """A float truncated and saturated; NaN gives 0."""
    width = max(kind.bits, 32)
    signed = kind.signed or kind.bits < 32  # a small unsigned integer fits s32
    whole = _truncate(x, width, signed)
    if x.is_double or width == 64:  # else the instruction does it
        whole = select(x.is_nan(), 0, whole)
    if kind.bits >= 32:
        return whole
    low, high = (
        (-(1 << (kind.bits - 1)), (1 << (kind.bits - 1)) - 1) if kind.signed else (0, (1 << kind.bits) - 1)
    )
    whole = select(whole < low, low, select(whole > high, high, whole))
    return whole.resize(kind.bits, signed=True)


def _truncate(x: Value, width: int, signed: bool) -> Value:
    """cvt.rzi: it saturates, and gives 0 for a NaN where 64 bits are not involved."""
    source = "d" if x.is_double else "f"
    target = {(32, True): "i", (32, False): "ui", (64, True): "ll", (64, False): "ull"}[width, signed]
    return Value(x.builder, x.builder.external(f"llvm.nvvm.{source}2{target}.rz", ir.IntType(width), x.raw))


def convert_value(x: Value, source: Kind, target: Storage) -> Value:
    """Any scalar as the dtype, with XLA's rules; narrow floats stay f32 on their grid."""
    if target.narrow is not None:
        single = convert.to_floating(x, convert.SINGLE, source.signed)
        return decode(encode(single, target.narrow), target.narrow)
    if target.kind.is_float:
        return convert.to_floating(x, target.kind.llvm, source.signed)
    if target.kind == BOOL:
        return convert.to_bool(x, source.signed)
    return to_integer(x, target.kind) if x.is_float else x.resize(target.kind.bits, source.signed)


def conversion(dtype: str) -> Function:
    """convert_<dtype>(x): any scalar or index as that dtype."""
    target, name = STORAGE[dtype], f"convert_{dtype}"

    def emit(builder: Builder, arguments: Sequence[Argument]) -> Operand:
        x = scalar(name, arguments[0])
        if isinstance(x.number, int) and x.kind.name == "index" and target.kind.is_integral:
            number = x.number != 0 if target.kind == BOOL else x.number
            return constant(target.kind, number)
        return Operand(target.kind, convert_value(Value(builder, x.raw), x.kind, target).raw)

    return Function(name, 1, emit)


def bitcast(dtype: str) -> Function:
    """bitcast_<dtype>(x): the bits of x, a scalar of the same width, as that dtype."""
    target, name = KINDS[dtype], f"bitcast_{dtype}"

    def emit(builder: Builder, arguments: Sequence[Argument]) -> Operand:
        x = scalar(name, arguments[0])
        if x.kind.bits != target.bits:
            raise Misuse(f"a scalar of {target.bits} bits in {name}", x.kind.name)
        value = Value(builder, x.raw)
        return Operand(target, value._cast("bitcast", target.llvm).raw)

    return Function(name, 1, emit)
