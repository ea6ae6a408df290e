"""Put a matrix product first in the sum that it is added to, where XLA's library adds it while it multiplies.

    %1 = add %0, (dot_general %a, %b);  %2 = add %1, (dot_general %c, %d)
->
    %1 = add (dot_general %a, %b), %0;  %2 = add (dot_general %c, %d), %1

XLA:GPU gives a sum to the product that it finds first in it. In a chain of sums that is the one before, which
has been given a sum already, and every other sum would be a kernel that reads and writes it once more.
"""

from __future__ import annotations

from dataclasses import replace

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import OpClass, lookup
from jstitch.passes.base.context import Context
from jstitch.passes.base.rewrite import Producer, Replacement, rewrite

SUM, PRODUCT = "stablehlo.add", "stablehlo.dot_general"


def lead_products(graph: Graph, context: Context) -> Graph:
    """The graph with products first in sums, where that matters. Every bit of the results stays."""
    return rewrite(graph, _rule, of=(SUM,)) if context.profile.products else graph


def _rule(op: Op, producer: Producer) -> Replacement | None:
    if not _is_product(op.operands[1], producer) or _is_product(op.operands[0], producer):
        return None
    led = replace(op, operands=op.operands[::-1])
    return Replacement(led.results, (led,))


def _is_product(value: Value, producer: Producer) -> bool:
    """A product, or one that is read in another shape."""
    maker = producer(value)
    while maker is not None and lookup(maker.name).op_class is OpClass.SHAPE and len(maker.operands) == 1:
        maker = producer(maker.operands[0])
    return maker is not None and maker.name == PRODUCT
