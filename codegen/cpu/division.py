"""Division of f32 by what does not change in the loop: three multiplications in place of a division.

A processor divides eight numbers in the time of a dozen multiplications, and one division at a time. With
r = 1/c, rounded, which LLVM computes before the loop:

    q = a r                     at most 1.5 units in the last place from a/c
    t = q c - a                 the remainder, in one rounding
    y = q - t r                 a/c, rounded as a division rounds it

That y is the rounded quotient follows from Markstein ("Computation of elementary functions on the IBM RISC
System/6000", 1990) for q within one unit; where q is farther away, only quotients within 8/c 2^-48 of the
middle between two floats could be rounded wrongly, and for all c of 24 bits none of those is. Below
|a| = 2^-100, where the remainder is flushed, y is the rounded quotient or a neighbour or two away.
"""

from __future__ import annotations

from jstitch.codegen.cpu.expression import Value, select
from jstitch.codegen.cpu.processor import fuses

LARGE = 2.0**100  # the reciprocal of a number not much larger than this is no normal number
DOWN = 2.0**-64


def by_invariant(a: Value, c: Value) -> Value:
    """a / c, for loops in which c stays the same."""
    if a.is_double or not fuses():
        return a / c
    scale = select(c.abs() > LARGE, c.constant(DOWN), 1.0)
    a, c = a * scale, c * scale
    r = 1.0 / c
    q = a * r
    y = (-q.fma(c, -a)).fma(r, q)
    ordinary = Value(y.builder, y.builder.fcmp_ordered("!=", y.raw, y.constant(0.0).raw))
    return select(ordinary, y, q)  # y is NaN where q is infinite or c is 0 or infinite; q has zero's sign
