"""Reductions over dimensions and over windows.

Both carry their combiner as a region of 2k scalar inputs (k accumulators, k elements). When it is exactly one
commutative op on its two arguments, `attrs['monoid']` names that op. Sums of floats are accumulated in
float64 and rounded once: the oracle is at least as exact as any kernel.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops.definition import Arrays, OpClass, OpDef, define
from jstitch.ir.ops.evaluate import evaluate

MONOIDS: dict[str, np.ufunc] = {
    "stablehlo.add": np.add,
    "stablehlo.multiply": np.multiply,
    "stablehlo.maximum": np.maximum,
    "stablehlo.minimum": np.minimum,
    "stablehlo.and": np.bitwise_and,
    "stablehlo.or": np.bitwise_or,
    "stablehlo.xor": np.bitwise_xor,
}


def monoid_of(combiner: Graph) -> str | None:
    """The name of the single commutative op that the combiner is, or None."""
    if len(combiner.ops) != 1 or len(combiner.inputs) != 2:
        return None
    (op,) = combiner.ops
    on_both = set(op.operands) == set(combiner.inputs) and len(op.operands) == 2
    return op.name if op.name in MONOIDS and on_both and combiner.outputs == op.results else None


def with_monoid(attrs: Mapping[str, Any], regions: Sequence[Graph]) -> dict[str, Any]:
    """The attributes of a reduction, `monoid` added when its combiner is one."""
    monoid = monoid_of(regions[0]) if regions else None
    return {**attrs, "monoid": monoid} if monoid else dict(attrs)


def _accumulator(x: np.ndarray) -> np.ndarray:
    """Floats in float64, so that the order of the sum does not show; others as they are."""
    if x.dtype.kind in "iub":
        return x
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def _ufunc(op: Op) -> np.ufunc | None:
    name = op.attrs.get("monoid")
    is_bool = op.operands[0].tensor.dtype.numpy == np.bool_
    return MONOIDS[name] if name and not (is_bool and name not in _LOGICAL) else None


_LOGICAL = ("stablehlo.and", "stablehlo.or", "stablehlo.xor", "stablehlo.maximum", "stablehlo.minimum")


def _reduce(op: Op, *arrays: np.ndarray) -> Arrays:
    k, dims = len(op.operands) // 2, tuple(op.attrs["dimensions"])
    ufunc, env = _ufunc(op), dict(zip(op.uses, arrays, strict=True))
    if ufunc is not None:
        x, init = map(_accumulator, arrays[:2])
        with np.errstate(all="ignore"):
            total = ufunc.reduce(x, axis=dims, initial=init[()], dtype=x.dtype)
        return (np.asarray(total).astype(op.result.tensor.dtype.numpy),)
    parts = [_flatten(x, dims) for x in arrays[:k]]
    shape = parts[0].shape[1:]
    inits = tuple(np.broadcast_to(x, shape) for x in arrays[k : 2 * k])
    folded = _fold(op.regions[0], parts, env)
    return inits if folded is None else _combine(op.regions[0], inits, folded, env)


def _flatten(x: np.ndarray, dims: tuple[int, ...]) -> np.ndarray:
    """The reduced dimensions as one leading dimension, in row-major order."""
    kept = [d for d in range(x.ndim) if d not in dims]
    count = int(np.prod([x.shape[d] for d in dims], dtype=np.int64))
    return x.transpose(*sorted(dims), *kept).reshape(count, *(x.shape[d] for d in kept))


def _combine(
    region: Graph, left: Sequence[np.ndarray], right: Sequence[np.ndarray], env: Mapping[Value, np.ndarray]
) -> Arrays:
    """The scalar combiner on whole arrays."""
    shape = np.broadcast_shapes(*(x.shape for x in (*left, *right)))
    return tuple(np.broadcast_to(x, shape) for x in evaluate(region, (*left, *right), env))


def _fold(region: Graph, parts: list[np.ndarray], env: Mapping[Value, np.ndarray]) -> Arrays | None:
    """Combine neighbours, halving until one is left; None for an empty reduction."""
    while len(parts[0]) > 1:
        even = len(parts[0]) // 2 * 2
        pairs = _combine(region, [x[0:even:2] for x in parts], [x[1:even:2] for x in parts], env)
        parts = [np.concatenate([p, x[even:]]) for p, x in zip(pairs, parts, strict=True)]
    return tuple(x[0] for x in parts) if len(parts[0]) else None


def _reduce_window(op: Op, *arrays: np.ndarray) -> Arrays:
    k, env = len(op.operands) // 2, dict(zip(op.uses, arrays, strict=True))
    ufunc = _ufunc(op)
    if ufunc is not None:
        arrays = tuple(map(_accumulator, arrays))
    padded = [_pad_window(op, x, init) for x, init in zip(arrays[:k], arrays[k : 2 * k], strict=True)]
    total: Arrays = tuple(np.broadcast_to(x, op.result.shape) for x in arrays[k : 2 * k])
    with np.errstate(all="ignore"):
        for offset in itertools.product(*map(range, _window(op, "window_dimensions"))):
            part = [_window_slice(op, x, offset) for x in padded]
            total = (ufunc(total[0], part[0]),) if ufunc else _combine(op.regions[0], total, part, env)
    return tuple(np.asarray(t).astype(v.tensor.dtype.numpy) for t, v in zip(total, op.results, strict=True))


def _window(op: Op, name: str) -> tuple[int, ...]:
    """A window attribute; absent ones are all 1."""
    return tuple(op.attrs.get(name) or (1,) * op.operands[0].tensor.rank)


def _pad_window(op: Op, x: np.ndarray, init: np.ndarray) -> np.ndarray:
    """The operand dilated and padded with the initial value; negative padding cuts."""
    for d, (low, high) in enumerate(op.attrs.get("padding") or ((0, 0),) * x.ndim):
        step = _window(op, "base_dilations")[d]
        size = max((x.shape[d] - 1) * step + 1, 0) if x.shape[d] else 0
        line = np.moveaxis(x, d, 0)
        wide = np.full((low + size + high + max(-low, 0) + max(-high, 0), *line.shape[1:]), init)
        start = max(low, 0)
        wide[start : start + size : step] = line
        wide = wide[max(-low, 0) : len(wide) - max(-high, 0)]
        x = np.moveaxis(wide, 0, d)
    return x


def _window_slice(op: Op, x: np.ndarray, offset: tuple[int, ...]) -> np.ndarray:
    """The element at `offset` of every window."""
    index = []
    for d, (k, count) in enumerate(zip(offset, op.result.shape, strict=True)):
        start, stride = k * _window(op, "window_dilations")[d], _window(op, "window_strides")[d]
        index.append(slice(start, start + (count - 1) * stride + 1 if count else start, stride))
    return x[tuple(index)]


define(OpDef("stablehlo.reduce", OpClass.REDUCTION, _reduce, {"dimensions": "dims"}))
define(
    OpDef(
        "stablehlo.reduce_window",
        OpClass.OPAQUE,  # known to passes by its attributes; no kernel has it yet
        _reduce_window,
        {
            "window_dimensions": "dims",
            "window_strides": "dims",
            "base_dilations": "dims",
            "window_dilations": "dims",
            "padding": "pairs",
        },
    )
)
