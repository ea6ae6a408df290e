"""maximum and minimum: NaN when either is, +0 above -0; of bools, or and and."""

from __future__ import annotations

import math

from jstitch.codegen.cpu.expression import Value, select
from jstitch.codegen.cuda.builder import libdevice


def maximum(a: Value, b: Value, signed: bool = False) -> Value:
    if a.is_float:
        return _floating(a, b, "max")
    return a | b if a.width == 1 else select(a.compare(">", b, signed), a, b)


def minimum(a: Value, b: Value, signed: bool = False) -> Value:
    if a.is_float:
        return _floating(a, b, "min")
    return a & b if a.width == 1 else select(a.compare("<", b, signed), a, b)


def _floating(a: Value, b: Value, name: str) -> Value:
    """f32: one instruction from sm_80. min and max themselves prefer the number to the NaN."""
    if not a.is_double and a.builder.capability >= (8, 0):
        raw = a.builder.inline(f"{name}.NaN.f32 $0, $1, $2;", "=f,f,f", a.type, a.raw, b.raw)
        return Value(a.builder, raw)
    unordered = Value(a.builder, a.builder.fcmp_unordered("uno", a.raw, b.raw))
    return select(unordered, math.nan, libdevice(f"f{name}", a, b))
