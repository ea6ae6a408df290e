"""Python's operators in a kernel's text -> LLVM IR.

    lo + r * 768        indices: add nsw, mul nsw           v0 * v1    floats of one type: fmul

What a kernel has is written here. Operands of other types (which no kernel has) are Numba's business; before
it can say anything, it must fill its tables, which takes as long as lowering several kernels.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.callconv import create_error_model
from numba.core.registry import cpu_target
from numba.core.types.misc import unliteral

from jstitch.codegen.cpu.expression import Value
from jstitch.runtime.numba_compiler import flags

INT = types.int64
TYPING = cpu_target.typing_context
TARGET = cpu_target.target_context
CONTEXT = TARGET.subtarget(error_model=create_error_model(flags().error_model, TARGET))
_COMPARED: Mapping[type, str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}
_FORMS: Mapping[tuple[type, bool], Callable[..., Any]] = {
    (ast.Add, True): lambda builder, a, b: builder.add(a, b, flags=["nsw"]),
    (ast.Sub, True): lambda builder, a, b: builder.sub(a, b, flags=["nsw"]),
    (ast.Mult, True): lambda builder, a, b: builder.mul(a, b, flags=["nsw"]),
    (ast.USub, True): lambda builder, a: builder.neg(a),
    (ast.Add, False): lambda builder, a, b: builder.fadd(a, b),
    (ast.Sub, False): lambda builder, a, b: builder.fsub(a, b),
    (ast.Mult, False): lambda builder, a, b: builder.fmul(a, b),
    (ast.Div, False): lambda builder, a, b: builder.fdiv(a, b),
    (ast.USub, False): lambda builder, a: builder.fsub(ir.Constant(a.type, -0.0), a),
}
"""(operator, whether of indices) -> its LLVM IR."""
_OPERATORS: Mapping[str, Callable[..., Any]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mult": operator.mul,
    "Div": operator.truediv,
    "USub": operator.neg,
    "Eq": operator.eq,
    "NotEq": operator.ne,
    "Lt": operator.lt,
    "LtE": operator.le,
    "Gt": operator.gt,
    "GtE": operator.ge,
}


def combine(
    builder: Any, kind: ast.AST, operands: Sequence[Any], raws: Sequence[Any]
) -> tuple[Any, Any] | None:
    """The type and value of an operator of floats, or indices, or of integers that are compared.

    As Numba does it, but for floats' division, whose divisor Numba tests in a branch for nothing. operands:
    Numba's types. None where they are not of one such type.
    """
    kinds = {unliteral(t) for t in operands}
    one = kinds.pop()
    if kinds or not isinstance(one, types.Integer | types.Float):
        return None
    if (symbol := _COMPARED.get(type(kind))) is not None:
        left, right = (Value(builder, raw) for raw in raws)
        return types.boolean, left.compare(symbol, right, getattr(one, "signed", True)).raw
    form = _FORMS.get((type(kind), one == INT))
    if form is None or (isinstance(one, types.Integer) and one != INT):
        return None
    return one, form(builder, *raws)


@lru_cache(maxsize=1 << 12)  # types of numbers that are constants hold the number
def resolve(kind: str, operands: tuple[Any, ...]) -> tuple[Any, Any] | None:
    """Numba's signature and implementation of an operator, by its name in `ast`; None where it has none."""
    function = _OPERATORS.get(kind)
    if function is None:
        return None
    fill_tables()
    signature = TYPING.resolve_function_type(function, operands, {})
    return None if signature is None else (signature, CONTEXT.get_function(function, signature))


def fill_tables() -> None:
    """Numba fills its tables of operators and casts when it first compiles, which may be never here."""
    for context in (TYPING, TARGET):
        context.refresh()


def constant_of(kind: Any, number: bool | int | float) -> Any:
    return ir.Constant(CONTEXT.get_value_type(kind), number)


def wrapped(number: int, kind: Any) -> int:
    """The integer of this type with the number's low bits."""
    width = int(kind.bitwidth)
    low = number & ((1 << width) - 1)
    return low - (1 << width) if kind.signed and low >> (width - 1) else low
