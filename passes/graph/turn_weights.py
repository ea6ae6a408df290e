"""Weights that a loop's products sum along lines of memory are transposed once, before the loop, on a CPU.

    while:  %z = dot_general %h [b, k], %w [n, k]  contract 1 and 1
->
    %t = transpose %w (1, 0)
    while:  %z = dot_general %h, %t [k, n]         contract 1 and 0

A recurrent cell whose weights have a line for each unit, and the gradient of any other. A kernel of all turns
reads columns where they are if they lie side by side and rows are few, and has to turn blocks of them in each
turn if they do not. XLA's library is as quick with either, or quicker with these.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import WHILE, build
from jstitch.passes.base.context import Context
from jstitch.passes.base.product_side import PRODUCT, SIDES, Side
from jstitch.passes.base.rewrite import Producer, Replacement, has, rewrite
from jstitch.passes.graph.find_recurrence import takes_loops
from jstitch.passes.graph.hoist import carrying, changing_values, hoist
from jstitch.passes.graph.turn_stacks import turns_of

LEAST_TURNS = 16  # that read what is turned once
LEAST_BYTES = 1 << 12  # of weights: fewer are in registers, or nearly


def turn_weights(graph: Graph, context: Context) -> Graph:
    """The graph with such transpositions before its loops."""
    if context.machine.device is not None or not (takes_loops(context) and has(graph, WHILE)):
        return graph
    most = context.machine.near_bytes

    def rule(op: Op, producer: Producer) -> Replacement | None:
        counter = turns_of(op, producer)
        if counter is None or counter.trips < LEAST_TURNS:
            return None
        return _Turner(op.regions[1], most).loop(op)

    return rewrite(graph, rule, of=(WHILE,))


@dataclass(eq=False)
class _Turner:
    """A loop's body. most: bytes of weights that stay in a core's cache. turned: weights -> transposition."""

    body: Graph
    most: int
    turned: dict[Value, Op] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.changing = changing_values(self.body)

    def loop(self, op: Op) -> Replacement | None:
        ops = [self._product(o) if self._is_across(o) else o for o in self.body.ops]
        if not self.turned:
            return None
        before = list(self.turned.values())
        body = carrying(self.body, ops, [o.result for o in before])
        return Replacement(op.results, tuple(hoist(op, body, before, [o.result for o in before])))

    def _is_across(self, op: Op) -> bool:
        """Whether it is a product by weights whose columns are apart in memory."""
        if op.name != PRODUCT:
            return False
        left, right = Side.of(op, 0), Side.of(op, 1)
        of_rows = left.size(left.free) > 1 and not left.batch and right.value not in self.changing
        if right.value.tensor.rank != 2 or right.contracted != (1,):
            return False
        return of_rows and LEAST_BYTES <= right.value.tensor.nbytes <= self.most

    def _product(self, op: Op) -> Op:
        left, weights = op.operands
        if weights not in self.turned:
            self.turned[weights] = build.transpose(weights, (1, 0)).located(op)
        attrs = {**op.attrs, f"{SIDES[1]}_contracting_dimensions": (0,)}
        return replace(op, operands=(left, self.turned[weights].result), attrs=attrs)
