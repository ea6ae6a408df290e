"""A product multiplies what its operand is the transposition of.

    %t = transpose %w [n, k] (1, 0);  %y = dot_general %x [m, k], %t      contract 1 and 0
->
    %y = dot_general %x [m, k], %w                                        contract 1 and 1

Similarities (`x @ y.T`) are written so, of rows that have been normalized. Libraries read either, and XLA
folds rows and columns that are exchanged just like this. A kernel that makes the operand would write it
across the lines of memory, and what stands behind a kernel XLA cannot fold any more.
"""

from __future__ import annotations

from dataclasses import replace

from jstitch.ir.graph import Graph, Op
from jstitch.passes.base.product_side import PRODUCT, SIDES, Side
from jstitch.passes.base.rewrite import Producer, Replacement, has, rewrite
from jstitch.passes.graph.swap_products import TRANSPOSE


def fold_transposes(graph: Graph) -> Graph:
    """The graph without exchanges of rows and columns before products."""
    return rewrite(graph, _rule, of=(PRODUCT,)) if has(graph, PRODUCT) and has(graph, TRANSPOSE) else graph


def _rule(op: Op, producer: Producer) -> Replacement | None:
    folded = op
    for number in range(len(SIDES)):
        folded = _folded(folded, number, producer)
    return Replacement(op.results, (folded,)) if folded is not op else None


def _folded(op: Op, number: int, producer: Producer) -> Op:
    """The product of what an operand is the transposition of, where a library reads that as it lies.

    Batch dimensions stay where they are, and those that are contracted lie beside each other, in order.
    """
    turning, side = producer(op.operands[number]), Side.of(op, number)
    if turning is None or turning.name != TRANSPOSE or len(side.free) != 1 or not side.contracted:
        return op
    permutation = turning.attrs["permutation"]
    contracted = tuple(permutation[d] for d in side.contracted)
    beside = tuple(range(contracted[0], contracted[0] + len(contracted)))
    if contracted != beside or any(permutation[d] != d for d in side.batch):
        return op
    operands = [turning.operands[0] if n == number else v for n, v in enumerate(op.operands)]
    dims = {f"{SIDES[number]}_contracting_dimensions": contracted}
    return replace(op, operands=tuple(operands), attrs={**op.attrs, **dims})
