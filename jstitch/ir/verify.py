"""Type-check of Graphs: SSA form, and the shape and dtype rule of every op that has one.

complaints = verify(graph)       # () when the graph is well formed
check(graph)                     # raises InvalidGraph with the graph printed, complaints in place
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from weakref import WeakSet

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import COLLECTIVES, KERNEL, OPS, lookup
from jstitch.ir.ops.rules import complaints
from jstitch.ir.printer import print_graph


@dataclass(frozen=True)
class Diagnostic:
    """What is wrong; `op` is None for the graph itself."""

    op: Op | None
    message: str


class InvalidGraph(ValueError):
    """A graph that breaks the IR's rules: a defect in the pass that made it."""


def verify(graph: Graph) -> tuple[Diagnostic, ...]:
    """Every broken rule, in program order. The graph may capture nothing."""
    return tuple(_verify(graph, set()))


def check(graph: Graph, where: str = "") -> Graph:
    """The graph itself. Raises InvalidGraph, naming `where` (a pass), when a rule is broken."""
    diagnostics = verify(graph)
    if not diagnostics:
        return graph
    notes: dict[Op, list[str]] = {}
    for diagnostic in diagnostics:
        if diagnostic.op is not None:
            notes.setdefault(diagnostic.op, []).append(diagnostic.message)
    general = [d.message for d in diagnostics if d.op is None]
    after = f" after {where}" if where else ""
    head = f"Expected a valid graph{after}, found {len(diagnostics)} broken rules."
    raise InvalidGraph("\n".join([head, *general, print_graph(graph, notes)]))


def _verify(graph: Graph, known: set[Value]) -> Iterator[Diagnostic]:
    """`known` holds the values around the graph; it is extended here and restored at the end."""
    before = len(known)
    defined = [*graph.inputs, *(v for op in graph.ops for v in op.results)]
    for value in graph.inputs:
        yield from _define(None, value, known)
    for op in graph.ops:
        for number, value in enumerate(op.operands):
            if value not in known:
                yield Diagnostic(op, f"operand {number} ({value.type}) is used before it is defined")
        for region in op.regions:
            yield from _verify(region, known)
        for value in op.results:
            yield from _define(op, value, known)
        yield from _verify_op(op)
    for number, value in enumerate(graph.outputs):
        if value not in known:
            yield Diagnostic(None, f"output {number} ({value.type}) is not defined")
    if len(known) == before + len(defined):
        known.difference_update(defined)


def _define(op: Op | None, value: Value, known: set[Value]) -> Iterator[Diagnostic]:
    if value in known:
        yield Diagnostic(op, f"a value of type {value.type} is defined twice")
    known.add(value)


_SOUND: WeakSet[Op] = WeakSet()
"""Ops that broke no rule; they do not change."""


def _verify_op(op: Op) -> Iterator[Diagnostic]:
    """What is wrong with an op alone. Passes leave most ops as they are: those are not looked at again."""
    if op in _SOUND:
        return
    found = tuple(_diagnose(op))
    if not found:
        _SOUND.add(op)
    yield from found


def _diagnose(op: Op) -> Iterator[Diagnostic]:
    """Opaque ops keep only their arity; the others need their attributes and the rule of their class."""
    if op.name not in OPS:
        if op.attrs.get("num_operands", len(op.operands)) > len(op.operands):
            yield Diagnostic(op, f"expected {op.attrs['num_operands']} operands, found {len(op.operands)}")
    elif op.name in (KERNEL, COLLECTIVES):
        yield from (Diagnostic(op, m) for m in _body_complaints(op))
    else:
        yield from (Diagnostic(op, m) for m in complaints(op, lookup(op.name)))


def _body_complaints(op: Op) -> Iterator[str]:
    if len(op.regions) != 1:
        yield f"expected one body, found {len(op.regions)} regions"
        return
    (body,) = op.regions
    for what, inner, outer in (("input", body.inputs, op.operands), ("output", body.outputs, op.results)):
        if [v.type for v in inner] != [v.type for v in outer]:
            yield f"the body's {what}s differ in type or number from the op's"
