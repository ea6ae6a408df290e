"""What a pattern costs that may have a sort or a loop: as often as that turns, what one of its turns does.

while, 128 turns: {multiply, add}, subtract     ours: one kernel     XLA's: 128 times those of a turn, and one
"""

from __future__ import annotations

from jstitch.ir.graph import Op, Value
from jstitch.passes.base.machine import Machine
from jstitch.passes.base.plan import FusionPattern
from jstitch.passes.base.profile import Profile
from jstitch.passes.base.remember import per_object
from jstitch.passes.cost.after_slices import after_slices
from jstitch.passes.cost.cost_model import CostEstimate, kernel_cost, work, xla_cost
from jstitch.passes.cost.sort_cost import own_sort, xla_sort
from jstitch.passes.graph.find_recurrence import Recurrence, find_recurrence
from jstitch.passes.lower.loop_pattern import loop_of
from jstitch.passes.lower.lower_sort import sort_of


@per_object
def cost_of(pattern: FusionPattern, profile: Profile) -> CostEstimate:
    """The pattern as one stitched kernel."""
    sort = sort_of(pattern.ops)
    if sort is not None:
        return own_sort(pattern, sort, profile.machine)
    loop = loop_of(pattern.ops)
    found = None if loop is None else _recurrence(pattern, loop)
    if found is None:
        return kernel_cost(pattern, profile)
    nbytes = sum(v.tensor.nbytes for v in (*pattern.inputs, *pattern.outputs))
    around = sum(work(op, profile.machine) for op in pattern.ops if op is not loop)
    turn = sum(work(op, profile.machine) for op in found.ops)
    return CostEstimate(profile.machine.call + profile.machine.phase, nbytes, around + found.turns * turn)


@per_object
def xla_cost_of(pattern: FusionPattern, machine: Machine) -> CostEstimate:
    """The same ops as XLA:CPU runs them."""
    sort = sort_of(pattern.ops)
    if sort is not None:
        return xla_sort(sort, machine)
    loop = loop_of(pattern.ops)
    found = None if loop is None else _recurrence(pattern, loop)
    if loop is None or found is None:
        return xla_cost(pattern, machine)
    turn = xla_cost(turn_of(found), machine)
    turns = CostEstimate(*(found.turns * x for x in (turn.launches, turn.nbytes, turn.cycles)))
    around = [op for op in pattern.ops if op is not loop]
    return turns + (xla_cost(_around(pattern, around, loop), machine) if around else CostEstimate())


def _recurrence(pattern: FusionPattern, loop: Op) -> Recurrence | None:
    producers = {v: op for op in pattern.ops for v in op.results}
    found = find_recurrence(loop, producers.get)
    return found if isinstance(found, Recurrence) else None


def turn_of(loop: Recurrence) -> FusionPattern:
    """A turn as a pattern, which reads a part of each stack."""
    left = (leaf.part for s in loop.stacks for leaf in s.leaves)
    outputs = dict.fromkeys((*(c.after for c in loop.carries), *left))
    return after_slices(_pattern(loop.ops, tuple(outputs)))


def _around(pattern: FusionPattern, ops: list[Op], loop: Op) -> FusionPattern:
    """What is before and behind the loop."""
    wanted = {*pattern.outputs, *loop.uses}
    return _pattern(tuple(ops), tuple(v for op in ops for v in op.results if v in wanted))


def _pattern(ops: tuple[Op, ...], outputs: tuple[Value, ...]) -> FusionPattern:
    made = {v for op in ops for v in op.results}
    inputs = dict.fromkeys(v for op in ops for v in op.operands if v not in made)
    return FusionPattern(ops, tuple(inputs), tuple(v for v in outputs if v in made), "a turn")
