"""What a broadcast repeats along some dimensions, in the shape without these.

%b = broadcast_in_dim %m [1, 64] -> [256, 64],  along 0    ->    reshape %m -> [64]
"""

from __future__ import annotations

from collections.abc import Collection

from jstitch.ir.graph import Op
from jstitch.ir.ops import build
from jstitch.ir.types import TensorType

BROADCAST = "stablehlo.broadcast_in_dim"


def is_broadcast_along(op: Op, dims: Collection[int]) -> bool:
    """Whether the op is a broadcast whose elements are the same along the dimensions."""
    if op.name != BROADCAST:
        return False
    where = zip(op.operands[0].shape, op.attrs["broadcast_dimensions"], strict=True)
    return all(n == 1 for n, d in where if d in dims)


def narrow(op: Op, dims: Collection[int], t: TensorType) -> list[Op]:
    """Ops, the last of type `t`, for a broadcast's elements without the dimensions; none: its operand."""
    ops: list[Op] = []
    kept = [d for d in range(op.result.tensor.rank) if d not in dims]
    found, where = op.operands[0], op.attrs["broadcast_dimensions"]
    shape = tuple(n for n, d in zip(found.shape, where, strict=True) if d in kept)
    if shape != found.shape:
        ops.append(build.reshape(found, shape))
        found = ops[-1].result
    at = tuple(kept.index(d) for d in where if d in kept)
    if shape != t.shape or at != tuple(range(t.rank)):
        ops.append(build.broadcast(found, t.shape, at))
    return ops
