"""What lies between two products has its rows in the first one's order, not in another.

%s [b, h, q, g, k] = dot_general %q, %k           %s [b, h, g, q, k] = dot_general (transpose %q), %k
%t [g, b, h, q, k] = transpose %s            ->   %p = softmax of %s's rows
%p = softmax of %t's rows                         %o = dot_general %p, %v {batch (0, 1)}, and back
%o = dot_general %p, %v {batch (1, 2)}

Heads that share keys come out of vmap so (`jax.nn.dot_product_attention` of grouped heads). Both products
take their dimensions in any order; what is between them is made element by element, and from row to row. What
else it reads is turned instead: masks, and numbers that are repeated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import lookup
from jstitch.ir.ops.build import is_broadcast
from jstitch.passes.base.product_side import PRODUCT
from jstitch.passes.base.rewrite import has, map_frames
from jstitch.passes.base.sort_ops import sort_ops
from jstitch.passes.graph.turn_region import TRANSPOSE, Order, Region, roles

FEW = 8  # elementwise ops between a product and the transpose of its rows


def align_rows(graph: Graph) -> Graph:
    """The graph without such transposes."""
    return map_frames(graph, _aligned) if has(graph, PRODUCT) and has(graph, TRANSPOSE) else graph


def _aligned(frame: Graph) -> Graph:
    makers, users = frame.producers(), frame.users()
    places = {op: n for n, op in enumerate(frame.ops)}
    changes: dict[Op, tuple[Op, ...]] = {}
    seen = set[Op]()
    for reader in frame.ops:
        product = _product_of(reader, makers) if reader.name == TRANSPOSE else None
        if product is None or product in seen:
            continue
        seen.add(product)
        region = Region.of(product, _as_read(product, reader), users, places)
        if region is None or not region.orders.keys().isdisjoint(frame.outputs):
            continue
        if changes.keys().isdisjoint(region.touched):
            changes |= region.changes(makers)
    if not changes:
        return frame
    return replace(frame, ops=sort_ops([new for op in frame.ops for new in changes.get(op, (op,))]))


def _product_of(reader: Op, makers: Mapping[Value, Op]) -> Op | None:
    """The product that makes what it turns, but for a few elementwise ops."""
    maker = makers.get(reader.operands[0])
    for _ in range(FEW):
        if maker is None or not lookup(maker.name).op_class.is_elementwise:
            break
        large = (makers[v] for v in maker.operands if v.shape == maker.result.shape and v in makers)
        maker = next((op for op in large if not is_broadcast(op)), None)
    return maker if maker is not None and maker.name == PRODUCT else None


def _as_read(product: Op, reader: Op) -> Order:
    """Where the product's dimensions go, so that rows, then columns, are in the order in which they are read.

    The last dimension is one of columns, with all others of its operand: rows of each operand are together.
    """
    batch, rows, columns = roles(product)
    read = [d for d in reader.attrs["permutation"] if d not in batch]
    as_it_is = product.attrs.get("algorithm") or (read and read[-1] in columns)  # which says what is left
    last = columns if as_it_is else rows
    order = (*batch, *sorted(read, key=last.__contains__))
    return tuple(map(order.index, range(len(order))))
