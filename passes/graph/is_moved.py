"""Whether a turn of a loop makes a carried value of its own elements at other places.

    %y = add (slice %x, 2), %x     return %y      ->  moved: no kernel that reads %x may write there
    %y = multiply %x, %x           return %y      ->  in place

XLA gives a loop's results the memory of what it carries. A kernel that makes a moved value writes elsewhere,
and XLA copies it back at the end of every turn, unless a second turn in the same body goes the way back.
"""

from __future__ import annotations

from collections.abc import Iterable

from jstitch.ir.graph import Op, Value
from jstitch.ir.ops import OpClass, lookup
from jstitch.ir.types import TensorType

COPIED = 1 << 16  # bytes: copying fewer is lost among what a turn's kernels take
IN_KERNELS = (OpClass.LIGHT, OpClass.EXPENSIVE, OpClass.SHAPE, OpClass.INDEX, OpClass.REDUCTION)


def is_moved(ops: Iterable[Op], old: Value, new: Value) -> bool:
    """Whether `new` is made of `old` by ops of kernels, of elements that are not all at their own place."""
    moved = {old: False}
    for op in ops:
        kind = lookup(op.name).op_class
        found = [moved[v] for v in op.operands if v in moved]
        if found and kind in IN_KERNELS:
            moves = not (kind.is_elementwise or lookup(op.name).in_place)
            moved.update(dict.fromkeys(op.results, moves or any(found)))
    return moved.get(new, False)


def is_large(value: Value) -> bool:
    """Whether a copy of it counts."""
    return isinstance(value.type, TensorType) and value.tensor.nbytes >= COPIED
