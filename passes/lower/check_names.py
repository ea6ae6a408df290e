"""Check the names of a nest: values, loop variables and functions, in the order in which they are met.

for i in [0, 8): acc = acc + x[i + 1]
->  "'acc' is used before it is defined"
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from jstitch.codegen.intrinsics import INTRINSICS
from jstitch.codegen.kernel_ir import Instr, Let, Load, Loop, Nest, Store, StorePair
from jstitch.ir.expr import Expr, calls, index_refs, numbers, refs
from jstitch.ir.index import Index, Var, atoms


def check_names(nest: Nest, outside: Mapping[str, int]) -> Iterator[str]:
    """What is wrong with them, one line each. outside: variables around the nest, with their extents."""
    yield from _visit(nest, 0, _Scope(set(outside), dict(outside)))
    deepest = len(nest.loops)
    for instr in nest.instructions:
        if not 0 <= instr.depth <= deepest:
            yield f"an instruction at depth {instr.depth} of a nest of {deepest} loops"


@dataclass(frozen=True)
class _Scope:
    """What is known inside some loops. names: of values and variables; extents: of variables."""

    names: set[str]
    extents: dict[str, int]

    def inside(self, loop: Loop) -> _Scope:
        return _Scope({*self.names, loop.var.name}, {**self.extents, loop.var.name: loop.var.extent})

    def expression(self, e: Expr) -> Iterator[str]:
        """What is wrong with an expression here."""
        yield from self.values(refs(e))
        for place in numbers(e):
            yield from self.variables(place)
        for c in calls(e):
            row = INTRINSICS.get(c.function)
            if row is None or row.arity != len(c.args):
                yield f"'{c.function}' of {len(c.args)} arguments is no function"

    def index(self, e: Index) -> Iterator[str]:
        """What is wrong with an offset here."""
        yield from self.values(index_refs(e))
        yield from self.variables(e)

    def values(self, names: Iterable[str]) -> Iterator[str]:
        for name in sorted(set(names) - self.names):
            yield f"'{name}' is used before it is defined"

    def variables(self, e: Index) -> Iterator[str]:
        for atom in atoms([e]):
            if isinstance(atom, Var) and self.extents.get(atom.name) != atom.extent:
                yield f"'{atom.name}' of extent {atom.extent} is no variable here"


def _visit(nest: Nest, depth: int, scope: _Scope) -> Iterator[str]:
    """In order: the body at a depth, accumulators, the deeper loop, what comes after it."""
    yield from _use_all(nest.body, depth, scope)
    if depth < len(nest.loops):
        for a in (a for a in nest.accumulators if a.depth == depth):
            yield from scope.expression(a.init)
            scope.names.add(a.name)
        yield from _visit(nest, depth + 1, scope.inside(nest.loops[depth]))
    yield from _use_all(nest.after, depth, scope)


def _use_all(instructions: Iterable[Instr], depth: int, scope: _Scope) -> Iterator[str]:
    for instr in (i for i in instructions if i.depth == depth):
        yield from _use(instr, scope)


def _use(instr: Instr, scope: _Scope) -> Iterator[str]:
    """What an instruction reads must be there; what it makes is, from now on."""
    match instr:
        case Let(name, value, _):
            yield from scope.expression(value)
            scope.names.add(name)
        case Load(name, _, offset, _):
            yield from scope.index(offset)
            scope.names.add(name)
        case Store(_, offset, value, _):
            yield from scope.index(offset)
            yield from scope.expression(value)
    if isinstance(instr, StorePair):
        yield from scope.expression(instr.second)
