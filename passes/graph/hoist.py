"""Move what is the same in every turn of a loop before it, where it is computed once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from jstitch.ir.graph import Graph, Op, Value


def fixed_inputs(body: Graph) -> frozenset[Value]:
    """Inputs of a loop's body that are the same in every turn."""
    return frozenset(a for a, b in zip(body.inputs, body.outputs, strict=True) if a is b)


def changing_values(body: Graph) -> frozenset[Value]:
    """What may differ from turn to turn: what a turn makes, and inputs that it changes."""
    made = frozenset(v for op in body.ops for v in op.results)
    return made.union(body.inputs) - fixed_inputs(body)


def carrying(body: Graph, ops: Sequence[Op], made: Sequence[Value]) -> Graph:
    """The body with other ops; values that are made before the loop come in, and go out, as the last ones."""
    return Graph((*body.inputs, *made), tuple(ops), (*body.outputs, *made))


def hoist(loop: Op, body: Graph, before: Sequence[Op], made: Sequence[Value]) -> list[Op]:
    """The loop with a new body, after ops that stand before it now.

    before: these ops, on what is the same in every turn: inputs of the body, or what stands around the loop.
    made: those of their results that come in as the last inputs of the new body.
    """
    condition, old = loop.regions
    outside = dict(zip(old.inputs, loop.operands, strict=True))
    moved: list[Op] = []
    for op in before:
        operands = tuple(outside.get(v, v) for v in op.operands)
        moved.append(replace(op, operands=operands, results=(Value(op.result.type),)))
        outside[op.result] = moved[-1].result
    given = tuple(outside[v] for v in made)
    unread = tuple(Value(v.type) for v in given)
    tests = Graph((*condition.inputs, *unread), condition.ops, condition.outputs)
    results = (*loop.results, *(Value(v.type) for v in given))
    return [
        *moved,
        replace(loop, operands=(*loop.operands, *given), results=results, regions=(tests, body)),
    ]
