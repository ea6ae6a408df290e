"""Give the few numbers that a whole kernel waits for to a small kernel before it, where a phase is a launch.

    {key = threefry(k);  y = x * mask(key)}        ->        {key = threefry(k)}, {y = x * mask(key)}

Dear numbers are made once, not by every program: they take a phase of their own, which on a GPU is a launch.
The small kernels of many patterns are packed into one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

from jstitch.ir.graph import Graph, Op, Value
from jstitch.passes.base.context import Context
from jstitch.passes.base.machine import Machine
from jstitch.passes.base.plan import FusionPattern, FusionPlan, Reason, is_free, make_patterns, with_constants
from jstitch.passes.base.profile import Profile
from jstitch.passes.cost.cost_model import kernel_cost, work
from jstitch.passes.fuse.keep_patterns import cut_edges

FEW = 64  # elements of a tensor that a prologue reads or makes
CHEAP = 50.0  # cycles; what takes no more is left to every program
LAUNCH = Reason("prologue", "all of the consumer would wait for these few numbers, one launch more")


def split_prologues(plan: FusionPlan, context: Context) -> FusionPlan:
    """The plan with such ops in patterns of their own, where that leaves the others a launch less."""
    if context.machine.device is None or "packing" not in context.options.schemes:
        return plan
    producers = plan.frame.producers()
    split = partial(_split, frame=plan.frame, producers=producers, profile=context.profile)
    patterns = [part for pattern in plan.patterns for part in split(pattern)]
    if len(patterns) == len(plan.patterns):
        return plan
    return cut_edges(plan, patterns, lambda *_: LAUNCH)


def _split(
    pattern: FusionPattern, frame: Graph, producers: Mapping[Value, Op], profile: Profile
) -> Iterator[FusionPattern]:
    before = _prologue(pattern, profile.machine)
    rest = [op for op in pattern.ops if op not in before and not is_free(op)]
    if before and rest:
        groups = [with_constants(ops, producers) for ops in (before, rest)]
        first, last = make_patterns(frame, groups, "split_prologues")
        if kernel_cost(last, profile).launches < kernel_cost(pattern, profile).launches:
            yield first
            yield replace(last, origin=pattern.origin)
            return
    yield pattern


def _prologue(pattern: FusionPattern, machine: Machine) -> set[Op]:
    """Ops that make few numbers from few numbers, behind dear ones that others read."""
    own = [op for op in pattern.ops if not is_free(op)]
    inside = {v for op in own for v in op.results}
    makers: dict[Value, Op] = {}
    wanted: dict[Value, None] = {}
    for op in own:
        if _is_small(op) and all(v in makers or v not in inside for v in op.operands):
            makers.update(dict.fromkeys(op.results, op))
        else:
            wanted.update(dict.fromkeys(v for v in op.operands if v in makers))
    cones = (_cone(v, makers) for v in wanted)
    return {op for cone in cones if sum(work(op, machine) for op in cone) > CHEAP for op in cone}


def _is_small(op: Op) -> bool:
    return all(v.tensor.size <= FEW for v in (*op.results, *op.operands))


def _cone(value: Value, makers: Mapping[Value, Op]) -> set[Op]:
    """The ops behind a value."""
    found: set[Op] = set()
    todo = [value]
    while todo:
        op = makers.get(todo.pop())
        if op is not None and op not in found:
            found.add(op)
            todo += op.operands
    return found
