"""Scatter into a tensor instead of adding a scattered one to it.

    %a = scatter add %zeros, %i, %u                    %a = scatter add %zeros, %i, %u
    %b = scatter add %zeros, %j, %v            ->      %s = scatter add %a, %j, %v
    %s = add %a, %b

The gradient of a table that is looked up in several places is such a sum. Of the tensors, which are the
table's size, one is left, and XLA updates it in place. Only rounding differs: f32 and f64 are added in
another order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import monoid_of
from jstitch.ir.ops.build import splat_value
from jstitch.ir.types import DType
from jstitch.passes.profile import current
from jstitch.passes.rewrite import Producer, Replacement, rewrite

ADD, SCATTER = "stablehlo.add", "stablehlo.scatter"


def chain_scatters(graph: Graph) -> Graph:
    """The graph with sums of scatters written as one after the other, where kernels make updates."""
    if not current().updates or not any(op.name == SCATTER for op in graph.walk()):
        return graph
    return rewrite(graph, _Chain(_readers(graph)).rule)


def _readers(graph: Graph) -> dict[Value, int]:
    """How many ops read each value, and frames return it."""
    found: dict[Value, int] = {}
    for frame in (graph, *(region for op in graph.walk() for region in op.regions)):
        for v in (*(v for op in frame.ops for v in op.operands), *frame.outputs):
            found[v] = found.get(v, 0) + 1
    return found


@dataclass(frozen=True)
class _Chain:
    readers: Mapping[Value, int]

    def rule(self, op: Op, producer: Producer) -> Replacement | None:
        if op.name != ADD or op.result.tensor.dtype not in (DType.F32, DType.F64):
            return None
        for scattered, other in (op.operands[::-1], op.operands):
            made = producer(scattered)
            if made is not None and self._is_sum(made, producer) and self._is_ours(other, producer):
                chained = replace(made, operands=(other, *made.operands[1:]), results=op.results)
                return Replacement(op.results, (chained,))
        return None

    def _is_sum(self, op: Op, producer: Producer) -> bool:
        """Whether the op scatters into zeros, and nobody but the addition wants to see them."""
        if op.name != SCATTER or len(op.operands) != 3 or monoid_of(op.regions[0]) != ADD:
            return False
        zero = splat_value(producer(op.operands[0]))
        return zero is not None and not zero.any() and self.readers.get(op.result, 0) <= 1

    def _is_ours(self, value: Value, producer: Producer) -> bool:
        """Whether XLA can scatter into its memory: another scatter made it, for this sum only."""
        op = producer(value)
        return op is not None and op.name == SCATTER and self.readers.get(value, 0) <= 1
