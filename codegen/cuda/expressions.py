"""Expressions of kernel text -> LLVM IR.

What is made of literals and unrolled loop variables is computed here: an index of an array must be.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import cast

from jstitch.codegen.cuda import arithmetic
from jstitch.codegen.cuda.declare import Misuse, require, scalar
from jstitch.codegen.cuda.math import REGISTERS, find_function
from jstitch.codegen.cuda.memory import read
from jstitch.codegen.cuda.names import Names
from jstitch.codegen.cuda.scalar import (
    BOOL,
    F32,
    F64,
    INTEGERS,
    S64,
    Argument,
    Kind,
    Operand,
    Registers,
    Slot,
    constant,
    describe,
    index_kind,
)

_TYPES: dict[str, Kind] = {
    "float32": F32,
    "float64": F64,
    **{f"{'' if kind.signed else 'u'}int{kind.bits}": kind for kind in INTEGERS.values()},
}


class Expressions(Names):
    """Names, and the values of expressions of them."""

    def value(self, node: ast.expr) -> Argument:
        match node:
            case ast.Constant(bool() as number):
                return constant(BOOL, number)
            case ast.Constant(int() as number):
                return constant(index_kind(self.builder), number)
            case ast.Name(name):
                return self.read(name)
            case ast.Subscript(ast.Name(name), index):
                return self.read_element(name, index)
            case ast.Call(ast.Name(name), arguments, []):
                return self.result(name, self.call(name, arguments))
        return self.operator(node)

    def operator(self, node: ast.expr) -> Operand:
        match node:
            case ast.BinOp(left, kind, right):
                return arithmetic.binary(self.builder, kind, self.value(left), self.value(right))
            case ast.Compare(left, [kind], [right]):
                return arithmetic.compare(self.builder, kind, self.value(left), self.value(right))
            case ast.UnaryOp(ast.USub(), operand):
                return arithmetic.negate(self.builder, self.value(operand))
        raise Misuse("an expression of kernel text", ast.unparse(node))

    def result(self, name: str, value: Argument | None) -> Argument:
        if value is None:
            raise Misuse("a value", f"{name}(...), which has none")
        return value

    def read(self, name: str) -> Argument:
        match self.find(name):
            case None:
                raise Misuse("a name that is assigned before", name)
            case Slot() as slot:
                return Operand(slot.kind, read(self.builder, slot))
            case found:
                return found

    def read_element(self, name: str, index: ast.expr) -> Operand:
        array, k = self.element(name, index)
        return Operand(array.kind, read(self.builder, array.elements[k]))

    def element(self, name: str, index: ast.expr) -> tuple[Registers, int]:
        """The array of that name, and the index, which must be known and in range."""
        array = self.read(name)
        if not isinstance(array, Registers):
            raise Misuse(f"{name} to be an array", describe(array))
        number = scalar("an index", self.value(index)).number
        if not isinstance(number, int) or not 0 <= number < len(array.elements):
            raise Misuse(
                f"an index of {name} known when unrolled, within 0..{len(array.elements) - 1}",
                ast.unparse(index) if number is None else str(number),
            )
        return array, number

    def number(self, node: ast.expr) -> int | None:
        """The value of an index expression where it is known, else None."""
        found = scalar("an index", self.value(node)).number
        return found if isinstance(found, int) else None

    def call(self, name: str, arguments: Sequence[ast.expr]) -> Argument | None:
        function = find_function(name)
        if function is not None:
            return function(self.builder, [self.value(a) for a in arguments])
        if len(arguments) == 1 and name in REGISTERS:
            return self.registers(name, arguments[0])
        if len(arguments) == 1 and name in _TYPES:
            return self.typed(_TYPES[name], arguments[0])
        raise Misuse("a function of the vocabulary", f"{name} of {len(arguments)} arguments")

    def registers(self, name: str, size: ast.expr) -> Registers:
        count = self.number(size)
        if count is None or count <= 0:
            raise Misuse(f"a positive number in {name}", ast.unparse(size))
        kind = REGISTERS[name]
        return Registers(kind, tuple(self.slot(kind, "r") for _ in range(count)))

    def typed(self, kind: Kind, node: ast.expr) -> Operand:
        """A typed literal, float32(-inf), or an integer at another width, int64(v)."""
        literal = _literal(node)
        if literal is not None:
            if kind.is_integral and not isinstance(literal, int):
                raise Misuse(f"an integer in {kind.name}", str(literal))
            return constant(kind, literal)
        if kind == S64:
            return arithmetic.to_s64(self.builder, self.value(node))
        operand = scalar(kind.name, self.value(node))
        if kind.is_float or not operand.kind.is_integral:
            raise Misuse(f"a literal in {kind.name}", ast.unparse(node))
        return arithmetic.resized(self.builder, operand, kind)

    def condition(self, node: ast.expr) -> Operand:
        return require("a condition", self.value(node), BOOL)

    def index(self, node: ast.expr) -> Operand:
        return require("a loop's bounds", self.value(node), index_kind(self.builder))


def _literal(node: ast.expr) -> bool | int | float | None:
    """The value of a literal, or of inf and nan, perhaps negated; else None."""
    match node:
        case ast.Constant(bool() | int() | float() as number):
            return cast(float, number)
        case ast.UnaryOp(ast.USub(), operand):
            inner = _literal(operand)
            return None if inner is None or isinstance(inner, bool) else -inner
        case ast.Name("inf" | "nan" as name):
            return float(name)
    return None
