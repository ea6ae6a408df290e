"""Expressions of kernel text over all lanes: arrays, indices, and what is known when loops are unrolled.

x[k * 4 + j] - v3      k, j ints      ->   an array over lanes
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from jstitch.codegen.cuda import simulate_functions as functions
from jstitch.codegen.cuda.simulate_calls import Calls
from jstitch.codegen.cuda.simulate_cells import Registers
from jstitch.codegen.cuda.simulate_functions import DTYPES, LITERALS, TypeMismatch, vectorised
from jstitch.codegen.cuda.simulate_index import Index, IndexMath, raw, wrap
from jstitch.codegen.cuda.simulate_lanes import Array
from jstitch.codegen.cuda.simulate_state import State

_COMPARE: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_FLOAT: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: functions.ADD,
    ast.Sub: functions.SUBTRACT,
    ast.Mult: functions.MULTIPLY,
    ast.Div: functions.DIVIDE,
}
_WHOLE: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
}
_REGISTERS = "registers_"


class Expressions:
    """Evaluates expressions in the state of one batch."""

    def __init__(self, state: State, calls: Calls, index_bits: int, grid: int) -> None:
        self.state, self.calls, self.grid = state, calls, grid
        self.index = IndexMath(index_bits, state.fail_where, state.compress)
        self._index: Mapping[type, Callable[[Any, Any], Any]] = {
            ast.Add: self.index.add,
            ast.Sub: self.index.subtract,
            ast.Mult: self.index.multiply,
        }
        self._special: Mapping[str, Callable[..., Any]] = {
            "thread": self._thread,
            "block": self._block_index,
            "quotient": self._quotient,
            "remainder_pos": self._remainder,
            "clamp_index": self._clamp,
            "select": self._select,
            "int64": self._int64,
        }

    def value(self, node: ast.expr) -> Any:
        """An array over lanes or of rank 0, an Index, an int known now, Registers, a parameter's memory."""
        match node:
            case ast.Name(name):
                return self.state.read(name)
            case ast.Subscript(ast.Name(name), place):
                registers, k = self.register(name, place)
                return self.state.checked(registers.cells[k], f"{name}[{k}]")
            case ast.BinOp(left, op, right) if type(op) in _FLOAT:
                return self._binary(type(op), self.value(left), self.value(right))
            case ast.Compare(left, [op], [right]):
                return self._compare(_COMPARE[type(op)], self.value(left), self.value(right))
            case ast.Call(ast.Name(name), arguments, []):
                return self._call(name, arguments)
            case ast.UnaryOp(ast.USub(), operand):
                return self._negative(self.value(operand))
            case ast.Constant(bool() as flag):
                return np.bool_(flag)
            case ast.Constant(int() as number):
                return number
            case _:
                self.state.fail("an expression of kernel text", ast.unparse(node))

    def constant(self, node: ast.expr) -> int:
        found = self.value(node)
        if not isinstance(found, int):
            self.state.fail("an index known when loops are unrolled", ast.unparse(node))
        return found

    def indexed(self, node: ast.expr) -> Index:
        found = self.value(node)
        if not isinstance(found, int | Index):
            self.state.fail("a value of index type", ast.unparse(node))
        return wrap(found)

    def condition(self, node: ast.expr) -> Any:
        found = self.value(node)
        if getattr(found, "dtype", None) != np.bool_:
            self.state.fail("a condition", ast.unparse(node))
        return found

    def _binary(self, op: type, a: Any, b: Any) -> Any:
        indices = isinstance(a, int | Index) + isinstance(b, int | Index)
        if indices == 2 and op in self._index:
            return self._index[op](a, b)
        a, b = self._as_s64(a), self._as_s64(b)
        if a.dtype == np.int64 and b.dtype == np.int64 and op in _WHOLE:
            return _WHOLE[op](a, b)
        return _FLOAT[op](a, b)

    def _compare(self, op: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
        a, b = self._as_s64(a), self._as_s64(b)
        functions.same_dtype(a, b)
        return op(a, b)

    def _as_s64(self, x: Any) -> Any:
        if isinstance(x, int | Index):
            return np.asarray(raw(x), np.int64)
        if not isinstance(x, np.ndarray | np.generic):
            raise TypeMismatch(type(x).__name__)
        return x

    def _negative(self, x: Any) -> Any:
        if isinstance(x, int | Index):
            return self.index.subtract(0, x)
        if self._as_s64(x).dtype.kind != "f" and x.dtype != np.int64:
            raise TypeMismatch(f"minus of {x.dtype}")
        return -x

    def register(self, name: str, place: ast.expr) -> tuple[Registers, int]:
        registers, k = self.state.read(name), self.constant(place)
        if not isinstance(registers, Registers):
            self.state.fail("a register array", name)
        if not 0 <= k < len(registers.cells):
            self.state.fail(f"a register in [0, {len(registers.cells)})", f"{name}[{k}]", 0)
        return registers, k

    # -- calls ----------------------------------------------------------------------------------------

    def _call(self, name: str, arguments: Sequence[ast.expr]) -> Any:
        if name in LITERALS and len(arguments) == 1 and (number := literal(arguments[0])) is not None:
            return LITERALS[name](number)
        if name.startswith(_REGISTERS) and name.removeprefix(_REGISTERS) in DTYPES:
            dtype = DTYPES[name.removeprefix(_REGISTERS)]
            return Registers(dtype.compute.numpy, [None] * self.constant(arguments[0]))
        values = [self.value(a) for a in arguments]
        if name in self._special:
            return self._special[name](*values)
        if (handler := self.calls.find(name)) is not None:
            return handler(*values)
        function = vectorised(name)
        if function is None:
            self.state.fail("a function of kernel text", name)
        if name.startswith("convert_"):
            values = [self._as_s64(v) for v in values]
        elif any(not isinstance(v, np.ndarray | np.generic) for v in values):
            raise TypeMismatch(f"an index or an array in {name}")
        return function(*values)

    def _thread(self) -> Index:
        return Index(self.state.lanes.thread, 0, self.state.lanes.block - 1)

    def _block_index(self) -> Index:
        return Index(self.state.lanes.cta, 0, self.grid - 1)

    def _quotient(self, a: Any, b: Any) -> Any:
        return self._divided(self.index.quotient, a, b)

    def _remainder(self, a: Any, b: Any) -> Any:
        return self._divided(self.index.remainder, a, b)

    def _divided(self, function: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
        """In index type, or in s64 when an operand is."""
        if isinstance(a, int | Index) and isinstance(b, int | Index):
            return function(a, b)
        found = function(*(self.calls.s64(x) for x in (a, b)))
        return np.asarray(raw(found), np.int64)

    def _clamp(self, a: Any, low: Any, high: Any) -> Index:
        bounds = self.calls.s64(low), self.calls.s64(high)
        return self.index.of(np.minimum(np.maximum(self.calls.s64(a).raw, bounds[0].raw), bounds[1].raw))

    def _select(self, condition: Any, yes: Any, no: Any) -> Any:
        if isinstance(yes, int | Index) and isinstance(no, int | Index):
            a, b = wrap(yes), wrap(no)
            found = functions.select(condition, a.raw, b.raw)
            return Index(found, min(a.low, b.low), max(a.high, b.high), math.gcd(a.multiple, b.multiple))
        return functions.select(condition, self._as_s64(yes), self._as_s64(no))

    def _int64(self, x: Any) -> Array:
        return np.asarray(self._as_s64(x)).astype(np.int64)


def literal(node: ast.expr) -> int | float | None:
    """The number that the text spells, also inf and nan."""
    match node:
        case ast.UnaryOp(ast.USub(), operand):
            number = literal(operand)
            return None if number is None else -number
        case ast.Constant(int() | float() as number):
            return number
        case ast.Name("inf"):
            return math.inf
        case ast.Name("nan"):
            return math.nan
    return None
