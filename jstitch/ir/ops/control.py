"""Control flow: `while`, `case` and `if`, whose regions are frames of their own; the stitched kernel; the
boundaries between kernels, the user's and those between turns that were written out; memory that nobody has
written; collectives that do not wait for one another.
"""

from __future__ import annotations

import numpy as np

from jstitch.ir.graph import Op
from jstitch.ir.ops.definition import Arrays, OpClass, OpDef, define
from jstitch.ir.ops.evaluate import captured, evaluate
from jstitch.ir.types import DType

WHILE = "stablehlo.while"
KERNEL = "jstitch.kernel"
NO_FUSE = "jstitch.no_fuse"
TURN_END = "jstitch.turn_end"  # a boundary, too: what a turn carries on to the next one in the same body
TURNED = "jstitch.turned"  # a product that XLA is not to turn back: it leaves as XLA's own barrier
BOUNDARIES = (NO_FUSE, TURN_END, TURNED)  # ops that compute nothing, and that no kernel goes across
UNSET = "jstitch.unset"
COLLECTIVES = "jstitch.collectives"
BARRIER = "stablehlo.optimization_barrier"  # what NO_FUSE is in a program that was not stitched yet


def _while(op: Op, *arrays: np.ndarray) -> Arrays:
    """Regions: (condition, body), both over the carried values."""
    condition, body = op.regions
    env, carry = captured(op, arrays), tuple(arrays[: len(op.operands)])
    while bool(evaluate(condition, carry, env)[0]):
        carry = evaluate(body, carry, env)
    return carry


def _case(op: Op, branch: np.ndarray, *arrays: np.ndarray) -> Arrays:
    """An index out of range takes the last branch."""
    number, last = int(branch), len(op.regions) - 1
    region = op.regions[number if 0 <= number <= last else last]
    return evaluate(region, (), captured(op, (branch, *arrays)))


def _if(op: Op, predicate: np.ndarray, *arrays: np.ndarray) -> Arrays:
    return evaluate(op.regions[0 if bool(predicate) else 1], (), captured(op, (predicate, *arrays)))


def _whole(op: Op, *arrays: np.ndarray) -> Arrays:
    """A stitched kernel means what its body means, and so do collectives."""
    return evaluate(op.regions[0], arrays[: len(op.operands)], captured(op, arrays))


def _unset(op: Op) -> Arrays:
    """All bits set, so that it shows where somebody reads it: a NaN of every float type."""
    kind = op.result.tensor
    if kind.dtype is DType.BOOL:
        return (np.ones(kind.shape, np.bool_),)
    return (np.full(kind.nbytes, 0xFF, np.uint8).view(kind.dtype.numpy).reshape(kind.shape),)


define(OpDef(WHILE, OpClass.CONTROL, _while))
define(OpDef("stablehlo.case", OpClass.CONTROL, _case))
define(OpDef("stablehlo.if", OpClass.CONTROL, _if))
define(OpDef(KERNEL, OpClass.OPAQUE, _whole))
define(OpDef(COLLECTIVES, OpClass.OPAQUE, _whole))
define(OpDef(UNSET, OpClass.OPAQUE, _unset))
define(OpDef(NO_FUSE, OpClass.OPAQUE, lambda op, x: (x,)))
define(OpDef(TURNED, OpClass.OPAQUE, lambda op, x: (x,)))
define(OpDef(TURN_END, OpClass.OPAQUE, lambda op, x: (x,)))
define(OpDef(BARRIER, OpClass.OPAQUE, lambda op, *arrays: arrays))
