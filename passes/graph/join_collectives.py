"""Add up on each device first, over devices once.

    %1 = all_reduce %0                         %4 = add %0, %2
    %3 = all_reduce %2                 ->      %5 = all_reduce %4
    %4 = add %1, %3

The gradient of what several products read is such a sum, where devices have parts of these products. XLA does
so, too, where it sees the sum: not in a kernel.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import build
from jstitch.ir.ops.collective import SUMMED, devices
from jstitch.passes.base.rewrite import Producer, Replacement, has, rewrite
from jstitch.passes.graph.sink_sums import SUM


def join_collectives(graph: Graph) -> Graph:
    """The graph with one sum over devices for those that are only added up."""
    if not has(graph, SUMMED):
        return graph
    readers = Counter(v for op in graph.walk() for v in op.operands)
    for frame in (graph, *(region for op in graph.walk() for region in op.regions)):
        readers.update(frame.outputs)

    def rule(op: Op, producer: Producer) -> Replacement | None:
        sums = [made for v in op.operands if (made := producer(v)) is not None and _is_sum(made)]
        if len(sums) < 2 or sums[0] is sums[1] or devices(sums[0]) != devices(sums[1]):
            return None
        if any(readers[one.result] > 1 for one in sums):
            return None
        own = build.add(sums[0].operands[0], sums[1].operands[0]).located(op)
        whole = replace(sums[0], operands=(own.result,), results=(Value(op.result.tensor),))
        readers[whole.result] = readers[op.result]
        return Replacement(whole.results, (own, whole))

    return rewrite(graph, rule, of=(SUM,))


def _is_sum(op: Op) -> bool:
    return op.name == SUMMED and op.attrs.get("monoid") == SUM and len(op.operands) == 1
