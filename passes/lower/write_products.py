"""Write a pattern's matrix products as multiplications and sums, over rows, columns and what is contracted.

    %s = dot_general %q, %k            %s' = reduce add (multiply (broadcast %q'), (broadcast %k'))
    %q: [b, m, k], %k: [b, n, k]  ->   over [b, m, n, k]; marked, with the rows that share a right operand

Whatever is known of rows, tiles and stages holds for these as for other reductions; how the innermost loops
are done, tile by tile in registers, is said later (tile_products).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from jstitch.ir.graph import Op, Value
from jstitch.ir.ops import OpClass, build, lookup
from jstitch.ir.types import DType
from jstitch.passes.base.product_side import PRODUCT, Shape, Side
from jstitch.passes.base.row_access import ROWS
from jstitch.passes.lower.build_nest import CannotLowerError

MULTIPLY, ADD = "stablehlo.multiply", "stablehlo.add"


def is_product(op: Op) -> bool:
    """Whether kernels can make it: a product of f32, however it is to be computed."""
    if op.name != PRODUCT or op.attrs.get("algorithm"):
        return False
    empty = not all(v.tensor.size for v in op.operands)
    return not empty and {v.tensor.dtype for v in (*op.operands, *op.results)} == {DType.F32}


def write_products(ops: Sequence[Op]) -> list[Op]:
    """The ops, in program order, without products. Raises CannotLowerError."""
    return [made for op in ops for made in (_written(op) if op.name == PRODUCT else (op,))]


def left_of(op: Op, producers: Mapping[Value, Op]) -> Value:
    """The left operand of a reduction that is a product, as it was before it got another shape."""
    multiply = producers[op.operands[0]]
    found = producers[multiply.operands[0]].operands[0]
    while found in producers and lookup(producers[found].name).op_class is OpClass.SHAPE:
        found = producers[found].operands[0]
    return found


def _written(op: Op) -> Iterator[Op]:
    if not is_product(op):
        raise CannotLowerError(f"no kernel makes a product of {op.operands[0].tensor.dtype.value}")
    left, right = Side.of(op, 0), Side.of(op, 1)
    k, n = left.size(left.contracted), right.size(right.free)
    lead = left.shape((*left.batch, *left.free))
    b, r = len(left.batch), len(lead)
    spread = []
    for side, own, dims in (
        (left, (*lead, k), (*range(r), r + 1)),
        (right, (*lead[:b], n, k), (*range(b), r, r + 1)),
    ):
        shaped = list(_in_shape(side.value, (*side.batch, *side.free, *side.contracted), own))
        yield from shaped
        spread.append(build.broadcast(shaped[-1].result if shaped else side.value, (*lead, n, k), dims))
    alike = {ROWS: left.size(left.free)}
    product = build.elementwise(MULTIPLY, *(s.result for s in spread))
    product = replace(product, attrs={**product.attrs, **alike})
    zero = build.splat(replace(op.result.tensor, shape=()), 0.0)
    total = build.reduce(ADD, product.result, zero.result, (r + 1,))
    total = replace(total, attrs={**total.attrs, **alike})
    yield from (*spread, product, zero)
    if op.result.shape == total.result.shape:
        yield replace(total, results=op.results)
    else:
        yield total
        yield replace(build.reshape(total.result, op.result.shape), results=op.results)


def _in_shape(x: Value, order: Sequence[int], shape: Shape) -> Iterator[Op]:
    """x with its dimensions in that order, and some of them as one: no op where it is so already."""
    if tuple(order) != tuple(range(len(order))):
        turned = build.transpose(x, order)
        x = turned.result
        yield turned
    if x.shape != shape:
        yield build.reshape(x, shape)
