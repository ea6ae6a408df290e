"""Number elements by one iota where a sum of iotas, each times a stride, does.

    %n = add (multiply (iota 0), 4096), (iota 1)  : 8x4096xui64
    %l = convert %n : ui32;   %h = convert (shift_right_logical %n, 32) : ui32
->
    %l = reshape (iota 0 : 32768xui32);   %h = 0

JAX numbers so the elements that it draws random bits for. A kernel that takes the elements one after another
has the number without a division, and so in vectors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import lookup
from jstitch.ir.ops.build import broadcast, iota, reshape, splat, splat_value
from jstitch.ir.types import TensorType
from jstitch.passes.base.rewrite import Producer, Replacement, rewrite

SUM, CONVERT = "stablehlo.add", "stablehlo.convert"
MOST = 1 << 31  # elements: what all integers can count that are taken


Strides = dict[int, int]
"""What an integer that is 0 at the first element grows by along each dimension."""


def linearize_iotas(graph: Graph) -> Graph:
    """The graph with such sums replaced. They keep every bit: all is done modulo the same power of two."""
    known: dict[Value, Strides] = {}

    def rule(op: Op, producer: Producer) -> Replacement | None:
        strides = _strides(op, known, producer)
        if strides is None:
            return None
        made = _written(op, strides)
        known[op.result if made is None else made.values[0]] = strides
        return made

    return rewrite(graph, rule)


def _written(op: Op, strides: Strides) -> Replacement | None:
    """The op in another form; None where it has the best."""
    if not strides:
        return _replaced(splat(op.result.tensor, 0))
    return _numbered(op.result, strides) if op.name in (SUM, CONVERT) else None


def _strides(op: Op, known: Mapping[Value, Strides], producer: Producer) -> Strides | None:
    """None where they are not known, as of what starts elsewhere."""
    if len(op.results) != 1 or not _counts(op.results[0].type):
        return None
    if lookup(op.name).position is not None:
        return {op.attrs["iota_dimension"]: 1}
    match op.name, [known.get(v) for v in op.operands]:
        case "stablehlo.convert", [dict(a)] if _is_small(a, op.result.tensor):
            return a
        case "stablehlo.shift_right_logical", [dict(a), None]:
            return _shifted(a, op.result.tensor, splat_value(producer(op.operands[1])))
        case "stablehlo.add", [dict(a), dict(b)]:
            return {d: a.get(d, 0) + b.get(d, 0) for d in {*a, *b}}
        case "stablehlo.multiply", [dict(a), None]:
            return _scaled(a, splat_value(producer(op.operands[1])))
        case "stablehlo.multiply", [None, dict(b)]:
            return _scaled(b, splat_value(producer(op.operands[0])))
    return None


def _counts(type_: Any) -> bool:
    """Whether no number of an element is too large for it."""
    if not isinstance(type_, TensorType) or not type_.dtype.is_integer:
        return False
    return type_.dtype.itemsize >= 4 and 0 < type_.size < MOST


def _scaled(strides: Strides, factor: np.ndarray | None) -> Strides | None:
    return None if factor is None else {d: n * int(factor) for d, n in strides.items()}


def _shifted(strides: Strides, type_: TensorType, bits: np.ndarray | None) -> Strides | None:
    """None but where nothing is left."""
    gone = bits is not None and MOST <= 1 << int(bits) < 1 << 8 * type_.dtype.itemsize
    return {} if gone and _is_small(strides, type_) else None


def _is_small(strides: Strides, type_: TensorType) -> bool:
    """Whether no element is negative, or too large for any integer."""
    most = sum(n * (type_.shape[d] - 1) for d, n in strides.items())
    return min(strides.values(), default=0) >= 0 and most < MOST


def _numbered(value: Value, strides: Strides) -> Replacement | None:
    """The value as one iota, if it numbers the elements of dimensions beside each other."""
    type_ = value.tensor
    dims = [d for d, n in sorted(strides.items()) if n and type_.shape[d] > 1]
    if len(dims) < 2:
        return _replaced(iota(type_, dims[0])) if dims and strides[dims[0]] == 1 else None
    block = range(dims[0], dims[-1] + 1)
    shape = tuple(type_.shape[d] for d in block)
    rows = {d: math.prod(shape[d - block.start + 1 :]) for d in block if type_.shape[d] > 1}
    if {d: strides[d] for d in dims} != rows:
        return None
    flat = iota(TensorType((math.prod(shape),), type_.dtype), 0)
    shaped = reshape(flat.result, shape)
    if shape == type_.shape:
        return _replaced(flat, shaped)
    return _replaced(flat, shaped, broadcast(shaped.result, type_.shape, tuple(block)))


def _replaced(*ops: Op) -> Replacement:
    return Replacement(ops[-1].results, ops)
