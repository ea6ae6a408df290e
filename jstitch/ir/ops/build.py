"""Constructors of ops, for passes and tests: the result type is worked out from the operands.

broadcast(x, (4, 8), (0,))   ->   Op stablehlo.broadcast_in_dim with result tensor<4x8x...>
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops.control import TURN_END, TURNED, UNSET
from jstitch.ir.types import DType, TensorType


def op(
    name: str,
    operands: Sequence[Value],
    result: TensorType,
    attrs: Mapping[str, Any] | None = None,
    loc: str = "",
) -> Op:
    """One op with one result."""
    return Op(name, tuple(operands), (Value(result),), dict(attrs or {}), loc=loc)


def constant(array: np.ndarray) -> Op:
    """A dense constant; a splat when all strides are 0."""
    array = np.asarray(array)
    return op("stablehlo.constant", (), TensorType(array.shape, DType.of(array.dtype)), {"value": array})


def splat(type_: TensorType, value: object) -> Op:
    """One value everywhere: nothing of the tensor's size is made."""
    return constant(np.broadcast_to(np.asarray(value, type_.dtype.numpy), type_.shape))


def unset(type_: TensorType) -> Op:
    """Memory that nobody has written."""
    return op(UNSET, (), type_)


def turn_end(x: Value) -> Op:
    """The value as the next turn reads it, in no kernel with what made it."""
    return op(TURN_END, (x,), x.tensor)


def turned(x: Value) -> Op:
    """A product as XLA is to leave it."""
    return op(TURNED, (x,), x.tensor)


def iota(type_: TensorType, dim: int) -> Op:
    return op("stablehlo.iota", (), type_, {"iota_dimension": dim})


def elementwise(name: str, *operands: Value, dtype: DType | None = None) -> Op:
    """An elementwise op shaped like its last operand, with that operand's dtype unless given."""
    last = operands[-1].tensor
    return op(name, operands, TensorType(last.shape, dtype or last.dtype))


def add(a: Value, b: Value) -> Op:
    return elementwise("stablehlo.add", a, b)


def logical_and(a: Value, b: Value) -> Op:
    return elementwise("stablehlo.and", a, b)


def convert(x: Value, dtype: DType) -> Op:
    return elementwise("stablehlo.convert", x, dtype=dtype)


def compare(direction: str, a: Value, b: Value) -> Op:
    """direction: EQ NE LT LE GT GE."""
    attrs = {"comparison_direction": direction}
    return op("stablehlo.compare", (a, b), TensorType(a.shape, DType.BOOL), attrs)


def select(predicate: Value, on_true: Value, on_false: Value) -> Op:
    return elementwise("stablehlo.select", predicate, on_true, on_false)


def reshape(x: Value, shape: Sequence[int]) -> Op:
    return op("stablehlo.reshape", (x,), TensorType(tuple(shape), x.tensor.dtype))


def broadcast(x: Value, shape: Sequence[int], dims: Sequence[int]) -> Op:
    attrs = {"broadcast_dimensions": tuple(dims)}
    return op("stablehlo.broadcast_in_dim", (x,), TensorType(tuple(shape), x.tensor.dtype), attrs)


def transpose(x: Value, permutation: Sequence[int]) -> Op:
    shape = tuple(x.shape[d] for d in permutation)
    attrs = {"permutation": tuple(permutation)}
    return op("stablehlo.transpose", (x,), TensorType(shape, x.tensor.dtype), attrs)


def slice_(x: Value, start: Sequence[int], limit: Sequence[int], strides: Sequence[int]) -> Op:
    sizes = (max(-(-(b - a) // s), 0) for a, b, s in zip(start, limit, strides, strict=True))
    attrs = {"start_indices": tuple(start), "limit_indices": tuple(limit), "strides": tuple(strides)}
    return op("stablehlo.slice", (x,), TensorType(tuple(sizes), x.tensor.dtype), attrs)


def dynamic_slice(x: Value, starts: Sequence[Value], sizes: Sequence[int]) -> Op:
    attrs = {"slice_sizes": tuple(sizes)}
    return op("stablehlo.dynamic_slice", (x, *starts), TensorType(tuple(sizes), x.tensor.dtype), attrs)


def pad(x: Value, value: Value, low: Sequence[int], high: Sequence[int], interior: Sequence[int]) -> Op:
    """Negative low and high cut; `interior` elements go between neighbours."""
    edges = zip(x.shape, low, high, interior, strict=True)
    shape = tuple(a + n + b + max(n - 1, 0) * k for n, a, b, k in edges)
    attrs = {
        "edge_padding_low": tuple(low),
        "edge_padding_high": tuple(high),
        "interior_padding": tuple(interior),
    }
    return op("stablehlo.pad", (x, value), TensorType(shape, x.tensor.dtype), attrs)


def concatenate(parts: Sequence[Value], dim: int) -> Op:
    first = parts[0].tensor
    shape = list(first.shape)
    shape[dim] = sum(v.shape[dim] for v in parts)
    return op("stablehlo.concatenate", parts, TensorType(tuple(shape), first.dtype), {"dimension": dim})


def reverse(x: Value, dims: Sequence[int]) -> Op:
    return op("stablehlo.reverse", (x,), x.tensor, {"dimensions": tuple(dims)})


def reduce(name: str, x: Value, init: Value, dims: Sequence[int]) -> Op:
    """A reduction whose combiner is the binary op `name`."""
    scalar = TensorType((), x.tensor.dtype)
    inputs = (Value(scalar), Value(scalar))
    body = op(name, inputs, scalar)
    shape = tuple(n for d, n in enumerate(x.shape) if d not in dims)
    attrs = {"dimensions": tuple(dims), "monoid": name}
    result = Value(TensorType(shape, x.tensor.dtype))
    return Op("stablehlo.reduce", (x, init), (result,), attrs, (Graph(inputs, (body,), body.results),))


def batch_dot(lhs: Value, rhs: Value) -> Op:
    """(*batch, m, k) @ (*batch, k, n) -> (*batch, m, n)."""
    rank = lhs.tensor.rank
    batch = tuple(range(rank - 2))
    attrs = {
        "lhs_batching_dimensions": batch,
        "rhs_batching_dimensions": batch,
        "lhs_contracting_dimensions": (rank - 1,),
        "rhs_contracting_dimensions": (rank - 2,),
    }
    shape = (*lhs.shape[:-1], rhs.shape[-1])
    return op("stablehlo.dot_general", (lhs, rhs), TensorType(shape, lhs.tensor.dtype), attrs)


def is_splat(array: np.ndarray) -> bool:
    """Whether a constant is one value everywhere without looking at its elements."""
    return array.size > 0 and (math.prod(array.shape) == 1 or not any(array.strides))


def splat_value(op_: Op | None) -> np.ndarray | None:
    """The rank-0 value of a constant that is a splat, else None."""
    if op_ is None or op_.name != "stablehlo.constant":
        return None
    array: np.ndarray = op_.attrs["value"]
    return array.reshape(-1)[:1].reshape(()) if is_splat(array) else None


def is_broadcast(op_: Op) -> bool:
    return op_.name == "stablehlo.broadcast_in_dim"


def is_reshape(op_: Op) -> bool:
    return op_.name == "stablehlo.reshape"


def is_concatenate(op_: Op) -> bool:
    return op_.name == "stablehlo.concatenate"


def keeps_order(op_: Op) -> bool:
    """Whether the op moves its operand's elements, and neighbours stay neighbours."""
    return is_broadcast(op_) or is_reshape(op_) or op_.name in ("stablehlo.slice", "stablehlo.pad")


def takes_part(op_: Op) -> bool:
    """Whether its result is a part of its first operand."""
    return op_.name in ("stablehlo.slice", "stablehlo.dynamic_slice", "stablehlo.gather")


def grows(op_: Op) -> bool:
    """Whether the op repeats its operand's elements."""
    return is_broadcast(op_) and op_.operands[0].tensor.size < op_.result.tensor.size
