"""Scatter into a tensor instead of adding a scattered one to it.

    %a = scatter add %zeros, %i, %u                    %x = ...
    %b = multiply %a, -0.1                     ->      %v = multiply %u, -0.1
    %s = add %x, %b                                    %s = scatter add %x, %i, %v

The gradient of a table is scattered into zeros. Where it is added to the gradient of another look-up or of a
product, or to the table itself, XLA can update that in place: of several tensors of the table's size one is
left, and only rows that were looked up are touched. Only rounding differs: f32 and f64 are added in another
order. A sum to which whatever it was is added term by term loses half a unit in the last place for each, so
that only a few terms go into a tensor that is not itself a sum of such terms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import build, monoid_of
from jstitch.ir.ops.build import splat_value
from jstitch.ir.types import DType
from jstitch.passes.base.context import Context
from jstitch.passes.base.rewrite import Producer, Replacement, has, rewrite

ADD, MULTIPLY, SCATTER = "stablehlo.add", "stablehlo.multiply", "stablehlo.scatter"
SUMS = frozenset((SCATTER, "stablehlo.dot_general"))
TERMS = 256  # that go into one element, at most, of a tensor that is no sum


def chain_scatters(graph: Graph, context: Context) -> Graph:
    """The graph with sums of scatters written as one after the other, where kernels make updates."""
    if not (context.profile.updates and has(graph, SCATTER)):
        return graph
    return rewrite(graph, _Chain(_readers(graph)).rule, of=(ADD, MULTIPLY))


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
        if op.result.tensor.dtype not in (DType.F32, DType.F64):
            return None
        for value, other in (op.operands[::-1], op.operands):
            chain = self._scattered(value, producer)
            if chain and op.name == ADD and self._takes(other, chain, producer):
                return _rebuilt(op, chain, other)
            factor = splat_value(producer(other))
            if chain and op.name == MULTIPLY and factor is not None and np.isfinite(factor):
                return _scaled(op, chain, factor)
        return None

    def _scattered(self, value: Value, producer: Producer) -> list[Op]:
        """The scatters, one after the other, that add to zeros and make a value which one op reads."""
        chain: list[Op] = []
        while (zero := splat_value(producer(value))) is None:
            op = producer(value)
            if op is None or not self._adds(op):
                return []
            chain.insert(0, op)
            value = op.operands[0]
        return [] if zero.any() else chain

    def _adds(self, op: Op) -> bool:
        """Whether the op adds to its operand, and one op at most wants to see the result."""
        if op.name != SCATTER or len(op.operands) != 3 or monoid_of(op.regions[0]) != ADD:
            return False
        return self.readers.get(op.result, 0) <= 1

    def _takes(self, value: Value, chain: Sequence[Op], producer: Producer) -> bool:
        """Whether the terms may be added to the value, which nobody else reads, or to a copy."""
        op = producer(value)
        if op is not None and op.name in SUMS:
            return self.readers.get(value, 0) <= 1
        return sum(map(_terms, chain)) <= TERMS


def _terms(op: Op) -> int:
    """How many of a scatter's updates can go to one element."""
    update = op.operands[2].tensor
    windows = {int(d) for d in op.attrs["update_window_dims"]}
    return math.prod(n for d, n in enumerate(update.shape) if d not in windows)


def _rebuilt(op: Op, chain: Sequence[Op], start: Value) -> Replacement:
    """The op's result by the same scatters from another start."""
    made: list[Op] = []
    for scatter in chain:
        result = op.results if scatter is chain[-1] else (Value(scatter.result.type),)
        made.append(replace(scatter, operands=(start, *scatter.operands[1:]), results=result))
        start = made[-1].result
    return Replacement(op.results, tuple(made))


def _scaled(op: Op, chain: Sequence[Op], factor: np.ndarray) -> Replacement:
    """The op's result by scatters of what is scaled before."""
    new: list[Op] = []
    scaled: list[Op] = []
    for scatter in chain:
        start, places, update = scatter.operands
        by = build.splat(update.tensor, factor)
        product = build.elementwise(MULTIPLY, update, by.result)
        new += [by, product]
        scaled.append(replace(scatter, operands=(start, places, product.result)))
    last = _rebuilt(op, scaled, chain[0].operands[0])
    return replace(last, ops=(*new, *last.ops))
