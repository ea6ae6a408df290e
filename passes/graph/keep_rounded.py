"""Say which products must be rounded: something is added to them, and something else knows them rounded.

    %z = multiply %x, %y                                      %z = multiply %x, %y {rounded}
    %m = reduce_max %z                                 ->     %m = reduce_max %z
    %s = sqrt(subtract %m, %z)      NaN, now and then         %s = sqrt(subtract %m, %z)

A kernel computes %z where it is read, more than once. Processors fuse a product with what is added to it and
round once: fma(-x, y, m) is what the rounding of x * y has lost, of either sign, where m is one of these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import OpClass, lookup
from jstitch.ir.ops.convert import CONVERT
from jstitch.ir.ops.elementwise import PRODUCTS, ROUNDED, SUMS
from jstitch.ir.types import TensorType
from jstitch.passes.base.rewrite import map_frames

Users = Mapping[Value, Sequence[Op]]


def keep_rounded(graph: Graph) -> Graph:
    """The graph, where such products of floats say so."""
    return map_frames(graph, _marked)


def _marked(frame: Graph) -> Graph:
    users, outputs = frame.users(), set(frame.outputs)
    changes = {
        op: _rounded(op) for op in frame.ops if _is_product(op) and _is_known(op.result, users, outputs)
    }
    return replace(frame, ops=tuple(changes.get(op, op) for op in frame.ops)) if changes else frame


def _rounded(op: Op) -> Op:
    return replace(op, attrs={**op.attrs, ROUNDED: True})


def _is_product(op: Op) -> bool:
    return op.name in PRODUCTS and op.result.tensor.dtype.is_float


def _is_known(product: Value, users: Users, outputs: set[Value]) -> bool:
    """Whether it is added to, and known to others than sums."""
    values = list(_moved(product, users))
    readers = [op for v in values for op in users.get(v, ()) if not _moves(op)]
    fused = any(op.name in SUMS for op in readers)
    others = any(op.name not in SUMS and not _adds_up(op) for op in readers)
    return fused and (others or not outputs.isdisjoint(values))


def _moved(product: Value, users: Users) -> Iterator[Value]:
    """The product, and what has its elements elsewhere or in another type."""
    left, seen = [product], set[Value]()
    while left:
        v = left.pop()
        if v in seen:
            continue
        seen.add(v)
        yield v
        left += [op.result for op in users.get(v, ()) if _moves(op)]


def _moves(op: Op) -> bool:
    if len(op.results) != 1 or not isinstance(op.result.type, TensorType):
        return False
    to_float = op.name == CONVERT and op.result.tensor.dtype.is_float
    return to_float or (lookup(op.name).op_class is OpClass.SHAPE and len(op.operands) == 1)


def _adds_up(op: Op) -> bool:
    """Whether only a sum is made of it, of many."""
    if lookup(op.name).op_class is OpClass.CONTRACTION:
        return True
    return lookup(op.name).op_class is OpClass.REDUCTION and all(o.name in SUMS for o in op.regions[0].ops)
