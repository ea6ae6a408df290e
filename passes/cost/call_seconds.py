"""How long a call of a kernel takes on the CPU where all else is XLA's: the call, its buffers, its work.

%stack : 500x1024, %i    ->  dynamic_slice  ->  tanh        reads 1 row at each turn of a loop, not the stack
"""

from __future__ import annotations

from collections.abc import Collection

from jstitch.ir.graph import Op, Value
from jstitch.ir.ops import OpClass, lookup
from jstitch.passes.base.machine import Machine
from jstitch.passes.base.plan import FusionPattern
from jstitch.passes.base.profile import Profile
from jstitch.passes.base.remember import per_object
from jstitch.passes.cost.recurrence_cost import cost_of


def call_seconds(pattern: FusionPattern, profile: Profile) -> float:
    """Of a call of the pattern's kernel."""
    machine, cost = profile.machine, cost_of(after_slices(pattern), profile)
    buffers = len(pattern.inputs) + len(pattern.outputs)
    cores = 1.0 if cost.cycles < machine.serial_work else machine.cores
    work = work_seconds(machine, cost.cycles, cost.nbytes, cores)
    return machine.call_seconds + buffers * machine.operand + work


def work_seconds(machine: Machine, cycles: float, nbytes: float, cores: float) -> float:
    """Of one kernel, anybody's, on so many cores."""
    speeds = machine.lone_bandwidths if cores == 1.0 else machine.bandwidths
    arithmetic = cycles * machine.lane_cycle * machine.cores / cores
    memory = speeds.seconds(nbytes)
    return max(arithmetic, memory) + machine.overlap * min(arithmetic, memory)


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
