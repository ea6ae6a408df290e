"""Conversions of kernel scalars on a GPU: narrow floats to and from bits, and floats to integers.

f16         cvt.rn.f16.f32
bf16, f8    the instructions for pairs where the GPU has them, else integer code; f8 is widened through f16,
            whose exponent has room for both formats
f32 -> s32  cvt.rzi.s32.f32: saturates, NaN gives 0
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from llvmlite import ir

from jstitch.codegen.cpu import convert
from jstitch.codegen.cpu.convert import BF16, E4M3FN, F16, Narrow
from jstitch.codegen.cpu.expression import Value, select
from jstitch.codegen.cuda import pairs
from jstitch.codegen.cuda.builder import Builder
from jstitch.codegen.cuda.declare import Function, Misuse, require, scalar
from jstitch.codegen.cuda.scalar import BOOL, F32, KINDS, STORAGE, Argument, Kind, Operand, Storage, constant


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
    if form is not F16 and pairs.encodes(x.builder, form):
        return pairs.encode(x, x.constant(0.0), form).resize(form.width, signed=False)
    return convert.encode(x, form)


def _convert_tf32(builder: Builder, arguments: Sequence[Argument]) -> Operand:
    """The nearest f32 with ten bits of mantissa, of two the larger one: an instruction from sm_80 on."""
    x = require("convert_tf32", arguments[0], F32).value(builder)
    if builder.capability < (8, 0):
        return Operand(F32, convert.convert_tf32(x).raw)
    word = builder.inline("cvt.rna.tf32.f32 $0, $1;", "=r,f", ir.IntType(32), x.raw)
    return Operand(F32, Value(builder, word).as_float().raw)


CONVERT_TF32 = Function("convert_tf32", 1, _convert_tf32)


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
