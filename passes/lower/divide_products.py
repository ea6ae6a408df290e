"""Divide what a product makes of a softmax's rows, not the rows themselves.

    %p = divide %e, (broadcast %l);  %o = dot_general %p, %v
->  %u = dot_general %e, %v;         %o = divide %u, (broadcast %l)       for %e = exp(%s - max of %s's rows)

A row of %o has as many elements as %v has columns, one of %p as many as %v has rows: a pass over the longer
ones, and their tile, are gone. The numbers are at most 1 either way, so only sums of values near
the largest float overflow that did not before. Rows of bf16 are divided in f32, by what they add up to before
that is rounded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from jstitch.ir.graph import Op, Value
from jstitch.ir.ops import OpClass, build, lookup
from jstitch.ir.types import DType, TensorType
from jstitch.passes.base.product_side import PRODUCT, Side
from jstitch.passes.base.row_access import data_operands, is_reduction

DIVIDE, EXP, SUBTRACT, MAXIMUM, CONVERT = (
    f"stablehlo.{name}" for name in ("divide", "exponential", "subtract", "maximum", "convert")
)


def divide_products(ops: Sequence[Op], outputs: Collection[Value]) -> list[Op]:
    """The ops, in program order; divisions of which somebody else reads the result stay."""
    if all(op.name != PRODUCT for op in ops):
        return list(ops)
    makers = {v: op for op in ops for v in op.results}
    readers: dict[Value, int] = dict.fromkeys(outputs, 1)
    for op in ops:
        for v in op.operands:
            readers[v] = readers.get(v, 0) + 1
    found: list[Op] = []
    for op in ops:
        found += _divided_after(op, makers, readers) if op.name == PRODUCT else [op]
    used = {v for op in found for v in op.operands}.union(outputs)
    gone = {op for op in ops if op.name in (DIVIDE, CONVERT) and used.isdisjoint(op.results)}
    return [op for op in found if op not in gone]


def _divided_after(op: Op, makers: Mapping[Value, Op], readers: Mapping[Value, int]) -> Iterator[Op]:
    left, right = Side.of(op, 0), op.operands[1]
    division = _own(left.value, makers, readers)
    if division is not None and division.name == CONVERT:
        division = _own(division.operands[0], makers, readers)
    if division is None or division.name != DIVIDE:
        yield op
        return
    above, below = division.operands
    repeated = all(_repeats(below, d, makers) for d in left.contracted)
    floats = above.tensor.dtype in (DType.F32, DType.BF16, DType.F16)
    if not (repeated and floats) or above.shape != below.shape or not _is_soft(above, makers):
        yield op
        return
    before = [] if above.type == left.value.type else [build.convert(above, left.value.tensor.dtype)]
    rows = before[0].result if before else above
    total = replace(op, operands=(rows, right), results=(Value(TensorType(op.result.shape, DType.F32)),))
    exact = _in_f32(below, makers)
    spread = [*exact, *_spread(op, left, exact[0].result if exact else below)]
    quotient = build.elementwise(DIVIDE, total.result, spread[-1].result)
    made = [quotient]
    if op.result.tensor.dtype is not DType.F32:
        made.append(build.convert(quotient.result, op.result.tensor.dtype))
    yield from (*before, total, *spread, *made[:-1], replace(made[-1], results=op.results))


def _own(v: Value, makers: Mapping[Value, Op], readers: Mapping[Value, int]) -> Op | None:
    """What makes the value, if nobody else reads it."""
    return makers.get(v) if readers[v] == 1 else None


def _repeats(v: Value, dim: int, makers: Mapping[Value, Op]) -> bool:
    """Whether the elements along a dimension are one, because it was broadcast."""
    op = makers.get(v)
    if op is None or op.name != "stablehlo.broadcast_in_dim":
        return False
    dims = op.attrs["broadcast_dimensions"]
    return dim not in dims or op.operands[0].shape[dims.index(dim)] == 1


def _is_soft(v: Value, makers: Mapping[Value, Op]) -> bool:
    """Whether it is the exponential of what is left of a row after subtracting its largest element."""
    op = makers.get(v)
    difference = makers.get(op.operands[0]) if op is not None and op.name == EXP else None
    if difference is None or difference.name != SUBTRACT:
        return False
    row, largest = _before_shapes(difference.operands[0], makers), difference.operands[1]
    todo = [largest]
    while todo:  # shapes between, and a bound from below, leave what is subtracted as large
        maker = makers.get(todo.pop())
        if maker is None:
            continue
        if is_reduction(maker) and maker.attrs.get("monoid") == MAXIMUM:
            (data,) = data_operands(maker)
            if _before_shapes(data, makers) is row:
                return True
            continue
        if lookup(maker.name).op_class is OpClass.SHAPE or maker.name == MAXIMUM:
            todo += maker.operands
    return False


def _before_shapes(v: Value, makers: Mapping[Value, Op]) -> Value:
    while (op := makers.get(v)) is not None and op.name == "stablehlo.reshape":
        (v,) = op.operands
    return v


def _in_f32(v: Value, makers: Mapping[Value, Op]) -> list[Op]:
    """What makes it so, of f32 if it was that before it was rounded and broadcast: no op where it is so."""
    if v.tensor.dtype is DType.F32:
        return []
    spread = makers[v]
    rounding = makers.get(spread.operands[0])
    if rounding is None or rounding.name != CONVERT or rounding.operands[0].tensor.dtype is not DType.F32:
        return [build.convert(v, DType.F32)]
    return [build.broadcast(rounding.operands[0], v.shape, spread.attrs["broadcast_dimensions"])]


def _spread(op: Op, side: Side, below: Value) -> Iterator[Op]:
    """What divides, in the shape of the product's result: one element for all that were contracted."""
    kept = (*side.batch, *side.free)
    first = build.slice_(
        below,
        [0] * below.tensor.rank,
        [below.shape[d] if d in kept else 1 for d in range(below.tensor.rank)],
        [1] * below.tensor.rank,
    )
    order = build.transpose(first.result, (*kept, *side.contracted))
    flat = build.reshape(order.result, side.shape(kept))
    yield from (first, order, flat, build.broadcast(flat.result, op.result.shape, range(len(kept))))
