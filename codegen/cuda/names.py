"""The names of one function of kernel text: what each stands for, block by block.

A name that its block assigns once is a plain value. One that is assigned again, or read outside the block
that assigns it, is a Slot. Every repetition of an unrolled body is a block of its own.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from jstitch.codegen.cuda.builder import Builder
from jstitch.codegen.cuda.declare import Misuse, coerce
from jstitch.codegen.cuda.scalar import Argument, Kind, Operand, Registers, Slot, describe

Meaning = Argument | Slot


@dataclass
class Scope:
    """One block of statements: what it defines, and how often it assigns each name (inner blocks too).

    repeats: it runs any number of times, not as often as the block around it.
    """

    counts: Counter[str]
    repeats: bool
    names: dict[str, Meaning] = field(default_factory=dict)


class Names:
    """Scopes, innermost last."""

    def __init__(self, builder: Builder, node: ast.FunctionDef, parameters: dict[str, Argument]) -> None:
        self.builder = builder
        self.counts: dict[int, Counter[str]] = {}  # by the body's identity: the tree lives as long as this
        self.escaping = _escaping(node)
        self.written = {n.value.id for n in ast.walk(node) if _assigns_element(n)}  # type: ignore[attr-defined]
        self.scopes = [Scope(Counter(), False, dict(parameters))]

    def enter(self, body: Sequence[ast.stmt], given: dict[str, Operand], repeats: bool) -> None:
        if id(body) not in self.counts:
            self.counts[id(body)] = assignments(body)
        counts = self.counts[id(body)]
        for name in given:
            if self.find(name) is not None or name in counts:
                raise Misuse("a loop variable that is nothing else", f"{name}, which is assigned too")
        self.scopes.append(Scope(counts, repeats, dict(given)))

    def leave(self) -> None:
        self.scopes.pop()

    def find(self, name: str) -> Meaning | None:
        for scope in reversed(self.scopes):
            if name in scope.names:
                return scope.names[name]
        return None

    def assign(self, name: str, value: Argument) -> None:
        if isinstance(value, Registers):
            return self._assign_array(name, value)
        if not isinstance(value, Operand):
            raise Misuse("a value", describe(value))
        found, scope = self.find(name), self.scopes[-1]
        if found is None and scope.counts[name] == 1 and name not in self.escaping:
            scope.names[name] = value
            return None
        if found is None:
            home = self.scopes[0] if name in self.escaping else scope
            found = home.names[name] = self.slot(value.kind, name)
        if not isinstance(found, Slot):
            raise Misuse("a name that may be assigned again", name)
        return self.store(found, value, name)

    def _assign_array(self, name: str, value: Registers) -> None:
        """Arrays are names at compile time only: which one it is must not depend on a branch or a loop."""
        for scope in reversed(self.scopes):
            if name in scope.names:
                if not isinstance(scope.names[name], Registers):
                    raise Misuse(f"a scalar for {name}", "an array")
                break
            if scope.repeats and self.find(name) is not None:
                raise Misuse(f"one array for {name}", "another one inside a branch or loop")
        else:
            scope = self.scopes[-1]
        if name in self.written:
            value = self.writable(value, name)
        scope.names[name] = value

    def writable(self, value: Registers, name: str) -> Registers:
        """The array with slots for elements."""
        slots = tuple(e if isinstance(e, Slot) else self._filled(e, name) for e in value.elements)
        return Registers(value.kind, slots)

    def _filled(self, value: Operand, name: str) -> Slot:
        slot = self.slot(value.kind, name)
        self.builder.store(value.raw, slot.pointer)
        return slot

    def slot(self, kind: Kind, name: str) -> Slot:
        with self.builder.goto_entry_block():
            return Slot(kind, self.builder.alloca(kind.llvm, name=name))

    def store(self, slot: Slot, value: Operand, name: str) -> None:
        value = coerce(value, slot.kind)
        if value.kind != slot.kind:
            raise Misuse(f"{name} to stay {slot.kind.name}", value.kind.name)
        self.builder.store(value.raw, slot.pointer)


def assignments(body: Sequence[ast.stmt]) -> Counter[str]:
    """How often each name is assigned in the statements, those of inner blocks included."""
    return Counter(name for statement in body for name in _targets(statement))


def _targets(statement: ast.stmt) -> Iterator[str]:
    match statement:
        case ast.Assign(targets):
            yield from (t.id for t in targets if isinstance(t, ast.Name))
        case ast.For(body=body):
            yield from (name for inner in body for name in _targets(inner))
        case ast.If(body=body, orelse=orelse):
            yield from (name for inner in (*body, *orelse) for name in _targets(inner))


def _assigns_element(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Subscript)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
    )


def _escaping(function: ast.FunctionDef) -> set[str]:
    """Names that are read where no block around has assigned them before."""
    assigned, found = set(assignments(function.body)), set[str]()

    def read(node: ast.AST, visible: set[str]) -> None:
        names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        found.update((names & assigned) - visible)

    def walk(body: Sequence[ast.stmt], visible: set[str]) -> None:
        visible = set(visible)
        for statement in body:
            match statement:
                case ast.For(ast.Name(name), iterations, inner):
                    read(iterations, visible)
                    walk(inner, visible | {name})
                case ast.If(test, inner, orelse):
                    read(test, visible)
                    walk(inner, visible)
                    walk(orelse, visible)
                case _:
                    read(statement, visible)
                    visible |= set(_targets(statement))

    walk(function.body, {a.arg for a in function.args.args})
    return found
