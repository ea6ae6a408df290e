"""Multiply what a loop's turns are given before the loop, all of it at once, instead of in each turn.

    while:  %z = dot_general (xs[turn]), %w        ->        zs = dot_general xs, %w;  while:  %z = zs[turn]

A cell's input products wait for no turn. A GPU makes one product of all turns by all of its multiprocessors,
where a turn would read its weights again; a core has its weights in cache, and memory is what it has less of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import WHILE, build
from jstitch.passes.base.context import Context
from jstitch.passes.base.product_side import PRODUCT, Side
from jstitch.passes.base.rewrite import Producer, Replacement, has, rewrite
from jstitch.passes.graph.dce import dce
from jstitch.passes.graph.find_recurrence import takes_loops
from jstitch.passes.graph.turn_stacks import TurnStacks, product_of_turns, stacks_of

MOST = 4  # times the memory of a loop's own stacks


def hoist_products(graph: Graph, context: Context) -> Graph:
    """The graph with such products before their loops, on a GPU."""
    if context.machine.device is None or not (takes_loops(context) and has(graph, WHILE)):
        return graph
    live = dce(graph)
    found = rewrite(live, _rule, of=(WHILE,))
    return graph if found is live else found


def _rule(op: Op, producer: Producer) -> Replacement | None:
    stacks = stacks_of(op, producer)
    if stacks is None:
        return None
    products = [o for o in stacks.body.ops if stacks.start is not None and _may_go(o, stacks)]
    room = MOST * sum(v.tensor.nbytes for v in {*op.uses, *op.results})
    if not products or sum(p.result.tensor.nbytes for p in products) * stacks.turns > room:
        return None
    return _without(op, products, stacks)


def _may_go(op: Op, stacks: TurnStacks) -> bool:
    """Whether it is a product of a part of a stack and of what is the same in all turns."""
    if op.name != PRODUCT or Side.of(op, 0).batch or not stacks.is_given(op.operands[1]):
        return False
    return stacks.read_from(op.operands[0]) is not None


def _without(op: Op, products: Sequence[Op], stacks: TurnStacks) -> Replacement:
    """The loop, which reads a part of each product."""
    condition, body = op.regions
    before: list[Op] = []
    inside: dict[Op, list[Op]] = {}
    read: list[Value] = []
    for product in products:
        left, right = product.operands
        part, shape = stacks.slice_of(left), (stacks.turns, *product.result.shape)
        assert part is not None
        shaped = build.reshape(stacks.outside(part.operands[0]), (stacks.turns, *left.shape))
        operands = shaped.result, stacks.outside(right)
        made = product_of_turns(product, operands, shape, (1, 0), ())
        before += (op.located(product) for op in (shaped, made))
        read.append(Value(made.result.tensor))
        inside[product] = _read(read[-1], part.operands[1], product)
    ops = [o for old in body.ops for o in inside.get(old, [old])]
    kept = Graph((*body.inputs, *read), tuple(ops), (*body.outputs, *read))
    tests = (*condition.inputs, *(Value(v.tensor) for v in read))
    wholes = [o.result for o in before[1::2]]
    loop = replace(
        op,
        operands=(*op.operands, *wholes),
        results=(*op.results, *(Value(v.tensor) for v in wholes)),
        regions=(replace(condition, inputs=tests), kept),
    )
    return Replacement(op.results, (*before, loop))


def _read(whole: Value, start: Value, product: Op) -> list[Op]:
    """The turn's part, in the product's place."""
    zero = build.splat(start.tensor, 0)
    starts = start, *[zero.result] * product.result.tensor.rank
    part = build.dynamic_slice(whole, starts, (1, *product.result.shape))
    shaped = replace(build.reshape(part.result, product.result.shape), results=product.results)
    return [op.located(product) for op in (zero, part, shaped)]
