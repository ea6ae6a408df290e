"""Every function that the text of CUDA kernels may call, by name: `codegen.intrinsics`, memory, threads.

    from jstitch.codegen.cuda.math import block, exp, read_f32x4, thread

Each name stands for a `Function`, which writes LLVM IR: integers, rounding and narrow floats by the code that
the CPU shares, float functions by libdevice. They have no meaning outside the lowering (lower_text).
"""

from __future__ import annotations

from functools import cache
from typing import Any

from jstitch.codegen.cpu.expression import select as _choose
from jstitch.codegen.cuda import arithmetic, declare, lanes, matrices, memory, narrow
from jstitch.codegen.cuda.builder import Builder
from jstitch.codegen.cuda.declare import Function, common, require
from jstitch.codegen.cuda.scalar import BOOL, KINDS, STORAGE, Operand
from jstitch.codegen.intrinsics import INTRINSICS, Intrinsic, declared


def _select(builder: Builder, arguments: Any) -> Operand:
    """select(p, a, b): a where p, else b; both are computed."""
    condition = require("select", arguments[0], BOOL)
    kind, (yes, no) = common("select", arguments[1:])
    value = _choose(condition.value(builder), yes.value(builder), no.value(builder))
    return Operand(kind, value.raw)


_OWN: dict[str, Function] = {
    "select": Function("select", 3, _select),
    **{f.name: f for f in (arithmetic.quotient, arithmetic.remainder_pos, arithmetic.clamp_index)},
    **{f"convert_{dtype}": narrow.conversion(dtype) for dtype in STORAGE},
    **{f"bitcast_{dtype}": narrow.bitcast(dtype) for dtype in KINDS if dtype != "bool"},
    "convert_tf32": narrow.CONVERT_TF32,
    **memory.FUNCTIONS,
    **lanes.FUNCTIONS,
    **matrices.FUNCTIONS,
}


def find_function(name: str) -> Function | None:
    """The function of that name; None when CUDA kernels have none."""
    if name in _OWN:
        return _OWN[name]
    row = INTRINSICS.get(name)
    return None if row is None or row.cuda is None else _typed(row)


def function_names() -> frozenset[str]:
    """All that `find_function` finds."""
    return frozenset(_OWN) | {name for name, row in INTRINSICS.items() if row.cuda is not None}


@cache
def _typed(row: Intrinsic) -> Function:
    assert row.cuda is not None
    found: Function = declared(row, row.cuda, declare)
    return found


REGISTERS = {f"registers_{name}": kind for name, kind in KINDS.items()}
"""Arrays: their arguments are numbers, so the lowering makes them."""
STATEMENTS = ("unroll",)


def __getattr__(name: str) -> Any:
    """What `import` finds: a Function, or the name itself where the lowering gives it its meaning."""
    function = find_function(name)
    if function is not None:
        return function
    if name in REGISTERS or name in STATEMENTS:
        return name
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
