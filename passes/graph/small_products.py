"""Many products of small matrices, each as a multiplication and a sum.

    %s = dot_general %a, %b                            %p = multiply (broadcast %a), (broadcast %b)
                                               ->      %s = reduce add %p over k
    %a: [b, m, k], %b: [b, k, n], batch b              %p: [b, m, k, n]

XLA:CPU writes products out whose sums have up to three terms, and has vectors for eight rows, columns or
terms. In between it calls a library for each, which takes 400 ns: a hundred times the arithmetic. As ops they
are kernels' like all others, with the poses, covariances and what is made of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from jstitch.ir.graph import Op, Value
from jstitch.ir.ops import build
from jstitch.ir.ops.elementwise import PRODUCTS, SUMS
from jstitch.ir.types import DType, TensorType
from jstitch.passes.base.product_side import Side, is_product

MULTIPLY, SUM = PRODUCTS[0], SUMS[0]
LEAST, MOST = 4, 7  # terms, and rows or columns, of products that XLA:CPU has no code of its own for
MANY = 16  # of them


def small_products(op: Op) -> tuple[Op, ...] | None:
    """The ops, of which the last makes the product's result; None where they are few, or XLA is quick."""
    if not is_product(op, None):
        return None
    left, right = Side.of(op, 0), Side.of(op, 1)
    rows, terms, columns = left.size(left.free), left.size(left.contracted), right.size(right.free)
    called = LEAST <= terms <= MOST and LEAST <= max(rows, columns) <= MOST
    if not called or min(rows, columns) < 2 or left.size(left.batch) < MANY:
        return None
    batch, free, summed = len(left.batch), len(left.free), len(left.contracted)
    own = (*left.batch, *left.free, *left.contracted)
    shape = (*left.shape(own), *right.shape(right.free))
    dims = range(len(shape))
    first, a = _spread(left.value, own, shape, dims[: len(own)])
    places = (*dims[:batch], *dims[batch + free :])
    second, b = _spread(right.value, (*right.batch, *right.contracted, *right.free), shape, places)
    product = build.elementwise(MULTIPLY, a, b)
    zero = build.splat(TensorType((), product.result.tensor.dtype), 0.0)
    total = build.reduce(SUM, product.result, zero.result, dims[batch + free : batch + free + summed])
    rounded = build.convert(total.result, op.result.tensor.dtype)
    return (*first, *second, product, zero, total, rounded)


def _spread(
    v: Value, order: Sequence[int], shape: Sequence[int], places: Sequence[int]
) -> tuple[tuple[Op, ...], Value]:
    """Its dimensions in this order at these places of the shape, in f32 or wider."""
    turned = build.transpose(v, order)
    wide = build.convert(turned.result, max(v.tensor.dtype, DType.F32, key=lambda t: t.itemsize))
    spread = build.broadcast(wide.result, shape, places)
    return (turned, wide, spread), spread.result
