"""The vocabulary of CUDA kernels: every function that kernel text may call, by name.

    from jstitch.codegen.cuda.math import block, exp, read_f32x4, thread

Each name stands for a `Function`, which writes LLVM IR: integers, rounding and narrow floats by the code that
the CPU shares, float functions by libdevice. They have no meaning outside the lowering (lower_text).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from jstitch.codegen.cpu import integer, rounding, special
from jstitch.codegen.cpu.expression import Value
from jstitch.codegen.cpu.expression import select as _choose
from jstitch.codegen.cuda import arithmetic, lanes, memory, narrow, order
from jstitch.codegen.cuda.builder import Builder, libdevice
from jstitch.codegen.cuda.declare import Function, anything, common, floats, integers, require
from jstitch.codegen.cuda.scalar import BOOL, KINDS, STORAGE, Operand

_Table = dict[str, tuple[int, Callable[..., Value]]]


def _select(builder: Builder, arguments: Any) -> Operand:
    """select(p, a, b): a where p, else b; both are computed."""
    condition = require("select", arguments[0], BOOL)
    kind, (yes, no) = common("select", arguments[1:])
    value = _choose(condition.value(builder), yes.value(builder), no.value(builder))
    return Operand(kind, value.raw)


def _through_libdevice(name: str) -> Callable[..., Value]:
    return lambda x, *others: libdevice(name, x, *others)


def _logistic(x: Value) -> Value:
    """1 / (1 + e^-x)"""
    return arithmetic.divide(x.constant(1.0), libdevice("exp", -x) + 1.0)


_INTEGERS: _Table = {
    **{"iadd": (2, integer.add), "isub": (2, integer.subtract), "imul": (2, integer.multiply)},
    **{"idiv": (2, integer.divide), "irem": (2, integer.remainder), "ineg": (1, integer.negate)},
    **{"iabs": (1, integer.absolute), "isign": (1, integer.sign), "shl": (2, integer.shift_left)},
    "shr_logical": (2, integer.shift_right_logical),
    "shr_arithmetic": (2, integer.shift_right_arithmetic),
    "popcnt": (1, integer.population_count),
    "clz": (1, integer.leading_zeros),
}
_BITS: _Table = {
    **{"and_": (2, integer.both), "or_": (2, integer.either), "xor": (2, integer.exclusive)},
    "not_": (1, integer.complement),
}
_LIBDEVICE = {
    **{
        "abs_": "fabs",
        "floor": "floor",
        "ceil": "ceil",
        "round_half_even": "rint",
        "round_half_away": "round",
    },
    **{"rsqrt": "rsqrt", "cbrt": "cbrt", "exp": "exp", "exp2": "exp2", "expm1": "expm1", "log": "log"},
    **{"log1p": "log1p", "tanh": "tanh", "sinh": "sinh", "cosh": "cosh", "asinh": "asinh", "acosh": "acosh"},
    **{"atanh": "atanh", "sin": "sin", "cos": "cos", "tan": "tan", "asin": "asin", "acos": "acos"},
    **{"atan": "atan", "erf": "erf", "erfc": "erfc", "erf_inv": "erfinv", "lgamma": "lgamma"},
    "sqrt": "sqrt",
}
_LIBDEVICE_BINARY = {"pow_": "pow", "atan2": "atan2", "remainder_": "fmod"}
_FLOATS: _Table = {
    **{"sign": (1, rounding.sign), "logistic": (1, _logistic), "digamma": (1, special.digamma)},
    **{"round_half_away": (1, rounding.round_half_away), "next_after": (2, rounding.next_after)},
    **{"add_reassoc": (2, operator.add), "mul_reassoc": (2, operator.mul)},
    **{"max_reassoc": (2, order.maximum), "min_reassoc": (2, order.minimum)},
}

VOCABULARY: dict[str, Function] = {
    **{name: integers(name, arity, build) for name, (arity, build) in _INTEGERS.items()},
    **{name: integers(name, arity, build, booleans=True) for name, (arity, build) in _BITS.items()},
    **{name: floats(name, 1, _through_libdevice(theirs)) for name, theirs in _LIBDEVICE.items()},
    **{name: floats(name, 2, _through_libdevice(theirs)) for name, theirs in _LIBDEVICE_BINARY.items()},
    **{name: floats(name, arity, build) for name, (arity, build) in _FLOATS.items()},
    "is_finite": floats("is_finite", 1, rounding.is_finite, predicate=True),
    "maximum": anything("maximum", 2, order.maximum),
    "minimum": anything("minimum", 2, order.minimum),
    "select": Function("select", 3, _select),
    **{f.name: f for f in (arithmetic.quotient, arithmetic.remainder_pos, arithmetic.clamp_index)},
    **{f"convert_{dtype}": narrow.conversion(dtype) for dtype in STORAGE},
    **{f"bitcast_{dtype}": narrow.bitcast(dtype) for dtype in KINDS if dtype != "bool"},
    **memory.FUNCTIONS,
    **lanes.FUNCTIONS,
}
REGISTERS = {f"registers_{name}": kind for name, kind in KINDS.items()}
"""Arrays: their arguments are numbers, so the lowering makes them."""
STATEMENTS = ("unroll",)


def __getattr__(name: str) -> Any:
    """What `import` finds: a Function, or the name itself where the lowering gives it its meaning."""
    if name in VOCABULARY:
        return VOCABULARY[name]
    if name in REGISTERS or name in STATEMENTS:
        return name
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
