"""Bring ops into one form: remove those that do nothing, merge chains, shrink to splats.

    %1 = transpose %0, [0, 1]                  %3 = broadcast_in_dim %0, dims = [1]
    %2 = reshape %1 : 8 -> 1x8           ->
    %3 = broadcast_in_dim %2, dims = [0, 1]

The rules live with the ops (`jstitch.ir.ops.simplify`); each keeps every bit of every result.
"""

from __future__ import annotations

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops.simplify import simplify
from jstitch.passes.base.rewrite import Producer, Replacement, rewrite

_STEPS = 8


def canonicalize(graph: Graph) -> Graph:
    """Apply the op table's simplifications until none fires."""
    for _ in range(_STEPS):
        simpler = rewrite(graph, _rule)
        if simpler is graph:
            break
        graph = simpler
    return graph


def _rule(op: Op, producer: Producer) -> Replacement | None:
    """Simplify until nothing fires, so that one pass over the graph does nearly everything."""
    current: Op | Value = op
    while isinstance(current, Op):
        found = simplify(current, producer)
        if found is None:
            break
        current = found
    if current is op:
        return None
    if isinstance(current, Value):
        return Replacement((current,))
    simpler = current.located(op)
    return Replacement(simpler.results, (simpler,))
