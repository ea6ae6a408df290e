"""Products over the rows of both operands come out with the long side last, on a CPU.

    %g = dot_general %x [b, 784], %d [b, 10]          ->      %p = dot_general %d, %x         [10, 784]
         contract 0 and 0             [784, 10]               %g = transpose (turned %p)      [784, 10]

Gradients of weights. XLA's library shares out such a product by what comes last: with ten columns it takes up
to eight times as long as the other way round. XLA would undo it, and fold the transpose into the product, but
for a barrier between the two, which is what `turned` leaves as. A kernel reads the gradient transposed.
"""

from __future__ import annotations

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import build
from jstitch.ir.types import TensorType
from jstitch.passes.base.context import Context
from jstitch.passes.base.product_side import PRODUCT, Side
from jstitch.passes.base.rewrite import Producer, Replacement, rewrite
from jstitch.passes.graph.swap_products import is_even, swapped

NARROW = 128  # columns up to which it pays, where as many rows are added up: turning it takes time, too
LONGER = 2  # times as many rows


def turn_gradients(graph: Graph, context: Context) -> Graph:
    """The graph with such products exchanged and turned back."""
    return graph if context.machine.device is not None else rewrite(graph, _rule, of=(PRODUCT,))


def _rule(op: Op, _: Producer) -> Replacement | None:
    left, right = Side.of(op, 0), Side.of(op, 1)
    if left.batch or not (_sums_rows(left) and _sums_rows(right) and is_even(op)):
        return None
    if not op.result.tensor.dtype.is_float:
        return None
    rows, columns, added = left.size(left.free), right.size(right.free), left.size(left.contracted)
    if not 1 < columns <= min(NARROW, added) or rows < LONGER * columns:
        return None
    product = swapped(op, (Value(TensorType(op.result.shape[::-1], op.result.tensor.dtype)),))
    left_so = build.turned(product.result)
    back = build.transpose(left_so.result, (1, 0))
    return Replacement(back.results, (product, left_so.located(op), back.located(op)))


def _sums_rows(side: Side) -> bool:
    """Whether its first dimensions are contracted and one is left."""
    return side.contracted == tuple(range(side.value.tensor.rank - 1)) and bool(side.contracted)
