"""Ops that move elements by positions known only at run time: dynamic slices and gathers.

stablehlo.dynamic_slice(x, s) of size 4   ->   result[i] = x[clamp(s, 0, n - 4) + i]
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import numpy as np

from jstitch.ir.graph import Op
from jstitch.ir.index import Atom, Case, Condition, Dynamic, Index, add, clamp, const, mul, var
from jstitch.ir.ops.definition import Arrays, OpClass, OpDef, define

Cases = tuple[Case, ...]
Indices = tuple[Index, ...]
T = TypeVar("T")


def _clamped(starts: Iterable[np.ndarray], shape: Iterable[int], sizes: Iterable[int]) -> list[int]:
    return [min(max(int(s), 0), n - k) for s, n, k in zip(starts, shape, sizes, strict=True)]


def _start(operand: int, size: int, extent: int, index: Indices = ()) -> Index:
    read: Atom = Dynamic(operand, index)
    return clamp(var(read), 0, extent - size)


def _dynamic_slice(op: Op, x: np.ndarray, *starts: np.ndarray) -> Arrays:
    sizes = op.attrs["slice_sizes"]
    first = _clamped(starts, x.shape, sizes)
    return (x[tuple(slice(s, s + k) for s, k in zip(first, sizes, strict=True))],)


def _dynamic_slice_cases(op: Op, index: Indices) -> Cases:
    shape, sizes = op.operands[0].shape, op.attrs["slice_sizes"]
    starts = (_start(k + 1, size, extent) for k, (size, extent) in enumerate(zip(sizes, shape, strict=True)))
    return (Case(0, tuple(add(s, i) for s, i in zip(starts, index, strict=True))),)


def _update_slice(op: Op, x: np.ndarray, update: np.ndarray, *starts: np.ndarray) -> Arrays:
    result = x.copy()
    first = _clamped(starts, x.shape, update.shape)
    result[tuple(slice(s, s + k) for s, k in zip(first, update.shape, strict=True))] = update
    return (result,)


def _update_slice_cases(op: Op, index: Indices) -> Cases:
    shape, sizes = op.operands[0].shape, op.operands[1].shape
    if 0 in sizes:
        return (Case(0, index),)
    source, conditions = [], []
    for k, (i, size, extent) in enumerate(zip(index, sizes, shape, strict=True)):
        position = add(i, mul(_start(k + 2, size, extent), -1))
        source.append(position)
        condition = Condition(position, 0, size)
        conditions += [] if condition.always else [condition]
    case = Case(1, tuple(source), tuple(conditions))
    return (case, Case(0, index)) if conditions else (case,)


def _gather(op: Op, x: np.ndarray, indices: np.ndarray) -> Arrays:
    """Straight from the specification, with every result index at once (open grids)."""
    grid = np.ogrid[tuple(slice(n) for n in op.result.shape)]
    at = list(grid) if isinstance(grid, list | tuple) else [grid]

    def read(position: list[np.ndarray]) -> np.ndarray:
        return indices[tuple(np.broadcast_arrays(*position))] if position else indices

    source = [np.zeros((1,) * len(at), np.int64)] * x.ndim
    batch = [a for d, a in enumerate(at) if d not in op.attrs["offset_dims"]]
    for d, k in zip(_window_dims(op), op.attrs["offset_dims"], strict=True):
        source[d] = source[d] + at[k]
    for k, d in enumerate(op.attrs["start_index_map"]):
        value = read(_index_position(op, batch, np.full((1,) * len(at), k)))
        limit = x.shape[d] - op.attrs["slice_sizes"][d]
        source[d] = source[d] + np.clip(value, 0, limit).astype(np.int64)
    for d, k in _batching(op):
        source[d] = source[d] + batch[k]
    return (np.broadcast_to(x[tuple(np.broadcast_arrays(*source))] if x.ndim else x, op.result.shape),)


def _window_dims(op: Op) -> list[int]:
    """Operand dimensions that `offset_dims` of the result run over."""
    dropped = (*op.attrs["collapsed_slice_dims"], *op.attrs["operand_batching_dims"])
    return [d for d in range(op.operands[0].tensor.rank) if d not in dropped]


def _index_position(op: Op, batch: list[T], component: T) -> list[T]:
    """Where one component of the start index stands in `start_indices`."""
    at = op.attrs["index_vector_dim"]
    return [*batch[:at], component, *batch[at:]] if at < op.operands[1].tensor.rank else batch


def _batching(op: Op) -> list[tuple[int, int]]:
    """(operand dimension, number of the batch index that it follows)."""
    at = op.attrs["index_vector_dim"]
    pairs = zip(op.attrs["operand_batching_dims"], op.attrs["start_indices_batching_dims"], strict=True)
    return [(d, s - (s > at)) for d, s in pairs]


def _gather_cases(op: Op, index: Indices) -> Cases:
    shape, sizes = op.operands[0].shape, op.attrs["slice_sizes"]
    source = [const(0)] * len(shape)
    batch = [i for d, i in enumerate(index) if d not in op.attrs["offset_dims"]]
    for d, k in zip(_window_dims(op), op.attrs["offset_dims"], strict=True):
        source[d] = index[k]
    for k, d in enumerate(op.attrs["start_index_map"]):
        where = tuple(_index_position(op, batch, const(k)))
        source[d] = add(source[d], _start(1, sizes[d], shape[d], where))
    for d, k in _batching(op):
        source[d] = add(source[d], batch[k])
    return (Case(0, tuple(source)),)


define(
    OpDef(
        "stablehlo.dynamic_slice",
        OpClass.INDEX,
        _dynamic_slice,
        {"slice_sizes": "dims"},
        cases=_dynamic_slice_cases,
        flops=0.0,
    )
)
define(
    OpDef(
        "stablehlo.dynamic_update_slice",
        OpClass.INDEX,
        _update_slice,
        cases=_update_slice_cases,
        in_place=True,
        flops=0.0,
    )
)
define(
    OpDef(
        "stablehlo.gather",
        OpClass.INDEX,
        _gather,
        {"dimension_numbers": "gather", "slice_sizes": "dims", "indices_are_sorted": "bool"},
        cases=_gather_cases,
        flops=0.0,
    )
)
