"""Outputs that only have the dimensions of a row's value in another order are stored where they belong.

    %t [b, q, h, d] = transpose %o [b, h, q, d]      ->      %o; stored at the strides that %t has

So nobody makes the copy: a store may go anywhere, but a row of %t is of many rows of %o.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from jstitch.ir.graph import Op, Value
from jstitch.passes.lower.own_columns import Turned

TRANSPOSE, RESHAPE = "stablehlo.transpose", "stablehlo.reshape"


def store_turned(ops: Sequence[Op], outputs: Iterable[Value]) -> Mapping[Value, Turned]:
    """Outputs that are so, and what they are of."""
    makers = {v: op for op in ops for v in op.results}
    readers = {v for op in ops for v in op.operands}
    found = {v: _of(v, makers) for v in outputs if v not in readers}
    return {v: turned for v, turned in found.items() if turned is not None}


def _of(output: Value, makers: Mapping[Value, Op]) -> Turned | None:
    value = output
    while (op := makers.get(value)) is not None and op.name == RESHAPE and op.operands[0] in makers:
        value = op.operands[0]
    strides = [math.prod(value.shape[d + 1 :]) for d in range(value.tensor.rank)]
    start = value
    while (op := makers.get(value)) is not None and op.name == TRANSPOSE and op.operands[0] in makers:
        order = op.attrs["permutation"]
        strides = [strides[order.index(d)] for d in range(len(order))]
        value = op.operands[0]
    return None if value is start else Turned(value, tuple(strides), 0)
