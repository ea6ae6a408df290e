"""Add up over devices behind a loop what its turns add up one by one.

    while:  %g1 = add %g, (all_reduce %v)      ->      while:  %g1 = add %g, %v
                                                       %r = add %g0, (all_reduce %g)

The gradient of weights that all turns share is such a sum where devices have parts of the batch. One sum
takes the place of as many as there are turns, and nothing is left that keeps the loop from being one kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import build
from jstitch.ir.ops.collective import SUMMED
from jstitch.passes.base.rewrite import Producer, Replacement, has, is_loop, rewrite
from jstitch.passes.graph.sink_sums import SUM, Sum, sums_of


def sink_collectives(graph: Graph) -> Graph:
    """The graph with the sums over devices of such loops behind them."""
    return rewrite(graph, _rule) if has(graph, SUMMED) else graph


def _rule(op: Op, producer: Producer) -> Replacement | None:
    if not is_loop(op):
        return None
    condition, body = op.regions
    asked = set(condition.users())
    sums = [s for s in sums_of(body, _adds_up) if condition.inputs[s.place] not in asked]
    return _sunk(op, sums) if sums else None


def _adds_up(op: Op, _: Producer) -> bool:
    return op.name == SUMMED and op.attrs.get("monoid") == SUM and len(op.operands) == 1


def _sunk(op: Op, sums: Sequence[Sum]) -> Replacement:
    condition, body = op.regions
    own = {s.reduction.result: s.reduction.operands[0] for s in sums}
    gone = {s.reduction for s in sums}
    ops = tuple(
        replace(o, operands=tuple(own.get(v, v) for v in o.operands)) for o in body.ops if o not in gone
    )
    operands, results, values = list(op.operands), list(op.results), list(op.results)
    zeros, behind = list[Op](), list[Op]()
    for s in sums:
        kind = op.operands[s.place].tensor
        zero, result, total = build.splat(kind, 0), Value(kind), Value(kind)
        whole = replace(s.reduction, operands=(result,), results=(total,))
        last = build.add(op.operands[s.place], total).located(s.added)
        zeros.append(zero)
        behind += [whole, last]
        operands[s.place], results[s.place], values[s.place] = zero.result, result, last.result
    regions = condition, Graph(body.inputs, ops, body.outputs)
    loop = replace(op, operands=tuple(operands), results=tuple(results), regions=regions)
    return Replacement(tuple(values), (*zeros, loop, *behind))
