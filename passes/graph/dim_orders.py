"""In which order an op's values have their dimensions when one of them has its own in another order.

%m [b, w] = reduce %x [b, w, c] over 2     %x in order (0, 2, 1): [b, c, w]     ->     %m in order (0, 1)
%y [b, h, w] = reshape %z [b, h * w]       %y in order (2, 0, 1): [h, w, b]     ->     %z in order (1, 0)

Dimensions of one element stay behind the one before them, so that a shape has one form in each order.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from jstitch.ir.graph import Op, Value
from jstitch.ir.ops import build, lookup
from jstitch.ir.ops.build import is_broadcast, is_reshape, splat_value
from jstitch.ir.types import TensorType
from jstitch.passes.base.row_access import data_operands, is_reduction
from jstitch.passes.graph.turn_region import Order, inverse, moved

CONSTANT, NUMBERED = "value", "iota_dimension"  # attributes of ops that read nothing


def settled(places: Sequence[int], shape: Sequence[int]) -> Order:
    """The order in which the wide dimensions are as they are there. places: of all dimensions."""
    wide = [d for d, n in enumerate(shape) if n != 1]
    first = wide[0] if wide else len(shape)
    line = [*range(first)]
    for d in sorted(wide, key=places.__getitem__):
        behind = next((other for other in wide if other > d), len(shape))
        line += range(d, behind)
    return inverse(line)


def is_in_place(places: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether nothing moves in memory. places: of the dimensions of the shape."""
    wide = [place for place, n in zip(places, shape, strict=True) if n != 1]
    return wide == sorted(wide)


def tied(op: Op, v: Value, order: Order) -> Mapping[Value, Order] | None:
    """The orders of the op's values when `v` is in that order; None where the op takes it only as it is."""
    if lookup(op.name).op_class.is_elementwise:
        values = (*op.operands, *op.results)
        if any(w.shape not in (v.shape, ()) for w in values):
            return None
        return {w: order for w in values if w.shape}
    if is_reduction(op):
        return _reduced(op, v, order)
    if v in op.results and not op.attrs.keys().isdisjoint((CONSTANT, NUMBERED)):
        return {v: order}
    if is_broadcast(op) and v is op.result:
        x, dims = op.operands[0], op.attrs["broadcast_dimensions"]
        return {v: order, x: settled([order[d] for d in dims], x.shape)}
    return _reshaped(op, v, order) if is_reshape(op) else None


def _reduced(op: Op, v: Value, order: Order) -> Mapping[Value, Order] | None:
    data = data_operands(op)
    if v not in data:
        return None
    kept = [place for d, place in enumerate(order) if d not in op.attrs["dimensions"]]
    return {w: order for w in data} | {w: settled(kept, w.shape) for w in op.results if w.shape}


def _reshaped(op: Op, v: Value, order: Order) -> Mapping[Value, Order] | None:
    """Dimensions that are one on either side, and stay together."""
    x, y = op.operands[0], op.result
    other = y if v is x else x
    groups = _alike(v.shape, other.shape)
    if groups is None:
        return None
    line = sorted((d for d, n in enumerate(v.shape) if n != 1), key=order.__getitem__)
    together = sorted(groups, key=lambda group: order[group[0][0]])
    if [d for own, _ in together for d in own] != line:
        return None
    places = [0] * len(other.shape)
    for place, d in enumerate(d for _, others in together for d in others):
        places[d] = place
    return {v: order, other: settled(places, other.shape)}


def _alike(one: Sequence[int], two: Sequence[int]) -> list[tuple[list[int], list[int]]] | None:
    """The least groups of wide dimensions that have as many elements in both shapes."""
    if 0 in one:
        return None
    ends = [[*itertools.accumulate(shape, lambda a, b: a * b)] for shape in (one, two)]
    common = sorted({*ends[0]} & {*ends[1]} | {1, math.prod(one)})
    found = []
    for low, high in itertools.pairwise(common):
        sides = [
            [d for d, end in enumerate(own) if low < end <= high and shape[d] != 1]
            for own, shape in zip(ends, (one, two), strict=True)
        ]
        found.append((sides[0], sides[1]))
    return found


def turn(op: Op, orders: Mapping[Value, Order], values: Mapping[Value, Value]) -> Iterator[Op]:
    """The op in the orders of its values. values: what each of them is in its own order."""
    operands = tuple(values.get(v, v) for v in op.operands)
    results = tuple(values.get(v, v) for v in op.results)
    if is_reduction(op):
        yield from _turned_reduction(op, operands, results, orders[op.operands[0]])
    elif is_broadcast(op):
        yield from _turned_broadcast(op, operands[0], results[0], orders)
    elif is_reshape(op):
        yield replace(build.reshape(operands[0], results[0].shape), results=results)
    elif CONSTANT in op.attrs:
        yield replace(_turned_constant(op, orders[op.result]), results=results)
    elif NUMBERED in op.attrs:
        dim = orders[op.result][op.attrs[NUMBERED]]
        yield replace(build.iota(results[0].tensor, dim), results=results)
    else:
        yield replace(op, operands=operands, results=results)


def _turned_reduction(
    op: Op, operands: tuple[Value, ...], results: Sequence[Value], order: Order
) -> Iterator[Op]:
    """With its rows in their new order; a reshape puts dimensions of one element where they belong."""
    kept = [d for d in inverse(order) if d not in op.attrs["dimensions"]]
    shape = tuple(op.operands[0].shape[d] for d in kept)
    dims = tuple(sorted(order[d] for d in op.attrs["dimensions"]))
    made = tuple(Value(TensorType(shape, v.tensor.dtype)) if v.shape != shape else v for v in results)
    yield replace(op, operands=operands, results=made, attrs={**op.attrs, "dimensions": dims})
    for own, v in zip(made, results, strict=True):
        if own is not v:
            yield replace(build.reshape(own, v.shape), results=(v,))


def _turned_broadcast(op: Op, x: Value, result: Value, orders: Mapping[Value, Order]) -> Iterator[Op]:
    """Of its wide dimensions alone: the others are repeated anyway."""
    old, order = op.operands[0], orders[op.result]
    wide = [d for d, n in enumerate(old.shape) if n != 1]
    places = sorted(order[op.attrs["broadcast_dimensions"][d]] for d in wide)
    narrow = build.reshape(x, tuple(n for n in x.shape if n != 1))
    yield narrow
    yield replace(build.broadcast(narrow.result, result.shape, places), results=(result,))


def _turned_constant(op: Op, order: Order) -> Op:
    kind, scalar = moved(op.result.tensor, order), splat_value(op)
    if scalar is not None:
        return build.splat(kind, scalar)
    return build.constant(np.ascontiguousarray(np.transpose(op.attrs[CONSTANT], inverse(order))))
