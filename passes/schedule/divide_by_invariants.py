"""Divisions in an innermost loop by a value from outside it.

v8 = load_f32(b3, 0, 4)                         v8 = load_f32(b3, 0, 4)
for i1 in range(0, 768):               ->       for i1 in range(0, 768):
    v9 = v7 / v8                                    v9 = divide_invariant(v7, v8)

Only where the loop computes little else: a processor divides beside other arithmetic, which three
multiplications would delay.
"""

from __future__ import annotations

import math
from dataclasses import replace

from jstitch.codegen.kernel_ir import Instr, Kernel, Let, Nest, Store
from jstitch.codegen.map_kernel import map_lanes, map_nests
from jstitch.ir.expr import Call, Const, Expr, Ref, call

FEW = 3  # values that the loop computes


def divide_by_invariants(kernel: Kernel) -> Kernel:
    """The kernel with divide_invariant where it may stand."""
    return map_lanes(kernel, lambda lane: map_nests(lane, _nest))


def _nest(nest: Nest) -> Nest:
    inner = len(nest.loops)
    if sum(isinstance(i, Let) and i.depth == inner for i in nest.body) > FEW:
        return nest
    changing = {i.name for i in nest.body if not isinstance(i, Store) and i.depth == inner}
    changing |= {a.name for a in nest.accumulators}
    changing |= {loop.var.name for loop in nest.loops}
    body = tuple(_instr(i, changing) if i.depth == inner > 0 else i for i in nest.body)
    return nest if body == nest.body else replace(nest, body=body)


def _instr(i: Instr, changing: set[str]) -> Instr:
    match i:
        case Let(_, Call("div", (Ref(dividend) as a, b)), _) if dividend in changing:
            fixed = not (isinstance(b, Ref) and b.name in changing)
            return replace(i, value=call("divide_invariant", a, b)) if fixed and not _is_exact(b) else i
    return i


def _is_exact(divisor: Expr) -> bool:
    """Whether it is a constant power of two, whose reciprocal LLVM multiplies with, or no ordinary number."""
    if not isinstance(divisor, Const):
        return False
    number = float(divisor.value)
    return not math.isfinite(number) or number == 0.0 or math.frexp(abs(number))[0] == 0.5
