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
from jstitch.ir.types import DType, TensorType
from jstitch.passes.base.product_side import PRODUCT, Shape, Side
from jstitch.passes.base.row_access import ROWS
from jstitch.passes.lower.build_nest import CannotLowerError

MULTIPLY, ADD = "stablehlo.multiply", "stablehlo.add"


def is_product(op: Op) -> bool:
    """Whether kernels can make it: a product of f32 or bf16, summed in f32."""
    if op.name != PRODUCT or not all(v.tensor.size for v in op.operands):
        return False
    types = [v.tensor.dtype for v in op.operands]
    algorithm = op.attrs.get("algorithm") or None
    floats = {*types, op.result.tensor.dtype} <= {DType.F32, DType.BF16}
    return floats and algorithm in (None, _sums_in_f32(*types))


def _sums_in_f32(left: DType, right: DType) -> str:
    """The algorithm that kernels have: operands as they are, and one sum."""
    return (
        f"#stablehlo.dot_algorithm<lhs_precision_type = {left.value}, rhs_precision_type = {right.value},"
        " accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1,"
        " num_primitive_operations = 1, allow_imprecise_accumulation = false>"
    )


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
    types = {v.tensor.dtype for v in (*op.operands, *op.results)}
    summed = (
        types.pop() if len(types) == 1 else DType.F32
    )  # kernels hold bf16 as f32, and round what they store
    alike = left.size(left.free)
    spread: list[Value] = []
    for side, own, dims in (
        (left, (*lead, k), (*range(r), r + 1)),
        (right, (*lead[:b], n, k), (*range(b), r, r + 1)),
    ):
        shaped = list(_in_shape(side.value, (*side.batch, *side.free, *side.contracted), own))
        yield from shaped
        wide = build.broadcast(shaped[-1].result if shaped else side.value, (*lead, n, k), dims)
        made = [wide]
        if wide.result.tensor.dtype is not summed:
            made.append(_marked(build.convert(wide.result, summed), alike))
        yield from made
        spread.append(made[-1].result)
    product = _marked(build.elementwise(MULTIPLY, *spread), alike)
    zero = build.splat(TensorType((), summed), 0.0)
    yield from (product, zero)
    made = [_marked(build.reduce(ADD, product.result, zero.result, (r + 1,)), alike)]
    if op.result.tensor.dtype is not summed:
        made.append(build.convert(made[-1].result, op.result.tensor.dtype))
    if op.result.shape != made[-1].result.shape:
        made.append(build.reshape(made[-1].result, op.result.shape))
    yield from (*made[:-1], replace(made[-1], results=op.results))


def _marked(op: Op, alike: int) -> Op:
    """As a part of a product whose right operand so many rows share."""
    return replace(op, attrs={**op.attrs, ROWS: alike})


def _in_shape(x: Value, order: Sequence[int], shape: Shape) -> Iterator[Op]:
    """x with its dimensions in that order, and some of them as one: no op where it is so already."""
    if tuple(order) != tuple(range(len(order))):
        turned = build.transpose(x, order)
        x = turned.result
        yield turned
    if x.shape != shape:
        yield build.reshape(x, shape)
