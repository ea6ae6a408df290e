"""Write a pattern's matrix products as multiplications and sums, over rows, columns and what is contracted.

    %s = dot_general %q, %k            %s' = reduce add (multiply (broadcast %q'), (broadcast %k'))
    %q: [b, m, k], %k: [b, n, k]  ->   over [b, m, n, k]; marked, with the rows that share a right operand

Whatever is known of rows, tiles and stages holds for these as for other reductions; how the innermost loops
are done, tile by tile in registers, is said later (tile_products).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from jstitch.device_spec import DeviceSpec
from jstitch.ir.graph import Op, Value
from jstitch.ir.ops import OpClass, build, lookup
from jstitch.ir.ops.convert import CONVERT_TF32
from jstitch.ir.types import DType, TensorType
from jstitch.passes.base.product_side import PRODUCT, Shape, Side, is_product
from jstitch.passes.base.row_access import FACTORS, ROWS
from jstitch.passes.lower.build_nest import CannotLowerError

MULTIPLY, ADD, CONVERT = "stablehlo.multiply", "stablehlo.add", "stablehlo.convert"
TRANSPOSE = "stablehlo.transpose"


def write_products(ops: Sequence[Op], device: DeviceSpec | None = None) -> list[Op]:
    """The ops, in program order, without products. Raises CannotLowerError.

    For a GPU, left operands that the ops make are as narrow as their type says.
    """
    found: list[Op] = []
    makers: dict[Value, Op] = {}
    for op in ops:
        makers |= dict.fromkeys(op.results, op)
        if op.name != PRODUCT:
            found.append(op)
            continue
        if not is_product(op, device):
            raise CannotLowerError(f"no kernel makes a product of {op.operands[0].tensor.dtype.value}")
        is_wide = device is not None and _is_wide(op.operands[0], makers)
        found += _written(op, is_wide, _alike(op, makers), device is not None)
    return found


def _alike(op: Op, makers: Mapping[Value, Op]) -> int:
    """Rows that share the right operand, and are at one distance from each other in the left one."""
    left = Side.of(op, 0)
    v, where = left.value, left.free
    while (maker := makers.get(v)) is not None and maker.name == TRANSPOSE:
        v, where = maker.operands[0], tuple(maker.attrs["permutation"][d] for d in where)
    if v in makers and lookup(makers[v].name).op_class is not OpClass.SHAPE:
        return left.size(left.free)  # a tile, whose rows are in order
    rows, below = 1, v.tensor.rank
    for d in (d for d in reversed(where) if v.shape[d] > 1):
        in_order = d < below and all(v.shape[other] == 1 for other in range(d + 1, below))
        if rows > 1 and not in_order:
            break
        rows, below = rows * v.shape[d], d
    return rows


def _is_wide(v: Value, makers: Mapping[Value, Op]) -> bool:
    """Whether a kernel would hold its elements wider than their type says."""
    v = _unshaped(v, makers)
    return v in makers and makers[v].name != CONVERT and v.tensor.dtype is not DType.F32


def _unshaped(v: Value, makers: Mapping[Value, Op]) -> Value:
    """The value that it is another shape of."""
    while (op := makers.get(v)) is not None and lookup(op.name).op_class is OpClass.SHAPE:
        if len(op.operands) > 1:
            break
        (v,) = op.operands
    return v


def left_of(op: Op, producers: Mapping[Value, Op]) -> Value:
    """The left operand of a reduction that is a product, as it was before it got another shape."""
    multiply = producers[op.operands[0]]
    return _unshaped(producers[multiply.operands[0]].operands[0], producers)


def _written(op: Op, is_wide: bool, alike: int, on_gpu: bool) -> Iterator[Op]:
    """is_wide: whether the left operand is to be rounded. alike: rows that are multiplied alike.

    Tensor cores multiply f32 as tf32.
    """
    left, right = Side.of(op, 0), Side.of(op, 1)
    k, n = left.size(left.contracted), right.size(right.free)
    lead = left.shape((*left.batch, *left.free))
    b, r = len(left.batch), len(lead)
    types = {v.tensor.dtype for v in (*op.operands, *op.results)}
    summed = types.pop() if len(types) == 1 else DType.F32  # kernels hold narrow floats as f32
    if is_wide:
        rounded = build.convert(left.value, left.value.tensor.dtype)
        yield rounded
        left = replace(left, value=rounded.result)
    by_columns = alike == 1 and not on_gpu and _has_columns_last(right)
    contracted = r if by_columns else r + 1
    domain = (*lead, k, n) if by_columns else (*lead, n, k)
    mark = _unmarked if by_columns else partial(_marked, alike=alike)
    spread: list[Value] = []
    for side, own, order, dims in (
        (left, (*lead, k), (*left.batch, *left.free, *left.contracted), (*range(r), contracted)),
        (right, (*lead[:b], *domain[r:]), _order(right, by_columns), (*range(b), r, r + 1)),
    ):
        shaped = list(_in_shape(side.value, order, own))
        yield from shaped
        wide = build.broadcast(shaped[-1].result if shaped else side.value, domain, dims)
        made = [wide]
        if wide.result.tensor.dtype is not summed:
            made.append(mark(build.convert(wide.result, summed)))
        elif summed is DType.F32 and on_gpu:
            made.append(mark(build.elementwise(CONVERT_TF32, wide.result)))
        yield from made
        spread.append(made[-1].result)
    product = mark(build.elementwise(MULTIPLY, *spread))
    zero = build.splat(TensorType((), summed), 0.0)
    yield from (product, zero)
    total = build.reduce(ADD, product.result, zero.result, (contracted,))
    made = [total if by_columns else _marked(total, alike, left.value.tensor.dtype)]
    if op.result.tensor.dtype is not summed:
        made.append(build.convert(made[-1].result, op.result.tensor.dtype))
    if op.result.shape != made[-1].result.shape:
        made.append(build.reshape(made[-1].result, op.result.shape))
    yield from (*made[:-1], replace(made[-1], results=op.results))


def _has_columns_last(right: Side) -> bool:
    """Whether its columns are neighbours in memory: a row that is alone adds up rows of them."""
    return bool(right.free) and right.free[-1] == right.value.tensor.rank - 1


def _order(right: Side, by_columns: bool) -> tuple[int, ...]:
    inner = (right.contracted, right.free) if by_columns else (right.free, right.contracted)
    return (*right.batch, *inner[0], *inner[1])


def _unmarked(op: Op) -> Op:
    return op


def _marked(op: Op, alike: int, factors: DType | None = None) -> Op:
    """As a part of a product of which so many rows are multiplied alike. factors: of its sum."""
    return replace(op, attrs={**op.attrs, ROWS: alike, **({FACTORS: factors} if factors else {})})


def _in_shape(x: Value, order: Sequence[int], shape: Shape) -> Iterator[Op]:
    """x with its dimensions in that order, and some of them as one: no op where it is so already."""
    if tuple(order) != tuple(range(len(order))):
        turned = build.transpose(x, order)
        x = turned.result
        yield turned
    if x.shape != shape:
        yield build.reshape(x, shape)
