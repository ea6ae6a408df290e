"""The vocabulary of CPU kernels: every function a kernel source may call, as Numba intrinsics.

The op table's scalar expressions and the emitter's loops use these names and Python's float operators,
nothing else. Each one writes straight-line LLVM IR, so that the loop around it vectorises; how is in the
sibling modules. They run inside compiled code only.
"""

from __future__ import annotations

from typing import Any

from numba.core import types

from jstitch.codegen.cpu import (
    conversion,
    convert,
    division,
    exponential,
    flush,
    integer,
    memory,
    rounding,
    special,
    trigonometric,
)
from jstitch.codegen.cpu.declare import anything, common, declare, emitter, floats, indices, integers
from jstitch.codegen.cpu.expression import select as _select

# integers: wrap-around, both operands of one type
iadd = integers("iadd", 2, integer.add)
isub = integers("isub", 2, integer.subtract)
imul = integers("imul", 2, integer.multiply)
idiv = integers("idiv", 2, integer.divide)
irem = integers("irem", 2, integer.remainder)
ineg = integers("ineg", 1, integer.negate)
iabs = integers("iabs", 1, integer.absolute)
isign = integers("isign", 1, integer.sign)
and_ = integers("and_", 2, integer.both, booleans=True)
or_ = integers("or_", 2, integer.either, booleans=True)
xor = integers("xor", 2, integer.exclusive, booleans=True)
not_ = integers("not_", 1, integer.complement, booleans=True)
shl = integers("shl", 2, integer.shift_left)
shr_logical = integers("shr_logical", 2, integer.shift_right_logical)
shr_arithmetic = integers("shr_arithmetic", 2, integer.shift_right_arithmetic)
popcnt = integers("popcnt", 1, integer.population_count)
clz = integers("clz", 1, integer.leading_zeros)

# indices
quotient = indices("quotient", 2, integer.quotient)
remainder_pos = indices("remainder_pos", 2, integer.remainder_of_index)
clamp_index = indices("clamp_index", 3, integer.clamp_index)

# any type
maximum = anything("maximum", 2, rounding.maximum)
minimum = anything("minimum", 2, rounding.minimum)


def _type_select(condition: Any, yes: Any, no: Any) -> tuple[Any, Any]:
    """select(p, a, b): a where p, else b; both are computed."""
    result = common("select", yes, no)
    return result(types.boolean, result, result), emitter(_select)


select = declare("select", 3, _type_select, _type_select.__doc__)

# floats
abs_ = floats("abs_", 1, rounding.absolute)
sign = floats("sign", 1, rounding.sign)
floor = floats("floor", 1, rounding.floor)
ceil = floats("ceil", 1, rounding.ceil)
round_half_even = floats("round_half_even", 1, rounding.round_half_even)
round_half_away = floats("round_half_away", 1, rounding.round_half_away)
sqrt = floats("sqrt", 1, rounding.sqrt)
rsqrt = floats("rsqrt", 1, rounding.rsqrt)
is_finite = floats("is_finite", 1, rounding.is_finite, predicate=True)
remainder_ = floats("remainder_", 2, rounding.remainder)
next_after = floats("next_after", 2, rounding.next_after)
add_reassoc = floats("add_reassoc", 2, rounding.add_reassociated)
mul_reassoc = floats("mul_reassoc", 2, rounding.multiply_reassociated)
max_reassoc = floats("max_reassoc", 2, rounding.maximum_reassociated)
min_reassoc = floats("min_reassoc", 2, rounding.minimum_reassociated)

divide_invariant = floats("divide_invariant", 2, division.by_invariant)
exp = floats("exp", 1, exponential.exp)
exp_nonpositive = floats("exp_nonpositive", 1, exponential.exp_nonpositive)
exp2 = floats("exp2", 1, exponential.exp2)
expm1 = floats("expm1", 1, exponential.expm1)
log = floats("log", 1, exponential.log)
log1p = floats("log1p", 1, exponential.log1p)
tanh = floats("tanh", 1, exponential.tanh)
logistic = floats("logistic", 1, exponential.logistic)
sinh = floats("sinh", 1, exponential.sinh)
cosh = floats("cosh", 1, exponential.cosh)
asinh = floats("asinh", 1, exponential.asinh)
acosh = floats("acosh", 1, exponential.acosh)
atanh = floats("atanh", 1, exponential.atanh)
cbrt = floats("cbrt", 1, exponential.cbrt)
pow_ = floats("pow_", 2, exponential.power)

sin = floats("sin", 1, trigonometric.sin)
cos = floats("cos", 1, trigonometric.cos)
tan = floats("tan", 1, trigonometric.tan)
asin = floats("asin", 1, trigonometric.asin)
acos = floats("acos", 1, trigonometric.acos)
atan = floats("atan", 1, trigonometric.atan)
atan2 = floats("atan2", 2, trigonometric.atan2)

erf = floats("erf", 1, special.erf)
erfc = floats("erfc", 1, special.erfc)
erf_inv = floats("erf_inv", 1, special.erf_inv)
lgamma = floats("lgamma", 1, special.lgamma)
digamma = floats("digamma", 1, special.digamma)

# memory
prefetch = memory.prefetch()
stream = flush.stream()
end_streams = flush.end_streams()
load_bool = memory.load("bool")
load_s8 = memory.load("s8")
load_s16 = memory.load("s16")
load_s32 = memory.load("s32")
load_s64 = memory.load("s64")
load_u8 = memory.load("u8")
load_u16 = memory.load("u16")
load_u32 = memory.load("u32")
load_u64 = memory.load("u64")
load_f16 = memory.load("f16")
load_bf16 = memory.load("bf16")
load_f32 = memory.load("f32")
load_f64 = memory.load("f64")
load_f8e4m3fn = memory.load("f8e4m3fn")
load_f8e5m2 = memory.load("f8e5m2")
store_bool = memory.store("bool")
store_s8 = memory.store("s8")
store_s16 = memory.store("s16")
store_s32 = memory.store("s32")
store_s64 = memory.store("s64")
store_u8 = memory.store("u8")
store_u16 = memory.store("u16")
store_u32 = memory.store("u32")
store_u64 = memory.store("u64")
store_f16 = memory.store("f16")
store_bf16 = memory.store("bf16")
store_f32 = memory.store("f32")
store_f64 = memory.store("f64")
store_f8e4m3fn = memory.store("f8e4m3fn")
store_f8e5m2 = memory.store("f8e5m2")

# conversions
convert_bool = conversion.conversion("bool")
convert_s8 = conversion.conversion("s8")
convert_s16 = conversion.conversion("s16")
convert_s32 = conversion.conversion("s32")
convert_s64 = conversion.conversion("s64")
convert_u8 = conversion.conversion("u8")
convert_u16 = conversion.conversion("u16")
convert_u32 = conversion.conversion("u32")
convert_u64 = conversion.conversion("u64")
convert_f16 = conversion.conversion("f16")
convert_bf16 = conversion.conversion("bf16")
convert_f32 = conversion.conversion("f32")
convert_f64 = conversion.conversion("f64")
convert_f8e4m3fn = conversion.conversion("f8e4m3fn")
convert_f8e5m2 = conversion.conversion("f8e5m2")

# words of two bf16
low_bf16 = conversion.of_words("low_bf16", convert.low_bf16)
high_bf16 = conversion.of_words("high_bf16", convert.high_bf16)
pack_bf16 = conversion.to_words("pack_bf16", convert.pack_bf16)

# bits: the same width
bitcast_s8 = conversion.bitcast("s8")
bitcast_s16 = conversion.bitcast("s16")
bitcast_s32 = conversion.bitcast("s32")
bitcast_s64 = conversion.bitcast("s64")
bitcast_u8 = conversion.bitcast("u8")
bitcast_u16 = conversion.bitcast("u16")
bitcast_u32 = conversion.bitcast("u32")
bitcast_u64 = conversion.bitcast("u64")
bitcast_f32 = conversion.bitcast("f32")
bitcast_f64 = conversion.bitcast("f64")
