"""A loop of stages in Launch IR, for every target.

for turn0 in range(0, first):       turns that the step needs
    ...
low = inf
for row in range(0, 64):            whether all rows are above the mask
    low = minimum(low, t1[row])
stop = select(low > -1e9, 0, 32)
for turn0 in range(first, stop):    what is masked, where some are not
    ...
"""

from __future__ import annotations

import math

from jstitch.codegen.kernel_ir import Loop, Turns
from jstitch.codegen.launch_ir import Assign, Body, For, Read
from jstitch.codegen.launch_places import FAR, Memory
from jstitch.ir.expr import Const, Ref, call
from jstitch.ir.index import Dynamic, Var, clamp, const, var
from jstitch.ir.types import DType

LOW, HERE, STOP = "low", "here", "stop"


def launch_turns(loop: Loop, inside: Body, tile: Memory | None, rows: int, pitch: int = 1) -> Body:
    """The turns, with `inside` in each. tile: what a loop asks, of so many rows, `pitch` elements apart."""
    if not isinstance(loop, Turns):
        return [For(loop.var.name, const(loop.lo), const(loop.hi), 1, tuple(inside))]
    if loop.unless is None:
        return [For(loop.var.name, const(loop.lo), loop.first, 1, tuple(inside))]
    assert tile is not None
    read = Read(HERE, tile, var(Var("row", FAR)) * pitch, DType.F32)
    lower = Assign(LOW, call("minimum", Ref(LOW), Ref(HERE)))
    above = call("gt", Ref(LOW), Const(loop.unless.above, DType.F32))
    stop = call("select", above, Const(0, DType.S32), Const(loop.hi, DType.S32))
    last = clamp(var(Dynamic(STOP, ())), 0, loop.hi)
    return [
        Assign(LOW, Const(math.inf, DType.F32)),
        For("row", const(0), const(rows), 1, (read, lower)),
        Assign(STOP, stop),
        For(loop.var.name, loop.first, last, 1, tuple(inside)),
    ]
