"""A pattern behind the ops that take a part of its inputs.

%stack : 500x1024, %i    ->  dynamic_slice  ->  tanh        reads 1 row at each turn of a loop, not the stack
"""

from __future__ import annotations

from collections.abc import Collection

from jstitch.ir.graph import Op, Value
from jstitch.ir.ops import OpClass, lookup
from jstitch.passes.base.plan import FusionPattern
from jstitch.passes.base.remember import per_object


@per_object
def after_slices(pattern: FusionPattern) -> FusionPattern:
    """The pattern behind ops that take a part of its inputs: what they leave is not read."""
    given, known = set(pattern.inputs), set(pattern.outputs)
    ops: list[Op] = []
    for op in reversed(pattern.ops):
        if not known.isdisjoint(op.results) and not _takes_part(op, given):
            ops.append(op)
            known.update(op.uses)
    ops.reverse()
    made = {v for op in ops for v in op.results}
    inputs = dict.fromkeys(v for op in ops for v in op.uses if v not in made)
    outputs = tuple(v for v in pattern.outputs if v in made)
    return FusionPattern(tuple(ops), tuple(inputs), outputs, pattern.origin)


def _takes_part(op: Op, given: Collection[Value]) -> bool:
    moves = lookup(op.name).op_class in (OpClass.SHAPE, OpClass.INDEX) and bool(op.operands)
    return moves and op.operands[0] in given and op.results[0].tensor.size < op.operands[0].tensor.size
