"""Write products of matrices that sum nothing up as multiplications, as XLA does.

    %s = dot_general %p, %h                        %b = broadcast %h
                                               ->  %s = multiply %p, %b
    %p: [h, b, q, k], %h: [h], batch h

Masks and scales of heads are often written so (`einsum("bhqk,h->bhqk", ...)`), and outer products are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import build
from jstitch.passes.base.product_side import PRODUCT, Side
from jstitch.passes.base.rewrite import Producer, Replacement, rewrite

MULTIPLY = "stablehlo.multiply"


def multiply_products(graph: Graph) -> Graph:
    """The graph without such products, but for those by an algorithm of their own."""
    return rewrite(graph, _rule, of=(PRODUCT,))


def _rule(op: Op, producer: Producer) -> Replacement | None:
    if op.attrs.get("algorithm") or op.result.tensor.size == 0:
        return None
    left, right = Side.of(op, 0), Side.of(op, 1)
    if left.size(left.contracted) != 1:
        return None
    alone = next((side for side in (left, right) if side.size(side.free) == 1), None)
    matrix = right if alone is left else left
    maker = producer(matrix.value)
    # another product comes out as it is wanted (swap_products), and nothing has to be turned
    if alone is None or (maker is not None and maker.name == PRODUCT):
        ops = _as_the_result_lies(left, right, op)
    else:
        ops = _as_it_lies(matrix, alone, op)
    made = tuple(ops)
    return Replacement(op.results, (*made[:-1], replace(made[-1], results=op.results)))


def _as_it_lies(matrix: Side, scale: Side, op: Op) -> Iterator[Op]:
    """With the dimensions of the one operand that has any of its own, in its order; then in the result's."""
    where = dict(zip(scale.batch, matrix.batch, strict=True))
    order = sorted(scale.batch, key=where.__getitem__)
    turned = build.transpose(scale.value, (*order, *scale.free, *scale.contracted))
    flat = build.reshape(turned.result, scale.shape(order))
    wide = build.convert(flat.result, op.result.tensor.dtype)
    spread = build.broadcast(wide.result, matrix.value.shape, [where[d] for d in order])
    own = build.convert(matrix.value, op.result.tensor.dtype)
    product = build.elementwise(MULTIPLY, own.result, spread.result)
    outer = build.transpose(product.result, (*matrix.batch, *matrix.free, *matrix.contracted))
    yield from (turned, flat, wide, spread, own, product, outer, build.reshape(outer.result, op.result.shape))


def _as_the_result_lies(left: Side, right: Side, op: Op) -> Iterator[Op]:
    spread: list[Value] = []
    for side, first in ((left, len(left.batch)), (right, len(left.batch) + len(left.free))):
        batch = range(len(side.batch))
        made = list(_spread(side, op, (*batch, *range(first, first + len(side.free)))))
        yield from made
        spread.append(made[-1].result)
    yield build.elementwise(MULTIPLY, *spread)


def _spread(side: Side, op: Op, places: tuple[int, ...]) -> Iterator[Op]:
    """The operand as large as the result, and of its type. places: of its dimensions there."""
    order = (*side.batch, *side.free)
    turned = build.transpose(side.value, (*order, *side.contracted))
    flat = build.reshape(turned.result, side.shape(order))
    wide = build.convert(flat.result, op.result.tensor.dtype)
    yield from (turned, flat, wide, build.broadcast(wide.result, op.result.shape, places))
