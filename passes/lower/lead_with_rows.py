"""Products with what the pattern makes as their left operand, whose rows are then the kernel's.

    %o = dot_general %v, %p   [b, d, q]      ->      %t = dot_general %p, %v;  %o = transpose %t   [b, q, d]

What only gives an input another shape is not made by the pattern: it is read in place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from jstitch.ir.graph import Op, Value
from jstitch.ir.ops import OpClass, build, lookup
from jstitch.ir.types import TensorType
from jstitch.passes.base.product_side import PRODUCT, SIDES, Side


def lead_with_rows(ops: Sequence[Op], given: Iterable[Value] = ()) -> list[Op]:
    """The ops, in program order. given: inputs that have rows; then only what is made of them has any."""
    made = set(given)
    by_given = bool(made)
    found: list[Op] = []
    for op in ops:
        is_view = lookup(op.name).op_class is OpClass.SHAPE and made.isdisjoint(op.operands)
        turns = op.name == PRODUCT and op.operands[0] not in made and op.operands[1] in made
        found += _turned(op) if turns else [op]
        if not (made.isdisjoint(op.operands) if by_given else is_view):
            made.update(op.results)
    return found


def _turned(op: Op) -> Iterator[Op]:
    left, right = Side.of(op, 1), Side.of(op, 0)
    batch, m, n = left.shape(left.batch), left.shape(left.free), right.shape(right.free)
    attrs = dict(op.attrs)
    for kind in ("batching", "contracting"):
        first, second = (f"{side}_{kind}_dimensions" for side in SIDES)
        attrs[first], attrs[second] = op.attrs[second], op.attrs[first]
    result = Value(TensorType((*batch, *m, *n), op.result.tensor.dtype))
    yield replace(op, operands=(left.value, right.value), results=(result,), attrs=attrs)
    b, rows = len(batch), len(batch) + len(m)
    back = build.transpose(result, (*range(b), *range(rows, rows + len(n)), *range(b, rows)))
    yield replace(back, results=op.results)
