"""Exchange the operands of a matrix product whose result is transposed, so that it comes out as it is wanted.

    %t = transpose (dot_general %x [b, m], %g [b, n]) (1, 0)      ->      %t = dot_general %g, %x

Gradients of weights are written so by JAX. XLA gives the product such a layout, and nothing moves; a kernel
that reads the transposition would go through memory across its lines.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from jstitch.ir.graph import Graph, Op, Value
from jstitch.passes.base.product_side import PRODUCT, SIDES, Side
from jstitch.passes.base.rewrite import Producer, Replacement, has, rewrite

TRANSPOSE = "stablehlo.transpose"


def swap_products(graph: Graph) -> Graph:
    """The graph without transpositions that exchange rows and columns of products nobody else reads."""
    if not (has(graph, PRODUCT) and has(graph, TRANSPOSE)):
        return graph
    outputs = (v for op in graph.walk() for region in op.regions for v in region.outputs)
    read = Counter[Value]((*graph.outputs, *outputs, *(v for op in graph.walk() for v in op.operands)))

    def rule(op: Op, producer: Producer) -> Replacement | None:
        if read[op.operands[0]] > 1:
            return None
        product = producer(op.operands[0])
        if product is None or product.name != PRODUCT or not is_even(product):
            return None
        if tuple(op.attrs["permutation"]) != exchanged(product):
            return None
        return Replacement(op.results, (swapped(product, op.results),))

    return rewrite(graph, rule, of=(TRANSPOSE,))


def is_even(product: Op) -> bool:
    """Whether nothing is asked for one operand that is not asked for the other."""
    precisions = product.attrs.get("precision_config", "").strip("[]").split(", ")
    return len(set(precisions)) == 1 and not product.attrs.get("algorithm")


def exchanged(product: Op) -> tuple[int, ...]:
    """Where dimensions of the result come from when the second operand's rows are before the first one's."""
    left, right = Side.of(product, 0), Side.of(product, 1)
    batch, rows = len(left.batch), len(left.free)
    order = range(batch + rows + len(right.free))
    return (*order[:batch], *order[batch + rows :], *order[batch : batch + rows])


def swapped(product: Op, results: tuple[Value, ...]) -> Op:
    """The product with its operands exchanged, which makes these values."""
    attrs = dict(product.attrs)
    for kind in ("batching", "contracting"):
        names = [f"{side}_{kind}_dimensions" for side in SIDES]
        attrs |= zip(names, (product.attrs[name] for name in reversed(names)), strict=True)
    return replace(product, operands=product.operands[::-1], results=results, attrs=attrs)
