"""A scalar expression as source text, which both emitters share: calls, and Python's operators."""

from __future__ import annotations

import math

from jstitch.codegen.intrinsics import INTRINSICS
from jstitch.codegen.print_index import print_index
from jstitch.ir.expr import Call, Const, Expr, Number, Ref
from jstitch.ir.types import DType


def print_expr(e: Expr) -> str:
    """`exp(v0 - v1)`, but for operands, which have names, nothing but calls and indices is nested."""
    match e:
        case Const():
            return _literal(e)
        case Ref(name):
            return name
        case Number(index):
            return str(index.const) if index.is_const else f"int64({print_index(index)})"
        case Call(function, args):
            return _call(function, args)


def _call(function: str, args: tuple[Expr, ...]) -> str:
    symbol = INTRINSICS[function].symbol if function in INTRINSICS else None
    if symbol is None:
        return f"{function}({', '.join(map(print_expr, args))})"
    operands = [_operand(a) for a in args]
    return f" {symbol} ".join(operands) if len(operands) > 1 else f"{symbol}{operands[0]}"


def _operand(e: Expr) -> str:
    """Of an operator."""
    match e:
        case Number(index) if not index.is_const:
            return f"({print_index(index)})"
        case Call(function, _) if function in INTRINSICS and INTRINSICS[function].symbol:
            return f"({print_expr(e)})"
    return print_expr(e)


def _literal(e: Const) -> str:
    if e.dtype is DType.BOOL:
        return str(bool(e.value))
    text = repr(e.value) if not isinstance(e.value, float) or math.isfinite(e.value) else str(e.value)
    return f"{e.dtype.numpy.name}({text})"
