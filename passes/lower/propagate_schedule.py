"""Schedule-constraint propagation through a pattern (FS-2018 section 4.2).

    %s = reduce %x over {1}            Row(0, 64) at %y  ->  %b Row(0, 64), %s Row(0, 64)
    %b = broadcast %s, dims = [0]      Row(1, 8)  at %y  ->  refused at %s: every block would need all of a
    %y = divide %x, %b                                       reduction

From the roots backwards, an op's schedule is what its users agree on. `None` means that the op is inlined:
blocks compute again what they need of it. Reductions and contractions are never computed again, outputs are
written by one block only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from jstitch.ir.graph import Op
from jstitch.ir.ops import OpClass, lookup, propagation
from jstitch.ir.schedule import Schedule, same_spread


@dataclass(frozen=True, eq=False)
class Refusal:
    """The first op that cannot take the schedule, and the rule that says so."""

    op: Op
    rule: str

    def __str__(self) -> str:
        return f"{self.op.name}: {self.rule}"


Schedules = dict[Op, Schedule | None]
_MOVERS = (OpClass.SHAPE, OpClass.INDEX, OpClass.CONSTANT)


def op_class(op: Op) -> OpClass:
    """The op's class; an op that is not in the table is opaque."""
    return lookup(op.name).op_class


def propagate(op: Op, schedule: Schedule) -> tuple[Schedule | None, ...] | Refusal:
    """One schedule per operand (None: the whole operand in every block), or the rule that refuses."""
    found = propagation.propagate(op, schedule)
    return Refusal(op, found) if isinstance(found, str) else found


def is_trivial(op: Op) -> bool:
    """Ops that only move elements are index arithmetic in their consumer: inlined, they do not veto."""
    return op_class(op) in _MOVERS


def agree(op: Op, wanted: Sequence[Schedule | None]) -> Schedule | Refusal | None:
    """The schedule of an op whose users want these. Users that disagree make a light op inlined."""
    first = wanted[0]
    if all(w is first or same_spread(op.results[0].shape, first, w) for w in wanted[1:]):
        return first
    inlined = None in wanted or op_class(op) in (OpClass.LIGHT, *_MOVERS)
    return None if inlined else Refusal(op, f"users disagree: {', '.join(map(str, wanted))}")


def may_be_inlined(op: Op, is_output: bool) -> Refusal | None:
    """Why the op cannot be computed again in several blocks."""
    if op_class(op) in (OpClass.REDUCTION, OpClass.CONTRACTION):
        return Refusal(op, "every block would need all of a reduction")
    return Refusal(op, "every block would write the output") if is_output else None


def operand_schedules(
    op: Op, schedule: Schedule | None, bypass: Callable[[Op], bool] = is_trivial
) -> tuple[Schedule | None, ...] | Refusal:
    """`propagate` for a pattern: an inlined op inlines its operands, a bypassed op does not veto."""
    if schedule is None:
        return (None,) * len(op.operands)
    found = propagate(op, schedule)
    return (None,) * len(op.operands) if isinstance(found, Refusal) and bypass(op) else found


def resolve(
    ops: Iterable[Op],
    roots: Mapping[Op, Schedule],
    outputs: Collection[Op] = (),
    bypass: Callable[[Op], bool] = is_trivial,
) -> Schedules | Refusal:
    """A schedule for every op that the roots need, or the first refusal.

    ops: in program order. outputs: ops besides the roots whose results leave the pattern.
    """
    members = list(ops)
    producers = {v: op for op in members for v in op.results}
    wanted: dict[Op, list[Schedule | None]] = {root: [s] for root, s in roots.items()}
    schedules: Schedules = {}
    for op in reversed(members):
        if op not in wanted:
            continue
        entries = _schedule(op, wanted[op], op in roots or op in outputs, bypass)
        if isinstance(entries, Refusal):
            return entries
        schedules[op], operands = entries
        for value, entry in zip(op.operands, operands, strict=True):
            if value in producers:
                wanted.setdefault(producers[value], []).append(entry)
    return schedules


def _schedule(
    op: Op, wanted: Sequence[Schedule | None], is_output: bool, bypass: Callable[[Op], bool]
) -> tuple[Schedule | None, tuple[Schedule | None, ...]] | Refusal:
    """The op's own schedule and its operands'."""
    schedule = agree(op, wanted)
    if isinstance(schedule, Refusal):
        return schedule
    refusal = may_be_inlined(op, is_output) if schedule is None else None
    operands = refusal or operand_schedules(op, schedule, bypass)
    return operands if isinstance(operands, Refusal) else (schedule, operands)
