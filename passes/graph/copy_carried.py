"""Make a copy, that a kernel can take over, of what comes into a loop's body and goes into a stack as it is.

    %s = dynamic_update_slice %stack, %h, %i    ->    %c = convert %h
                                                      %s = dynamic_update_slice %stack, %c, %i

The residuals of a scan's gradient are such values. With an op that makes the value, `absorb_updates` can give
the update to a kernel that runs anyway; XLA would launch one for it.
"""

from __future__ import annotations

from dataclasses import replace

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import OpClass, lookup
from jstitch.ir.ops.build import convert
from jstitch.ir.types import TensorType
from jstitch.passes.base.context import Context


def copy_carried(frame: Graph, context: Context) -> Graph:
    """The frame with a copy before every such update, where the target's kernels make updates."""
    if not context.profile.updates:
        return frame
    producers = frame.producers()
    ops: list[Op] = []
    for op in frame.ops:
        if lookup(op.name).in_place and _comes_in(op.operands[1], producers):
            copy = convert(op.operands[1], op.operands[1].tensor.dtype).located(op)
            ops.append(copy)
            op = replace(op, operands=(op.operands[0], copy.result, *op.operands[2:]))
        ops.append(op)
    return Graph(frame.inputs, tuple(ops), frame.outputs)


def _comes_in(value: Value, producers: dict[Value, Op]) -> bool:
    """Whether only reshapes, slices and the like stand between the value and the frame's inputs."""
    while value in producers:
        op = producers[value]
        if lookup(op.name).op_class not in (OpClass.SHAPE, OpClass.INDEX) or not op.operands:
            return False
        value = op.operands[0]
    return isinstance(value.type, TensorType)
