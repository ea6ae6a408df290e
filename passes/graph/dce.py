"""Remove ops whose results nobody reads.

    %1 = exponential %0              %2 = add %0, %0
    %2 = add %0, %0          ->      return %2
    return %2

Ops that the table does not know may have effects and stay, with all they read.
"""

from __future__ import annotations

from dataclasses import replace

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import OPS
from jstitch.ir.types import TensorType


def dce(graph: Graph) -> Graph:
    """The graph without dead ops, in its regions too."""
    live: set[Value] = set(graph.outputs)
    kept: list[Op] = []
    for op in reversed(graph.ops):
        if is_pure(op) and live.isdisjoint(op.results):
            continue
        kept.append(_inside(op))
        live.update(kept[-1].uses)
    kept.reverse()
    if len(kept) == len(graph.ops) and all(a is b for a, b in zip(kept, graph.ops, strict=True)):
        return graph
    return Graph(graph.inputs, tuple(kept), graph.outputs)


def _inside(op: Op) -> Op:
    regions = tuple(dce(region) for region in op.regions)
    same = all(a is b for a, b in zip(regions, op.regions, strict=True))
    return op if same else replace(op, regions=regions)


def is_pure(op: Op) -> bool:
    """Whether the op does nothing but make its results: it is in the table and touches tensors only."""
    tensors = all(isinstance(v.type, TensorType) for v in (*op.operands, *op.results))
    return op.name in OPS and tensors and all(is_pure(inner) for r in op.regions for inner in r.ops)
