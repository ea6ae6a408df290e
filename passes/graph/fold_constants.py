"""Compute ops on constants now, with the interpreter.

    %c = constant dense<2.0> : 1024x1024           %1 = constant dense<0.5> : 1024x1024
    %d = constant dense<4.0> : 1024x1024     ->
    %1 = divide %c, %d

Splats are computed on one element whatever their size; dense results are bounded, so that no large constant
is ever made.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import OpClass, lookup
from jstitch.ir.ops.build import constant, splat, splat_value
from jstitch.ir.ops.evaluate import run_op
from jstitch.ir.types import TensorType
from jstitch.passes.base.rewrite import Producer, Replacement, rewrite

MAX_ELEMENTS = 256
_FOLDABLE = (OpClass.LIGHT, OpClass.EXPENSIVE, OpClass.SHAPE, OpClass.INDEX)


def fold_constants(graph: Graph, *, elements: int = MAX_ELEMENTS) -> Graph:
    """The graph with ops on constants replaced by constants. elements: of a dense one, at most."""
    return rewrite(graph, partial(_rule, most=elements))


def _rule(op: Op, producer: Producer, *, most: int) -> Replacement | None:
    if not op.operands or len(op.results) != 1 or lookup(op.name).op_class not in _FOLDABLE:
        return None
    if not isinstance(op.results[0].type, TensorType) or lookup(op.name).reference is None:
        return None
    makers = [producer(v) for v in op.operands]
    if any(m is None or lookup(m.name).op_class is not OpClass.CONSTANT for m in makers):
        return None
    folded = _splat(op, makers) or _dense(op, makers, most)
    return None if folded is None else Replacement(folded.results, (folded.located(op),))


def _splat(op: Op, makers: list[Op | None]) -> Op | None:
    """Elementwise on splats: one element."""
    values = [splat_value(m) for m in makers]
    if not lookup(op.name).op_class.is_elementwise or any(v is None for v in values):
        return None
    if any(v.shape not in ((), op.result.shape) for v in op.operands):
        return None
    (value,) = run_op(_scalar(op), [v for v in values if v is not None])
    # one wide number is several narrow ones
    return splat(op.result.tensor, value) if value.ndim == 0 else None


def _scalar(op: Op) -> Op:
    """The op on rank-0 operands."""
    operands = tuple(Value(TensorType((), v.tensor.dtype)) for v in op.operands)
    return replace(op, operands=operands, results=(Value(TensorType((), op.result.tensor.dtype)),))


def _dense(op: Op, makers: list[Op | None], most: int) -> Op | None:
    sizes = [v.tensor.size for v in (*op.operands, op.result)]
    if max(sizes) > most:
        return None
    (value,) = run_op(op, [m.attrs["value"] for m in makers if m is not None])
    array = np.ascontiguousarray(value).reshape(op.result.shape)
    return splat(op.result.tensor, array.flat[0]) if _is_uniform(array) else constant(array)


def _is_uniform(array: np.ndarray) -> bool:
    """Whether all elements have the same bits (-0 is not 0, and a NaN is itself)."""
    if not array.size:
        return False
    raw = array.reshape(-1).view(np.uint8).reshape(array.size, -1)
    return bool((raw == raw[0]).all())
