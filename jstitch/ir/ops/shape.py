"""Ops that move elements by a static rule: broadcasts, reshapes, slices, pads, concatenations, iota.

stablehlo.slice [1:7:2]   ->   result[i] = operand[2 * i + 1]
"""

from __future__ import annotations

import math

import numpy as np

from jstitch.ir.graph import Op
from jstitch.ir.index import (
    Case,
    Condition,
    Index,
    add,
    const,
    delinearize,
    floordiv,
    linearize,
    mul,
)
from jstitch.ir.ops.definition import Arrays, OpClass, OpDef, define
from jstitch.ir.ops.numerics import result_dtype

Cases = tuple[Case, ...]
Indices = tuple[Index, ...]


def _broadcast(op: Op, x: np.ndarray) -> Arrays:
    shape = [1] * op.result.tensor.rank
    for size, dim in zip(x.shape, op.attrs["broadcast_dimensions"], strict=True):
        shape[dim] = size
    order = sorted(range(x.ndim), key=lambda d: int(op.attrs["broadcast_dimensions"][d]))
    return (np.broadcast_to(x.transpose(*order).reshape(shape), op.result.shape),)


def _broadcast_cases(op: Op, index: Indices) -> Cases:
    dims, sizes = op.attrs["broadcast_dimensions"], op.operands[0].shape
    return (Case(0, tuple(index[d] if n != 1 else const(0) for d, n in zip(dims, sizes, strict=True))),)


def _reshape(op: Op, x: np.ndarray) -> Arrays:
    return (x.reshape(op.result.shape),)


def _reshape_cases(op: Op, index: Indices) -> Cases:
    shape = op.operands[0].shape
    if not math.prod(shape):
        return (Case(0, (const(0),) * len(shape)),)
    return (Case(0, delinearize(linearize(index, op.result.shape), shape)),)


def _transpose(op: Op, x: np.ndarray) -> Arrays:
    return (x.transpose(op.attrs["permutation"]),)


def _transpose_cases(op: Op, index: Indices) -> Cases:
    source = [const(0)] * len(index)
    for i, d in zip(index, op.attrs["permutation"], strict=True):
        source[d] = i
    return (Case(0, tuple(source)),)


def _ranges(op: Op) -> list[tuple[int, int, int]]:
    names = ("start_indices", "limit_indices", "strides")
    return list(zip(*(op.attrs[name] for name in names), strict=True))


def _slice(op: Op, x: np.ndarray) -> Arrays:
    return (x[tuple(slice(*r) for r in _ranges(op))],)


def _slice_cases(op: Op, index: Indices) -> Cases:
    source = (add(mul(i, step), const(start)) for i, (start, _, step) in zip(index, _ranges(op), strict=True))
    return (Case(0, tuple(source)),)


def _reverse(op: Op, x: np.ndarray) -> Arrays:
    return (np.flip(x, op.attrs["dimensions"]),)


def _reverse_cases(op: Op, index: Indices) -> Cases:
    dims, shape = op.attrs["dimensions"], op.result.shape
    source = list(index)
    for d in dims:
        source[d] = add(mul(index[d], -1), const(shape[d] - 1))
    return (Case(0, tuple(source)),)


def _concatenate(op: Op, *parts: np.ndarray) -> Arrays:
    return (np.concatenate(parts, op.attrs["dimension"]),)


def _concatenate_cases(op: Op, index: Indices) -> Cases:
    dim, start, cases = op.attrs["dimension"], 0, []
    parts = [(k, v.shape[dim]) for k, v in enumerate(op.operands) if v.shape[dim]] or [(0, 0)]
    for number, size in parts:
        source = (*index[:dim], add(index[dim], const(-start)), *index[dim + 1 :])
        cases.append(Case(number, source, (Condition(index[dim], start, start + size),)))
        start += size
    last = cases.pop()
    return (*cases, Case(last.operand, last.index))


def _edges(op: Op) -> list[tuple[int, int, int]]:
    """(low, high, interior) of each dimension of a pad."""
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    return list(zip(*(op.attrs[name] for name in names), strict=True))


def _pad(op: Op, x: np.ndarray, value: np.ndarray) -> Arrays:
    result = np.full(op.result.shape, value)
    source, target = [], []
    for size, total, (low, _, interior) in zip(x.shape, result.shape, _edges(op), strict=True):
        step = interior + 1
        first = max(0, -(low // step)) if low < 0 else 0
        last = min(size, (total - 1 - low) // step + 1)
        source.append(slice(first, max(last, first)))
        target.append(slice(low + first * step, max(low + (max(last, first) - 1) * step + 1, 0), step))
    if all(s.stop > s.start for s in source):
        result[tuple(target)] = x[tuple(source)]
    return (result,)


def _pad_cases(op: Op, index: Indices) -> Cases:
    shape, edges = op.operands[0].shape, _edges(op)
    if not math.prod(shape):
        return (Case(1, ()),)
    conditions, source = [], []
    for i, size, (low, _, interior) in zip(index, shape, edges, strict=True):
        step = interior + 1
        condition = Condition(i, low, low + (size - 1) * step + 1, step)
        source.append(floordiv(add(i, const(-low)), step))
        conditions += [] if condition.always else [condition]
    case = Case(0, tuple(source), tuple(conditions))
    return (case, Case(1, ())) if conditions else (case,)


def _iota(op: Op) -> Arrays:
    shape, dim = op.result.shape, op.attrs["iota_dimension"]
    line = np.arange(shape[dim]).astype(result_dtype(op))
    return (np.broadcast_to(line.reshape([-1 if d == dim else 1 for d in range(len(shape))]), shape),)


def _iota_position(op: Op, index: Indices) -> Index:
    return index[int(op.attrs["iota_dimension"])]


def _constant(op: Op) -> Arrays:
    return (op.attrs["value"],)


define(
    OpDef(
        "stablehlo.broadcast_in_dim",
        OpClass.SHAPE,
        _broadcast,
        {"broadcast_dimensions": "dims"},
        cases=_broadcast_cases,
        flops=0.0,
    )
)
define(OpDef("stablehlo.reshape", OpClass.SHAPE, _reshape, cases=_reshape_cases, flops=0.0))
define(
    OpDef(
        "stablehlo.transpose",
        OpClass.SHAPE,
        _transpose,
        {"permutation": "dims"},
        cases=_transpose_cases,
        flops=0.0,
    )
)
define(
    OpDef(
        "stablehlo.slice",
        OpClass.SHAPE,
        _slice,
        {"start_indices": "dims", "limit_indices": "dims", "strides": "dims"},
        cases=_slice_cases,
        flops=0.0,
    )
)
define(
    OpDef(
        "stablehlo.reverse",
        OpClass.SHAPE,
        _reverse,
        {"dimensions": "dims"},
        cases=_reverse_cases,
        flops=0.0,
    )
)
define(
    OpDef(
        "stablehlo.concatenate",
        OpClass.SHAPE,
        _concatenate,
        {"dimension": "i64"},
        cases=_concatenate_cases,
        flops=0.0,
    )
)
define(
    OpDef(
        "stablehlo.pad",
        OpClass.SHAPE,
        _pad,
        {"edge_padding_low": "dims", "edge_padding_high": "dims", "interior_padding": "dims"},
        cases=_pad_cases,
        flops=0.0,
    )
)
define(
    OpDef(
        "stablehlo.iota",
        OpClass.SHAPE,
        _iota,
        {"iota_dimension": "i64"},
        position=_iota_position,
        flops=0.0,
    )
)
define(OpDef("stablehlo.constant", OpClass.CONSTANT, _constant, {"value": "dense"}, flops=0.0))
