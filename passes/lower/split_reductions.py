"""Cut a reduction of outer and of few inner elements in two, so that both parts vectorise.

    sum over (1, 3) of [8, 784, 32, 8]   ->   sum over 1: [8, 32, 8];  sum over its dim 2: [8, 32]

As one nest its innermost loop is eight elements long, and every turn ends in a horizontal sum and a load and
store of the accumulator. In two, the first adds whole rows to a row of accumulators.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from jstitch.ir.graph import Op, Value
from jstitch.ir.ops import lookup
from jstitch.ir.ops.build import splat
from jstitch.ir.types import TensorType
from jstitch.passes.base.row_access import data_operands, is_reduction

SHORT = 64  # elements of an innermost loop that is worth its horizontal sum


def split_reductions(ops: Sequence[Op]) -> list[Op]:
    """The same ops, in order, such reductions replaced by two."""
    return [part for op in ops for part in _split(op)]


def _split(op: Op) -> tuple[Op, ...]:
    if not is_reduction(op) or op.attrs.get("monoid") is None:
        return (op,)
    shape, dims = op.operands[0].shape, set(op.attrs["dimensions"])
    kept = [d for d, n in enumerate(shape) if n > 1 and d not in dims]
    outer = [d for d in sorted(dims) if shape[d] > 1 and kept and d < kept[-1]]
    inner = math.prod(shape[d] for d in dims.difference(outer))
    if not outer or not 1 < inner < SHORT:
        return (op,)
    left = [d for d in range(len(shape)) if d not in outer]
    t = TensorType(tuple(shape[d] for d in left), op.results[0].tensor.dtype.compute)
    middle = tuple(Value(t) for _ in op.results)
    inits = op.operands[len(data_operands(op)) :]
    starts = tuple(identity_of(op, v) for v in op.results)
    first = replace(
        op,
        operands=(*data_operands(op), *(s.result for s in starts)),
        results=middle,
        attrs={**op.attrs, "dimensions": tuple(outer)},
    )
    rest = tuple(n for n, d in enumerate(left) if d in dims)
    return *starts, first, replace(op, operands=(*middle, *inits), attrs={**op.attrs, "dimensions": rest})


def identity_of(op: Op, v: Value) -> Op:
    """What the first part starts from: the initial value belongs to the second alone."""
    identity = lookup(op.attrs["monoid"]).identity
    assert identity is not None
    return splat(TensorType((), v.tensor.dtype), np.asarray(identity(v.tensor.dtype)))
