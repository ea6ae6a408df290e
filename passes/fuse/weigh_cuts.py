"""Drop patterns that cut XLA's kernels in pieces: beside them are ops that XLA fuses and no kernel has.

    z * z -> {z.real, z.imag -> abs, less, select} -> z + c       XLA: one kernel
    z * z, z.real, z.imag -> [abs, less, select] -> z + c         two of XLA's, and ours between

The gate compares a pattern with XLA's kernels for the same ops. Here it is compared with what XLA takes for
these and their neighbours, less what it takes for the neighbours alone: those of foreign types, and, on CPUs,
what an earlier rule left to XLA. What a pattern hands to them, XLA's own kernels never write. On GPUs they do
more often than is modelled: of 188 drawn programs 4 changed, of which 3 had more launches when XLA was asked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import chain

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import OPS, OpClass
from jstitch.ir.types import TensorType
from jstitch.passes.base.context import Context
from jstitch.passes.base.plan import FusionPattern, FusionPlan, Reason, make_pattern
from jstitch.passes.cost.cost_model import xla_cost
from jstitch.passes.cost.recurrence_cost import cost_of
from jstitch.passes.fuse.find_recurrences import RECURRENCE
from jstitch.passes.fuse.find_sorts import SORTS
from jstitch.passes.fuse.gate import margin_of
from jstitch.passes.fuse.hold_together import is_fixed
from jstitch.passes.fuse.keep_patterns import keep_patterns
from jstitch.passes.fuse.plan_layers import OUTSIDE

RULE = "cut"
MOST = 64  # neighbours that are looked at: XLA's fusions are not larger
_FUSED = (OpClass.LIGHT, OpClass.EXPENSIVE, OpClass.SHAPE)


def weigh_cuts(plan: FusionPlan, context: Context) -> FusionPlan:
    """The plan without patterns that do not pay for the cut, with both times as the reason."""
    if margin_of(context) == math.inf:
        return plan
    inside = {op for pattern in plan.patterns for op in pattern.ops}
    looked_at = _is_fused if context.machine.device is None else _is_foreign
    left = {op for op in plan.frame.ops if op not in inside and looked_at(op)}
    if not left:
        return plan
    seen = _Neighbours(plan.frame, left)
    kept: list[FusionPattern] = []
    dropped: dict[Op, Reason] = {}
    for pattern in plan.patterns:
        whole = is_fixed(pattern) or pattern.origin in (RECURRENCE, SORTS)
        why = None if whole else _why(pattern, seen, context)
        if why is None:
            kept.append(pattern)
        else:
            dropped |= dict.fromkeys(pattern.ops, why)
    return keep_patterns(plan, kept, dropped) if dropped else plan


def _is_fused(op: Op) -> bool:
    """Whether XLA fuses it."""
    definition = OPS.get(op.name)
    if definition is None or definition.op_class not in _FUSED:
        return False
    return all(isinstance(v.type, TensorType) for v in (*op.operands, *op.results))


def _is_foreign(op: Op) -> bool:
    """Whether XLA fuses it, and a type keeps it out of kernels."""
    return _is_fused(op) and any(v.tensor.dtype in OUTSIDE for v in (*op.operands, *op.results))


class _Neighbours:
    """Ops around patterns of a frame, of those that are in none."""

    def __init__(self, frame: Graph, left: set[Op]) -> None:
        self.frame = frame
        self._left = left
        self._makers: Mapping[Value, Op] = frame.producers()
        self._users: Mapping[Value, list[Op]] = frame.users()

    def of(self, ops: Sequence[Op]) -> list[Op]:
        """Those that values lead to, through others of them."""
        found: dict[Op, None] = {}
        todo = list(ops)
        while todo and len(found) < MOST:
            for op in self._beside(todo.pop(0)):
                if op in self._left and op not in found:
                    found[op] = None
                    todo.append(op)
        return list(found)

    def _beside(self, op: Op) -> list[Op]:
        makers = (self._makers[v] for v in op.operands if v in self._makers)
        return list(chain(makers, *(self._users.get(v, ()) for v in op.results)))


def _why(pattern: FusionPattern, seen: _Neighbours, context: Context) -> Reason | None:
    """Why it does not stay; None where it does."""
    around, machine, margin = seen.of(pattern.ops), context.machine, margin_of(context)
    if not around:
        return None
    own, alone, whole = (
        xla_cost(p, machine).seconds(machine)
        for p in (
            pattern,
            make_pattern(seen.frame, around, RULE),
            make_pattern(seen.frame, (*around, *pattern.ops), RULE),
        )
    )
    ours = cost_of(pattern, context.profile).seconds(machine)
    theirs = min(own, whole - alone)
    if ours < margin * theirs:
        return None
    text = (
        "modelled {found} us, and must be less than {bound} us, "
        f"{margin:g} of what XLA takes longer with these ops in its kernels for {len(around)} others around"
    )
    return Reason(RULE, text, ours * 1e6, margin * max(0.0, theirs) * 1e6)
