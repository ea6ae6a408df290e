"""Schedule propagation: from an op's schedule to its operands' (FS-2018 section 4.2, Table 1).

A rule maps (op, schedule of its results) to one entry per operand:

    Schedule    the operand is spread alike: block b needs exactly the elements that the schedule assigns to b
                (or, for an operand of which some elements are never read - slice, negative pad,
                dynamic_update_slice - no others than those)
    None        the whole operand is at hand in every block, which needs all of it or a part of it
    str         no schedule of the operand says it: the rule that refuses

Rules work on `coordinates`, the (dimension, chunk) pairs that tell blocks apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from jstitch.ir.graph import Op, Value
from jstitch.ir.ops.definition import OPS, OpClass
from jstitch.ir.schedule import ONE_BLOCK, Coordinates, Schedule, coordinates, from_coordinates, reshaped

Propagated = tuple[Schedule | None, ...] | str
Rule = Callable[[Op, Schedule], Propagated]


def propagate(op: Op, schedule: Schedule) -> Propagated:
    """The operands' schedules, or the rule that refuses. One block for everything always passes."""
    definition = OPS.get(op.name)
    if definition is None:
        return _refuse(op, schedule)
    rule = definition.propagate or _BY_NAME.get(op.name) or _BY_CLASS.get(definition.op_class, _refuse)
    if rule is not _refuse and not coordinates(op.results[0].shape, schedule):
        return (ONE_BLOCK,) * len(op.operands)
    return rule(op, schedule)


def _refuse(op: Op, schedule: Schedule) -> Propagated:
    return f"{op.name}: no schedule passes"


def _elementwise(op: Op, schedule: Schedule) -> Propagated:
    """Same shape, same schedule; a scalar operand is needed by all blocks."""
    shape = op.results[0].shape
    return tuple(schedule if v.shape == shape else None for v in op.operands)


def _mapped(op: Op, pairs: Coordinates, dims: Mapping[int, int], operand: Value) -> Schedule | str | None:
    """Coordinates moved to the operand's dimensions; `dims` says which (absent: not the operand's).

    All of them moved: the same spread, if it is a schedule. Some or none: blocks share elements.
    """
    moved = tuple((dims[d], c) for d, c in pairs if d in dims)
    if len(moved) < len(pairs):
        return None
    schedule = from_coordinates(operand.shape, moved)
    if schedule is None:
        return f"{op.name}: blocks cut dimensions {_dims(moved)} of {operand.shape}, neither first nor last"
    return schedule


def _dims(pairs: Coordinates) -> str:
    return "{" + ", ".join(str(d) for d, _ in pairs) + "}"


def _all(entries: Sequence[Schedule | str | None]) -> Propagated:
    for entry in entries:
        if isinstance(entry, str):
            return entry
    return tuple(e for e in entries if not isinstance(e, str))


def _fixed_dims(op: Op, schedule: Schedule, moved: Sequence[int], operand: Value) -> Schedule | str | None:
    """The operand's dimensions are the result's, but elements move within `moved`: no block may cut those."""
    pairs = coordinates(op.results[0].shape, schedule)
    cut = tuple(p for p in pairs if p[0] in moved)
    if cut:
        return f"{op.name}: blocks cut dimensions {_dims(cut)}, along which elements move"
    return _mapped(op, pairs, {d: d for d, _ in pairs}, operand)


def _reshape(op: Op, schedule: Schedule) -> Propagated:
    shape, (operand,) = op.result.shape, op.operands
    found = reshaped(shape, schedule, operand.shape)
    if found is None:
        return f"{op.name}: no schedule of {operand.shape} cuts it like {schedule} cuts {shape}"
    return (found,)


def _bitcast_convert(op: Op, schedule: Schedule) -> Propagated:
    """Between widths the last dimension appears or goes; blocks must not cut it."""
    shape, (operand,) = op.result.shape, op.operands
    if shape == operand.shape:
        return (schedule,)
    moved = range(min(len(shape), operand.tensor.rank), len(shape))
    return _all([_fixed_dims(op, schedule, moved, operand)])


def _transpose(op: Op, schedule: Schedule) -> Propagated:
    pairs = coordinates(op.result.shape, schedule)
    return _all([_mapped(op, pairs, dict(enumerate(op.attrs["permutation"])), op.operands[0])])


def _reduce(op: Op, schedule: Schedule) -> Propagated:
    """All reduced elements in one block: Row left of the reduced dimensions, Column right of them."""
    half = len(op.operands) // 2
    reduced = set(op.attrs["dimensions"])
    kept = [d for d in range(op.operands[0].tensor.rank) if d not in reduced]
    pairs = coordinates(op.results[0].shape, schedule)
    data = [_mapped(op, pairs, dict(enumerate(kept)), v) for v in op.operands[:half]]
    return _all([*data, *[None] * half])


def _reduce_window(op: Op, schedule: Schedule) -> Propagated:
    half = len(op.operands) // 2
    source, result = op.operands[0].shape, op.results[0].shape
    windowed = [d for d, size in enumerate(op.attrs["window_dimensions"]) if size > 1]
    moved = {*windowed, *(d for d, (a, b) in enumerate(zip(source, result, strict=True)) if a != b)}
    data = [_fixed_dims(op, schedule, sorted(moved), v) for v in op.operands[:half]]
    return _all([*data, *[None] * half])


def _broadcast_in_dim(op: Op, schedule: Schedule) -> Propagated:
    (operand,), shape = op.operands, op.result.shape
    dims = {d: k for k, d in enumerate(op.attrs["broadcast_dimensions"]) if operand.shape[k] == shape[d]}
    return _all([_mapped(op, coordinates(shape, schedule), dims, operand)])


def _slice(op: Op, schedule: Schedule) -> Propagated:
    (operand,) = op.operands
    moved = [d for d, (a, b) in enumerate(zip(operand.shape, op.result.shape, strict=True)) if a != b]
    return _all([_fixed_dims(op, schedule, moved, operand)])


def _pad(op: Op, schedule: Schedule) -> Propagated:
    attrs = (op.attrs["edge_padding_low"], op.attrs["edge_padding_high"], op.attrs["interior_padding"])
    moved = [d for d, padding in enumerate(zip(*attrs, strict=True)) if any(padding)]
    return _all([_fixed_dims(op, schedule, moved, op.operands[0]), None])


def _reverse(op: Op, schedule: Schedule) -> Propagated:
    return _all([_fixed_dims(op, schedule, op.attrs["dimensions"], op.operands[0])])


def _concatenate(op: Op, schedule: Schedule) -> Propagated:
    return _all([_fixed_dims(op, schedule, [op.attrs["dimension"]], v) for v in op.operands])


def _dynamic_slice(op: Op, schedule: Schedule) -> Propagated:
    """Along a full-sized dimension the start is clamped to 0; elsewhere any element may be needed."""
    operand, *starts = op.operands
    shape = op.result.shape
    dims = {d: d for d, size in enumerate(shape) if size == operand.shape[d]}
    return _all([_mapped(op, coordinates(shape, schedule), dims, operand), *[None] * len(starts)])


def _dynamic_update_slice(op: Op, schedule: Schedule) -> Propagated:
    operand, update, *starts = op.operands
    dims = {d: d for d, size in enumerate(update.shape) if size == operand.shape[d]}
    pairs = coordinates(op.result.shape, schedule)
    return _all([schedule, _mapped(op, pairs, dims, update), *[None] * len(starts)])


def _gather(op: Op, schedule: Schedule) -> Propagated:
    """The result's batch dimensions are the indices' dimensions; any element of the data may be needed,
    save along the batching dimensions."""
    data, indices = op.operands
    vector = op.attrs["index_vector_dim"]
    batch = [d for d in range(op.result.tensor.rank) if d not in op.attrs["offset_dims"]]
    spatial = [d for d in range(indices.tensor.rank) if d != vector]
    to_indices = dict(zip(batch, spatial, strict=True))
    paired = zip(op.attrs["start_indices_batching_dims"], op.attrs["operand_batching_dims"], strict=True)
    from_indices = dict(paired)
    to_data = {b: from_indices[s] for b, s in to_indices.items() if s in from_indices}
    pairs = coordinates(op.result.shape, schedule)
    return _all([_mapped(op, pairs, to_data, data), _mapped(op, pairs, to_indices, indices)])


def _batch_dot(op: Op, schedule: Schedule) -> Propagated:
    """Row with split_dim in the batch dimensions (the first ones of the result)."""
    lhs, rhs = op.operands
    lhs_batch, rhs_batch = op.attrs["lhs_batching_dimensions"], op.attrs["rhs_batching_dimensions"]
    pairs = coordinates(op.result.shape, schedule)
    cut = tuple(p for p in pairs if p[0] >= len(lhs_batch))
    if cut:
        return f"{op.name}: blocks cut dimensions {_dims(cut)}, only batch dimensions may be cut"
    dims = (dict(enumerate(lhs_batch)), dict(enumerate(rhs_batch)))
    return _all([_mapped(op, pairs, dims[0], lhs), _mapped(op, pairs, dims[1], rhs)])


_BY_CLASS: dict[OpClass, Rule] = {
    OpClass.LIGHT: _elementwise,
    OpClass.EXPENSIVE: _elementwise,
    OpClass.CONSTANT: lambda op, schedule: (),
}
_BY_NAME: dict[str, Rule] = {
    "stablehlo.reshape": _reshape,
    "stablehlo.bitcast_convert": _bitcast_convert,
    "stablehlo.transpose": _transpose,
    "stablehlo.reduce": _reduce,
    "stablehlo.reduce_window": _reduce_window,
    "stablehlo.broadcast_in_dim": _broadcast_in_dim,
    "stablehlo.slice": _slice,
    "stablehlo.pad": _pad,
    "stablehlo.reverse": _reverse,
    "stablehlo.concatenate": _concatenate,
    "stablehlo.dynamic_slice": _dynamic_slice,
    "stablehlo.dynamic_update_slice": _dynamic_update_slice,
    "stablehlo.gather": _gather,
    "stablehlo.dot_general": _batch_dot,
}
