"""Write the product of a matrix and a vector as a multiplication and a sum, as XLA:GPU does with small ones.

    %s = dot_general %m, %v                            %b = broadcast %v;  %p = multiply %m, %b
                                               ->      %s = reduce add %p
    %m: [b, l, w], %v: [b, w], batch b, contract w

No library is quicker than a sum over what is read once, so XLA makes a kernel of its own of it. As ops they
are the kernels' like any others: what makes the vector, the sum, and what is made of it can share one kernel,
as scores, softmax and mixture do in the attention of one query.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from jstitch.ir.graph import Graph, Op
from jstitch.ir.ops import build
from jstitch.ir.types import DType
from jstitch.passes.base.context import Context
from jstitch.passes.base.product_side import PRODUCT, Side
from jstitch.passes.base.rewrite import Producer, Replacement, rewrite

MULTIPLY, SUM = "stablehlo.multiply", "stablehlo.add"
SMALL = 10_000_000  # multiplications up to which XLA:GPU does it


def reduce_products(graph: Graph, context: Context) -> Graph:
    """The graph without such products, where products stand as the library will run them."""
    return rewrite(graph, _rule) if context.profile.products else graph


def _rule(op: Op, producer: Producer) -> Replacement | None:
    if op.name != PRODUCT or {v.tensor.dtype for v in (*op.operands, *op.results)} != {DType.F32}:
        return None
    sides = sorted((Side.of(op, number) for number in (0, 1)), key=lambda side: -side.size(side.free))
    matrix, vector = sides
    size = matrix.value.tensor.size
    if vector.size(vector.free) != 1 or not matrix.contracted or not 0 < size < SMALL:
        return None
    ops = tuple(_written(matrix, vector, op))
    return Replacement(op.results, (*ops[:-1], replace(ops[-1], results=op.results)))


def _written(matrix: Side, vector: Side, op: Op) -> Iterator[Op]:
    """The ops; the last makes the product's result."""
    place: Mapping[int, int] = dict(zip(vector.paired, matrix.paired, strict=True))
    order = sorted(vector.paired, key=place.__getitem__)
    shape = matrix.value.shape
    turned = build.transpose(vector.value, (*order, *vector.free))
    flat = build.reshape(turned.result, [vector.value.shape[d] for d in order])
    spread = build.broadcast(flat.result, shape, [place[d] for d in order])
    product = build.elementwise(MULTIPLY, matrix.value, spread.result)
    zero = build.splat(replace(matrix.value.tensor, shape=()), 0.0)
    total = build.reduce(SUM, product.result, zero.result, matrix.contracted)
    yield from (turned, flat, spread, product, zero, total)
    kept = [d for d in range(len(shape)) if d not in matrix.contracted]
    outer = build.transpose(total.result, [kept.index(d) for d in (*matrix.batch, *matrix.free)])
    yield from (outer, build.reshape(outer.result, op.result.shape))
