"""Multiply what a loop's turns are given before the loop, all of it at once, instead of in each turn.

    while:  %z = dot_general (xs[turn]), %w        ->        zs = dot_general xs, %w;  while:  %z = zs[turn]

A cell's input products wait for no turn. A GPU makes one product of all turns by all of its multiprocessors,
where a turn would read its weights again. A core multiplies as quickly as weights come where these stay in
its own cache, and memory is what it has less of. There it is worth while for few rows, which wait for weights
from any cache, and where all weights of a turn take more than half of the core's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import WHILE, build
from jstitch.ir.types import TensorType
from jstitch.passes.base.context import Context
from jstitch.passes.base.machine import Machine
from jstitch.passes.base.product_side import PRODUCT, Side
from jstitch.passes.base.rewrite import Producer, Replacement, has, rewrite
from jstitch.passes.graph.dce import dce
from jstitch.passes.graph.find_recurrence import takes_loops
from jstitch.passes.graph.swap_products import is_even, swapped
from jstitch.passes.graph.turn_stacks import TurnStacks, product_of_turns, stacks_of

MOST = 4  # times the memory of a loop's own stacks
FEW_ROWS = 8  # below which a core waits for weights that are in its own cache
LEAST_BYTES = 1 << 14  # of weights that a turn waits for
CROWDED = 2  # of a core's cache one share, of which weights stay there beside what turns make
WORTH = 4  # bytes of weights not read again, for each that the stack of products takes


def hoist_products(graph: Graph, context: Context) -> Graph:
    """The graph with such products before their loops; on a CPU those whose weights a core would wait for."""
    if not (takes_loops(context) and has(graph, WHILE)):
        return graph
    live = dce(graph)
    found = rewrite(live, partial(_rule, machine=context.machine), of=(WHILE,))
    return graph if found is live else found


def _rule(op: Op, producer: Producer, machine: Machine) -> Replacement | None:
    stacks = stacks_of(op, producer)
    if stacks is None or stacks.start is None:
        return None
    products = [o for o in stacks.body.ops if _may_go(o, stacks)]
    if machine.device is None:
        in_use = _weights(stacks)
        products = [p for p in products if _waits(p, stacks, in_use, machine)]
    room = MOST * sum(v.tensor.nbytes for v in {*op.uses, *op.results})
    if not products or sum(p.result.tensor.nbytes for p in products) * stacks.turns > room:
        return None
    return _without(op, products, stacks)


def _may_go(op: Op, stacks: TurnStacks) -> bool:
    """Whether it is a product of a part of a stack and of what is the same in all turns, in either order."""
    if op.name != PRODUCT or Side.of(op, 0).batch:
        return False
    part, weights = _part_first(op, stacks).operands
    return stacks.is_given(weights) and stacks.read_from(part) is not None


def _part_first(product: Op, stacks: TurnStacks) -> Op:
    """The product with what turns read of a stack as its first operand; its rows are so, too."""
    if not stacks.is_given(product.operands[0]) or not is_even(product):
        return product
    left, right = Side.of(product, 0), Side.of(product, 1)
    shape = (*right.shape(right.free), *left.shape(left.free))
    return swapped(product, (Value(TensorType(shape, product.result.tensor.dtype)),))


def _weights(stacks: TurnStacks) -> int:
    """Bytes that a turn multiplies by, of what is the same in all."""
    products = (op for op in stacks.body.ops if op.name == PRODUCT)
    return sum(v.tensor.nbytes for v in {v for op in products for v in op.operands if stacks.is_given(v)})


def _waits(product: Op, stacks: TurnStacks, in_use: int, machine: Machine) -> bool:
    """Whether a core's turn waits for weights, of so many bytes in all, rather than multiplies."""
    first = _part_first(product, stacks)
    part, weights = Side.of(first, 0), Side.of(first, 1).value.tensor.nbytes
    if weights < max(LEAST_BYTES, WORTH * product.result.tensor.nbytes):
        return False
    return part.size(part.free) < FEW_ROWS or CROWDED * in_use > machine.near_bytes


def _without(op: Op, products: Sequence[Op], stacks: TurnStacks) -> Replacement:
    """The loop, which reads a part of each product."""
    condition, body = op.regions
    before: list[Op] = []
    inside: dict[Op, list[Op]] = {}
    read: list[Value] = []
    for product in products:
        first = _part_first(product, stacks)
        left, right = first.operands
        part, shape = stacks.slice_of(left), (stacks.turns, *first.result.shape)
        assert part is not None
        shaped = build.reshape(stacks.outside(part.operands[0]), (stacks.turns, *left.shape))
        operands = shaped.result, stacks.outside(right)
        made = product_of_turns(first, operands, shape, (1, 0), ())
        before += (op.located(product) for op in (shaped, made))
        read.append(Value(made.result.tensor))
        inside[product] = _read(read[-1], part.operands[1], first, product)
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


def _read(whole: Value, start: Value, first: Op, product: Op) -> list[Op]:
    """The turn's part, in the product's place; it has rows first."""
    zero = build.splat(start.tensor, 0)
    starts = start, *[zero.result] * first.result.tensor.rank
    part = build.dynamic_slice(whole, starts, (1, *first.result.shape))
    made = [zero, part, build.reshape(part.result, first.result.shape)]
    if first is not product:
        rank, rows = product.result.tensor.rank, len(Side.of(first, 0).free)
        made.append(build.transpose(made[-1].result, (*range(rows, rank), *range(rows))))
    made[-1] = replace(made[-1], results=product.results)
    return [op.located(product) for op in made]
