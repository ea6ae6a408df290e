"""Shape and dtype rules, by op class and, where one class has several, by op.

`complaints(op, definition)` yields one sentence per broken rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from jstitch.ir.graph import Op, Value
from jstitch.ir.ops.definition import OpClass, OpDef
from jstitch.ir.types import DType, OpaqueType, TensorType

Complaints = Iterator[str]
_ANY_COUNT = -1


def complaints(op: Op, definition: OpDef) -> Complaints:
    """Every rule of the table that the op breaks; attributes first, since the rules read them."""
    missing = [name for name in _REQUIRED.get(op.name, ()) if name not in op.attrs]
    if missing:
        yield f"attribute '{missing[0]}' is missing"
        return
    if definition.op_class is OpClass.CONTROL:
        yield from _control(op)
        return
    if any(isinstance(v.type, OpaqueType) for v in (*op.operands, *op.results)):
        yield "expected tensors, found an operand or result of another type"
        return
    yield from _arity(op)
    if definition.op_class.is_elementwise:
        yield from _elementwise(op, definition)
    elif op.name in _EXPECTED:
        yield from _expected_result(op)


def _arity(op: Op) -> Complaints:
    expected = _ARITY.get(op.name, _ANY_COUNT)
    if expected != _ANY_COUNT and len(op.operands) != expected:
        yield f"expected {expected} operands, found {len(op.operands)}"


def _elementwise(op: Op, definition: OpDef) -> Complaints:
    if len(op.results) != 1 or not op.operands:
        yield f"expected operands and one result, found {len(op.operands)} and {len(op.results)}"
        return
    result = op.result.tensor
    rank_free = op.name in ("stablehlo.select", "stablehlo.clamp")
    shapes = [v.shape for v in op.operands if not (rank_free and v.tensor.rank == 0)] or [()]
    if op.name != "stablehlo.bitcast_convert" and any(s != result.shape for s in shapes):
        yield f"expected operands of shape {result.shape}, found {shapes}"
    yield from _elementwise_dtypes(op, definition, result.dtype)


def _elementwise_dtypes(op: Op, definition: OpDef, result: DType) -> Complaints:
    first, *rest = [v.tensor.dtype for v in op.operands]
    if op.name == "stablehlo.select":
        if first is not DType.BOOL:
            yield f"expected a predicate of i1, found {first.value}"
        first, *rest = rest or [first]
    if any(d is not first for d in rest):
        yield f"expected operands of one dtype, found {[d.value for d in (first, *rest)]}"
    if definition.result_dtype == "bool" and result is not DType.BOOL:
        yield f"expected a result of i1, found {result.value}"
    if definition.result_dtype == "operands" and result is not first:
        yield f"expected a result of {first.value}, found {result.value}"


def _expected_result(op: Op) -> Complaints:
    try:
        expected = _EXPECTED[op.name](op)
    except (IndexError, ValueError) as error:
        yield f"attributes do not fit the operands: {error}"
        return
    for number, (value, type_) in enumerate(zip(op.results, expected, strict=False)):
        if value.type != type_:
            yield f"expected result {number} of type {type_}, found {value.type}"
    if len(op.results) != len(expected):
        yield f"expected {len(expected)} results, found {len(op.results)}"


def _like(op: Op, shape: tuple[int, ...]) -> list[TensorType]:
    return [TensorType(shape, op.operands[0].tensor.dtype)]


def _broadcast(op: Op) -> list[TensorType]:
    dims, shape = op.attrs["broadcast_dimensions"], op.result.shape
    for size, dim in zip(op.operands[0].shape, dims, strict=True):
        if size not in (1, shape[dim]):
            raise ValueError(f"size {size} does not broadcast to dimension {dim} of {shape}")
    if len(set(dims)) != len(dims):
        raise ValueError(f"broadcast_dimensions {dims} repeat")
    return _like(op, shape)


def _reshape(op: Op) -> list[TensorType]:
    if op.operands[0].tensor.size != op.result.tensor.size:
        raise ValueError(f"{op.operands[0].type} and {op.result.type} differ in size")
    return _like(op, op.result.shape)


def _transpose(op: Op) -> list[TensorType]:
    permutation, shape = op.attrs["permutation"], op.operands[0].shape
    if sorted(permutation) != list(range(len(shape))):
        raise ValueError(f"{permutation} is not a permutation of {len(shape)} dimensions")
    return _like(op, tuple(shape[d] for d in permutation))


def _slice(op: Op) -> list[TensorType]:
    ranges = zip(
        op.operands[0].shape,
        op.attrs["start_indices"],
        op.attrs["limit_indices"],
        op.attrs["strides"],
        strict=True,
    )
    shape = []
    for size, start, limit, step in ranges:
        if not 0 <= start <= limit <= size or step < 1:
            raise ValueError(f"[{start}:{limit}:{step}] is not a range of a dimension of size {size}")
        shape.append(-(-(limit - start) // step))
    return _like(op, tuple(shape))


def _concatenate(op: Op) -> list[TensorType]:
    dim, first = op.attrs["dimension"], op.operands[0].tensor
    for value in op.operands:
        other = value.tensor
        if other.dtype is not first.dtype or _without(other.shape, dim) != _without(first.shape, dim):
            raise ValueError(f"{other} does not line up with {first}")
    total = sum(v.shape[dim] for v in op.operands)
    return _like(op, (*first.shape[:dim], total, *first.shape[dim + 1 :]))


def _without(shape: tuple[int, ...], dim: int) -> tuple[int, ...]:
    return shape[:dim] + shape[dim + 1 :]


def _pad(op: Op) -> list[TensorType]:
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    edges = zip(op.operands[0].shape, *(op.attrs[n] for n in names), strict=True)
    shape = (n + low + high + max(n - 1, 0) * interior for n, low, high, interior in edges)
    return _like(op, tuple(max(n, 0) for n in shape))


def _reverse(op: Op) -> list[TensorType]:
    return _like(op, op.operands[0].shape)


def _dynamic_slice(op: Op) -> list[TensorType]:
    return _like(op, tuple(op.attrs["slice_sizes"]))


def _reduce(op: Op) -> list[TensorType]:
    dims, k = op.attrs["dimensions"], len(op.operands) // 2
    if len(op.regions) != 1 or len(op.regions[0].inputs) != 2 * k:
        raise ValueError(f"expected one combiner of {2 * k} inputs")
    return [_reduced(v, dims) for v in op.operands[:k]]


def _reduced(value: Value, dims: tuple[int, ...]) -> TensorType:
    shape = (n for d, n in enumerate(value.shape) if d not in dims)
    return TensorType(tuple(shape), value.tensor.dtype)


def _iota(op: Op) -> list[TensorType]:
    if not 0 <= op.attrs["iota_dimension"] < op.result.tensor.rank:
        raise ValueError(f"{op.result.type} has no dimension {op.attrs['iota_dimension']}")
    return [op.result.tensor]


def _constant(op: Op) -> list[TensorType]:
    value: np.ndarray = op.attrs["value"]
    return [TensorType(value.shape, DType.of(value.dtype))]


def _dot_general(op: Op) -> list[TensorType]:
    sizes = []
    for value, side in zip(op.operands, ("lhs", "rhs"), strict=True):
        batch = op.attrs[f"{side}_batching_dimensions"]
        contracted = op.attrs[f"{side}_contracting_dimensions"]
        free = [n for d, n in enumerate(value.shape) if d not in (*batch, *contracted)]
        sizes.append(([value.shape[d] for d in batch], [value.shape[d] for d in contracted], free))
    (batch, contracted, left), (batch2, contracted2, right) = sizes
    if batch != batch2 or contracted != contracted2:
        raise ValueError(f"sizes {batch}, {contracted} and {batch2}, {contracted2} differ")
    return [TensorType((*batch, *left, *right), op.result.tensor.dtype)]


def _gather(op: Op) -> list[TensorType]:
    """Window sizes at `offset_dims`, the indices' batch sizes at the other dimensions."""
    dropped = (*op.attrs["collapsed_slice_dims"], *op.attrs["operand_batching_dims"])
    window = [n for d, n in enumerate(op.attrs["slice_sizes"]) if d not in dropped]
    indices, vector = op.operands[1].shape, op.attrs["index_vector_dim"]
    batch = [n for d, n in enumerate(indices) if d != vector]
    offset_dims = op.attrs["offset_dims"]
    if len(offset_dims) != len(window):
        raise ValueError(f"offset_dims {offset_dims} do not hold a window of {len(window)} dimensions")
    sizes = dict(zip(offset_dims, window, strict=True))
    rest = iter(batch)
    return _like(op, tuple(sizes[d] if d in sizes else next(rest) for d in range(len(batch) + len(window))))


def _control(op: Op) -> Complaints:
    """Region inputs and outputs line up with the op's own."""
    carried = [v.type for v in op.operands] if op.name == "stablehlo.while" else []
    results = [v.type for v in op.results]
    for number, region in enumerate(op.regions):
        is_condition = op.name == "stablehlo.while" and number == 0
        if [v.type for v in region.inputs] != carried:
            yield f"inputs of region {number} differ in type or number from the carried values"
        expected = [TensorType((), DType.BOOL)] if is_condition else results
        if [v.type for v in region.outputs] != expected:
            yield f"outputs of region {number} differ in type or number from the results"


_EXPECTED: dict[str, Callable[[Op], list[TensorType]]] = {
    "stablehlo.broadcast_in_dim": _broadcast,
    "stablehlo.reshape": _reshape,
    "stablehlo.transpose": _transpose,
    "stablehlo.slice": _slice,
    "stablehlo.concatenate": _concatenate,
    "stablehlo.pad": _pad,
    "stablehlo.reverse": _reverse,
    "stablehlo.dynamic_slice": _dynamic_slice,
    "stablehlo.dynamic_update_slice": _reverse,
    "stablehlo.reduce": _reduce,
    "stablehlo.iota": _iota,
    "stablehlo.constant": _constant,
    "stablehlo.dot_general": _dot_general,
    "stablehlo.gather": _gather,
}
_ARITY = {
    "stablehlo.select": 3,
    "stablehlo.clamp": 3,
    "stablehlo.pad": 2,
    "stablehlo.gather": 2,
    "stablehlo.dot_general": 2,
    "stablehlo.iota": 0,
    "stablehlo.constant": 0,
    "stablehlo.compare": 2,
    **dict.fromkeys(("stablehlo.reshape", "stablehlo.transpose", "stablehlo.slice"), 1),
    **dict.fromkeys(("stablehlo.broadcast_in_dim", "stablehlo.reverse", "stablehlo.convert"), 1),
}
_REQUIRED = {
    "stablehlo.broadcast_in_dim": ("broadcast_dimensions",),
    "stablehlo.transpose": ("permutation",),
    "stablehlo.slice": ("start_indices", "limit_indices", "strides"),
    "stablehlo.concatenate": ("dimension",),
    "stablehlo.pad": ("edge_padding_low", "edge_padding_high", "interior_padding"),
    "stablehlo.reverse": ("dimensions",),
    "stablehlo.dynamic_slice": ("slice_sizes",),
    "stablehlo.reduce": ("dimensions",),
    "stablehlo.iota": ("iota_dimension",),
    "stablehlo.constant": ("value",),
    "stablehlo.compare": ("comparison_direction",),
    "stablehlo.gather": (
        "offset_dims",
        "collapsed_slice_dims",
        "operand_batching_dims",
        "slice_sizes",
        "index_vector_dim",
    ),
    "stablehlo.dot_general": ("lhs_batching_dimensions", "lhs_contracting_dimensions"),
}
