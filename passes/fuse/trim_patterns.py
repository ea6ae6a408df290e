"""Drop outputs of a pattern that only move data XLA has anyway.

{y = exp x; z = broadcast y}, both returned     ->     {y = exp x}; XLA repeats y where it is used
"""

from __future__ import annotations

from jstitch.ir.graph import Op, Value
from jstitch.ir.ops import OpClass, lookup
from jstitch.passes.base.plan import FusionPattern, FusionPlan, Reason, is_free, make_pattern
from jstitch.passes.fuse.keep_patterns import keep_patterns

MOVES = Reason("trim", "only moves data that is in memory anyway")


def trim_patterns(plan: FusionPlan) -> FusionPlan:
    """The plan with every pattern trimmed; patterns with nothing left are gone."""
    kept: list[FusionPattern] = []
    dropped: dict[Op, Reason] = {}
    for pattern in plan.patterns:
        trimmed = trim(plan, pattern)
        rest = set() if trimmed is None else set(trimmed.ops)
        dropped |= dict.fromkeys((op for op in pattern.ops if op not in rest), MOVES)
        if trimmed is not None:
            kept.append(trimmed)
    return keep_patterns(plan, kept, dropped)


def trim(plan: FusionPlan, pattern: FusionPattern) -> FusionPattern | None:
    """Drop outputs that only move data XLA has anyway; None when nothing else is left."""
    while True:
        dropped = [op for op in pattern.ops if _only_moves(op, pattern)]
        if not dropped:
            break
        rest = [op for op in pattern.ops if op not in dropped]
        if all(is_free(op) for op in rest):
            return None
        pattern = make_pattern(plan.frame, rest, pattern.origin)
    return pattern if pattern.outputs else None


def moves_data(op: Op) -> bool:
    return lookup(op.name).op_class is OpClass.SHAPE and not is_free(op)


def _only_moves(op: Op, pattern: FusionPattern) -> bool:
    """A shape op at the pattern's end whose operand is in memory without it, or that repeats elements."""
    if not moves_data(op) or op.result not in pattern.outputs:
        return False
    if any(op.result in user.operands for user in pattern.ops):
        return False
    inside: set[Value] = {v for other in pattern.ops if not is_free(other) for v in other.results}
    if all(v not in inside or v in pattern.outputs for v in op.operands):
        return True
    return len(op.operands) == 1 and op.result.tensor.size > op.operands[0].tensor.size
