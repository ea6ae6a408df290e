"""What it costs to compute values of a pattern again, where they are read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from jstitch.codegen.intrinsics import cpu_cpi
from jstitch.ir.graph import Op, Value
from jstitch.ir.ops import OpClass, lookup
from jstitch.passes.base.row_access import is_reduction
from jstitch.passes.lower.group import Group
from jstitch.passes.lower.small_parts import OpCost

PARTIAL = "jstitch.partial_reduce"
RECOMPUTE = 24.0  # cycles per element up to which an elementwise chain is rather computed twice than spilled


def _recompute_cost(op: Op, known: Mapping[Value, float], on_cpu: bool) -> float:
    """Cycles per element to compute the op again; inf behind a reduction. A load costs 1.

    A CPU's sines and powers take several times a GPU's, and one element looked up keeps a loop from vectors.
    """
    definition = lookup(op.name)
    if definition.op_class is OpClass.REDUCTION or op.name == PARTIAL:
        return math.inf
    cycles = 0.0
    if definition.op_class.is_elementwise:
        cycles = max(definition.cpi, cpu_cpi(definition)) if on_cpu else definition.cpi
    elif on_cpu and _looks_up(op):
        cycles = RECOMPUTE
    return cycles + sum(known.get(v, 1.0) for v in dict.fromkeys(op.operands))


def costs_of(groups: Iterable[Group]) -> OpCost:
    """What ops cost on the machine."""
    machines = {group.profile.machine.device for group in groups}
    return partial(_recompute_cost, on_cpu=machines == {None})


def _looks_up(op: Op) -> bool:
    """Whether neighbours in a row are elements from anywhere."""
    rank = op.results[0].tensor.rank
    return rank > 0 and rank - 1 not in op.attrs.get("offset_dims", (rank - 1,))


def repeated_values(ops: Sequence[Op], op_cost: OpCost) -> set[Value]:
    """Elementwise values of which slices, such as a window's, overlap: dear to compute for each."""
    cost: dict[Value, float] = {}
    for op in ops:
        own = 1.0 if op.name == PARTIAL or is_reduction(op) else op_cost(op, cost)
        cost.update(dict.fromkeys(op.results, own))
    times: dict[Value, float] = {}  # how often each element is computed
    found: set[Value] = set()
    for op in reversed(ops):
        kind, result = lookup(op.name).op_class, op.results[0]
        if kind.is_elementwise and (times.get(result, 1.0) - 1) * cost[result] >= RECOMPUTE:
            found.add(result)
        own = 1.0 if result in found else times.get(result, 1.0)
        for v in op.operands:
            if kind is OpClass.SHAPE and result.tensor.size < v.tensor.size:
                times[v] = times.get(v, 0.0) + own * result.tensor.size / v.tensor.size
            else:
                times[v] = max(times.get(v, 0.0), 1.0 if is_reduction(op) else own)
    return found
