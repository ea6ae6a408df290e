"""Contractions (left to XLA's own kernels) and scatter."""

from __future__ import annotations

import math

import numpy as np

from jstitch.ir.graph import Op
from jstitch.ir.ops.definition import Arrays, OpClass, OpDef, define
from jstitch.ir.ops.evaluate import evaluate


def _wide(x: np.ndarray) -> np.ndarray:
    if x.dtype.kind in "iub":
        return x.astype(np.int64)
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def _dot_general(op: Op, x: np.ndarray, y: np.ndarray) -> Arrays:
    """Result dimensions: batch, the rest of the left operand, the rest of the right one."""
    xb, yb = op.attrs["lhs_batching_dimensions"], op.attrs["rhs_batching_dimensions"]
    xc, yc = op.attrs["lhs_contracting_dimensions"], op.attrs["rhs_contracting_dimensions"]
    left, right = _matrices(_wide(x), xb, xc), _matrices(_wide(y), yb, yc)
    with np.errstate(all="ignore"):
        product = left @ right.transpose(0, 2, 1)
        return (product.reshape(op.result.shape).astype(op.result.tensor.dtype.numpy),)


def _matrices(x: np.ndarray, batch: tuple[int, ...], contracting: tuple[int, ...]) -> np.ndarray:
    """(batch, free, contracted)."""
    free = [d for d in range(x.ndim) if d not in (*batch, *contracting)]
    sizes = (math.prod(x.shape[d] for d in dims) for dims in (batch, free, contracting))
    return x.transpose(*batch, *free, *contracting).reshape(*sizes)


def _dot(op: Op, x: np.ndarray, y: np.ndarray) -> Arrays:
    with np.errstate(all="ignore"):
        return (np.asarray(_wide(x) @ _wide(y)).astype(op.result.tensor.dtype.numpy),)


def _scatter(op: Op, *arrays: np.ndarray) -> Arrays:
    """One update after the other, in row-major order; those out of bounds are dropped."""
    k = len(op.operands) // 2
    results, indices, updates = [x.copy() for x in arrays[:k]], arrays[k], arrays[k + 1 : 2 * k + 1]
    env = dict(zip(op.uses, arrays, strict=True))
    for at in np.ndindex(updates[0].shape):
        target = _scatter_target(op, indices, at)
        if all(0 <= i < n for i, n in zip(target, results[0].shape, strict=True)):
            old = [r[target] for r in results]
            new = evaluate(op.regions[0], [np.asarray(v) for v in (*old, *(u[at] for u in updates))], env)
            for result, value in zip(results, new, strict=True):
                result[target] = value
    return tuple(results)


def _scatter_target(op: Op, indices: np.ndarray, at: tuple[int, ...]) -> tuple[int, ...]:
    """The operand index that the update at `at` lands on."""
    window_dims, vector = op.attrs["update_window_dims"], op.attrs["index_vector_dim"]
    batch = [i for d, i in enumerate(at) if d not in window_dims]
    dropped = (*op.attrs["inserted_window_dims"], *op.attrs["input_batching_dims"])
    kept = [d for d in range(op.operands[0].tensor.rank) if d not in dropped]
    target = [0] * op.operands[0].tensor.rank
    for d, k in zip(kept, window_dims, strict=True):
        target[d] += at[k]
    for k, d in enumerate(op.attrs["scattered_dims_to_operand_dims"]):
        where = [*batch[:vector], k, *batch[vector:]] if vector < indices.ndim else batch
        target[d] += int(indices[tuple(where)])
    pairs = zip(op.attrs["input_batching_dims"], op.attrs["scatter_indices_batching_dims"], strict=True)
    for d, s in pairs:
        target[d] += batch[s - (s > vector)]
    return tuple(target)


define(
    OpDef(
        "stablehlo.dot_general",
        OpClass.CONTRACTION,
        _dot_general,
        {"dot_dimension_numbers": "dot", "precision_config": "text", "algorithm": "text"},
        flops=2.0,
    )
)
define(OpDef("stablehlo.dot", OpClass.CONTRACTION, _dot, {"precision_config": "text"}, flops=2.0))
define(
    OpDef(
        "stablehlo.convolution",
        OpClass.CONTRACTION,
        None,
        {
            "dimension_numbers": "conv",
            "window_strides": "dims",
            "padding": "pairs",
            "lhs_dilation": "dims",
            "rhs_dilation": "dims",
            "window_reversal": "bools",
            "feature_group_count": "i64",
            "batch_group_count": "i64",
            "precision_config": "text",
        },
        flops=2.0,
    )
)
define(
    OpDef(
        "stablehlo.select_and_scatter",
        OpClass.OPAQUE,
        None,
        {"window_dimensions": "dims", "window_strides": "dims", "padding": "pairs"},
    )
)
define(OpDef("stablehlo.sort", OpClass.OPAQUE, None, {"dimension": "i64", "is_stable": "bool"}))
define(
    OpDef(
        "stablehlo.scatter",
        OpClass.OPAQUE,  # canonicalization rewrites the one-hot form; the rest stays XLA's
        _scatter,
        {"scatter_dimension_numbers": "scatter", "indices_are_sorted": "bool", "unique_indices": "bool"},
    )
)
