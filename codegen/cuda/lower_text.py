"""One function of a CudaSource's text -> LLVM IR, written into a kernel that Numba has begun.

    for r in range(lo, hi, 8):        head:  %r = phi i32 [%lo, ...], [%next, ...]
        for k in unroll(4):           body:  four copies, k = 0, 1, 2, 3
            x[k] = v[k] - m                  one variable per element: registers

Kernel text needs no inference: scalars, calls, loops, branches. Walking its syntax tree
once types and lowers it. Anything else is an UnsupportedError that quotes the line.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from jstitch.codegen.cuda.builder import Builder
from jstitch.codegen.cuda.declare import Misuse, coerce
from jstitch.codegen.cuda.expressions import Expressions
from jstitch.codegen.cuda.scalar import ADDRESS, Operand, Slot, constant, index_kind
from jstitch.codegen.parse_text import functions_of
from jstitch.errors import UnsupportedError

MAX_COPIES = 4096  # of a loop's body
_HINT = "report it: the emitter wrote text outside the contract of the CUDA backend"


def lower_function(builder: Builder, text: str, function: str, pointers: Sequence[Any]) -> None:
    """Append the code of one function of `text` at the builder's place; `pointers` are its arguments.

    Raises UnsupportedError for text outside the contract, KeyError for a function that is not there.
    """
    node = functions_of(text)[function]
    names = [a.arg for a in node.args.args]
    if len(names) != len(pointers):
        raise UnsupportedError(f"{len(pointers)} arguments", f"{len(names)}", where=f"{function}", hint=_HINT)
    addresses = [Operand(ADDRESS, builder.addrspacecast(p, ADDRESS.llvm)) for p in pointers]
    Statements(builder, node, dict(zip(names, addresses, strict=True))).block(node.body, {}, repeats=False)


class Statements(Expressions):
    """Expressions, and the statements around them."""

    def block(self, body: Sequence[ast.stmt], given: dict[str, Operand], repeats: bool) -> None:
        self.enter(body, given, repeats)
        for statement in body:
            try:
                self.statement(statement)
            except Misuse as error:
                where = f"line {statement.lineno}: {ast.unparse(statement).splitlines()[0]}"
                raise UnsupportedError(error.expected, error.found, where=where, hint=_HINT) from None
        self.leave()

    def statement(self, statement: ast.stmt) -> None:
        match statement:
            case ast.Assign([ast.Name(name)], value):
                self.assign(name, self.value(value))
            case ast.Assign([ast.Subscript(ast.Name(name), index)], value):
                self.assign_element(name, index, value)
            case ast.Expr(ast.Call(ast.Name(name), arguments, [])):
                self.call(name, arguments)
            case ast.Expr(ast.Constant(str())) | ast.Pass():
                pass
            case ast.For(ast.Name(name), ast.Call(ast.Name(kind), bounds, []), body, []):
                self.loop(name, kind, bounds, body)
            case ast.If(test, body, orelse):
                self.branch(self.condition(test), body, orelse)
            case _:
                raise Misuse("a statement of kernel text", ast.unparse(statement).splitlines()[0])

    def assign_element(self, name: str, index: ast.expr, value: ast.expr) -> None:
        found = self.value(value)
        array, k = self.element(name, index)
        slot = array.elements[k]
        if not isinstance(slot, Slot) or not isinstance(found, Operand):
            raise Misuse(f"a scalar for an element of {name}", "an array")
        self.store(slot, coerce(found, array.kind), f"{name}[{k}]")

    def loop(self, name: str, kind: str, bounds: Sequence[ast.expr], body: Sequence[ast.stmt]) -> None:
        match kind, bounds:
            case "unroll", [count]:
                self.unroll(name, self.number(count), body)
            case "range", [low, high]:
                self.repeat(
                    name, self.index(low), self.index(high), constant(index_kind(self.builder), 1), body
                )
            case "range", [low, high, step]:
                self.repeat(name, self.index(low), self.index(high), self.index(step), body)
            case _:
                raise Misuse(
                    "a loop over unroll(n) or range(low, high, step)", f"{kind} of {len(bounds)} arguments"
                )

    def unroll(self, name: str, count: int | None, body: Sequence[ast.stmt]) -> None:
        if count is None or not 0 <= count <= MAX_COPIES:
            raise Misuse(f"a constant of at most {MAX_COPIES} in unroll", str(count))
        for k in range(count):
            self.block(body, {name: constant(index_kind(self.builder), k)}, repeats=False)

    def repeat(self, name: str, low: Operand, high: Operand, step: Operand, body: Sequence[ast.stmt]) -> None:
        if step.number is not None and step.number <= 0:
            raise Misuse("a positive step", str(step.number))
        builder, kind = self.builder, index_kind(self.builder)
        before = builder.block
        head, inside, after = (builder.function.append_basic_block(n) for n in ("head", "loop", "after"))
        builder.branch(head)
        builder.position_at_end(head)
        number = builder.phi(kind.llvm, name)
        number.add_incoming(low.raw, before)
        builder.cbranch(builder.icmp_signed("<", number, high.raw), inside, after)
        builder.position_at_end(inside)
        self.block(body, {name: Operand(kind, number)}, repeats=True)
        number.add_incoming(builder.add(number, step.raw, flags=["nsw"]), builder.block)
        builder.branch(head)
        builder.position_at_end(after)

    def branch(self, test: Operand, body: Sequence[ast.stmt], orelse: Sequence[ast.stmt]) -> None:
        if test.number is not None:
            return self.block(body if test.number else orelse, {}, repeats=False)
        arms: Sequence[Callable[[], None]] = (
            lambda: self.block(body, {}, True),
            lambda: self.block(orelse, {}, True),
        )
        with self.builder.if_else(test.raw) as contexts:
            for context, arm in zip(contexts, arms, strict=True):
                with context:
                    arm()
        return None
