"""Walk the text of a launch, every statement over all lanes of a batch at once.

    if t < 4:                  mask = active & (t < 4)
        x = x + float32(1)     x = where(mask, x + 1, x)

Branches run under masks; a loop runs until no lane is active; `unroll` repeats its body here.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from jstitch.codegen.cuda.simulate_cells import Cell, kind
from jstitch.codegen.cuda.simulate_expressions import Expressions
from jstitch.codegen.cuda.simulate_functions import TypeMismatch
from jstitch.codegen.cuda.simulate_index import Index, wrap
from jstitch.codegen.cuda.simulate_state import Active, active_ctas


class Walker(Expressions):
    """One batch's run of a function."""

    def run(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            self.state.line = statement.lineno
            try:
                self._statement(statement)
            except TypeMismatch as error:
                self.state.fail("operands of matching types", str(error), 0)

    # -- statements -----------------------------------------------------------------------------------

    def _statement(self, statement: ast.stmt) -> None:
        match statement:
            case ast.Assign([ast.Name(name)], value):
                found = self.value(value)
                self.state.assign(name, wrap(found) if isinstance(found, int) else found)
            case ast.Assign([ast.Subscript(ast.Name(name), place)], value):
                self._assign_register(name, place, value)
            case ast.Expr(ast.Call() as call):
                self.value(call)
            case ast.For(ast.Name(name), ast.Call(ast.Name("unroll"), [count], []), body, []):
                self._unroll(name, self.constant(count), body)
            case ast.For(ast.Name(name), ast.Call(ast.Name("range"), [low, high, *step], []), body, []):
                self._loop(name, [self.indexed(low), self.indexed(high), *map(self.indexed, step)], body)
            case ast.If():
                self._branch(statement)
            case ast.Pass() | ast.Expr(ast.Constant(str())):
                pass
            case _:
                self.state.fail("a statement of kernel text", ast.unparse(statement))

    def _assign_register(self, name: str, place: ast.expr, value: ast.expr) -> None:
        registers, k = self.register(name, place)
        found = self.value(value)
        if getattr(found, "dtype", None) != registers.dtype:
            self.state.fail(f"{registers.dtype} for {name}", kind(found), 0)
        registers.cells[k] = self.state.merged(registers.cells[k], found, f"{name}[{k}]")

    def _unroll(self, name: str, count: int, body: Sequence[ast.stmt]) -> None:
        for k in range(count):
            self.state.names[name] = Cell(k)
            self.run(body)
        self.state.names.pop(name, None)

    def _loop(self, name: str, bounds: list[Index], body: Sequence[ast.stmt]) -> None:
        i, high, step = bounds[0], bounds[1], bounds[2] if len(bounds) > 2 else wrap(1)
        if step.low <= 0:
            self.state.fail_where("a step > 0", "another", step.raw <= 0)
        i = Index(i.raw, i.low, max(i.low, high.high - 1), math.gcd(i.multiple, step.multiple))
        line = self.state.line
        active: Active | None = self.state.active
        while active and (active := self._where(i.raw < high.raw, active)):
            with self.state.only(active):
                self.state.names[name] = Cell(i, active.mask)
                self.run(body)
                self.state.line = line
                after = self.index.add(i, step)
                assert isinstance(after, Index)
                i = Index(after.raw, i.low, i.high, i.multiple)
        self.state.names.pop(name, None)

    def _where(self, test: Any, active: Active) -> Active | None:
        """The lanes of `active` where the test holds; the same object when that is all of them."""
        if np.ndim(test) == 0:
            return active if test else None
        mask = test if active.mask is None else test & active.mask
        count = np.count_nonzero(mask)
        if count == len(active.lanes):
            return active
        return Active.of(self.state.lanes, mask) if count else None

    def _branch(self, statement: ast.If) -> None:
        """`if`, every `elif`, `else`; without recursion, for chains may be long."""
        rest: Active | None = self.state.active
        orelse: Sequence[ast.stmt] = [statement]
        while rest is not None and len(orelse) == 1 and isinstance(inner := orelse[0], ast.If):
            self.state.line = inner.lineno
            with self.state.only(rest):
                test = self.condition(inner.test)
            yes, rest = self._where(test, rest), self._where(~test, rest)
            self._under(yes, inner.body)
            orelse = inner.orelse
        self._under(rest, orelse)

    def _under(self, active: Active | None, body: Sequence[ast.stmt]) -> None:
        if active is None or not body:
            return
        ctas = active_ctas(self.state.lanes, active)
        few = 2 * np.count_nonzero(ctas) <= len(ctas)
        with self.state.alone(active) if few else self.state.only(active):
            self.run(body)
