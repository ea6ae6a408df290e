"""Which ops of a pattern ask for shared memory, and how much of it (FS-2018 section 5.1.1).

max    reduction, not an output                  must
exp    expensive, two users                      expensive, shared
div    expensive, one user: bitcast -> dot       expensive, into a dot
scale  light, two users                          light, shared
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from jstitch.ir.graph import Op
from jstitch.ir.ops import OpClass, lookup
from jstitch.ir.schedule import Schedule, blocks
from jstitch.passes.lower.plan_shared_memory import Priority, Request
from jstitch.passes.lower.propagate_schedule import op_class

EXPENSIVE_CPI = 4.0
"""From this cost on, computing an element again is worth a buffer (a division and up)."""


def size_requirements(
    ops: Sequence[Op], schedules: Mapping[Op, Schedule | None], outputs: Collection[Op] = ()
) -> dict[Op, Request]:
    """Requests of one block, in program order. outputs: ops whose results are written to memory anyway."""
    users = _users(ops)
    found = {op: _priority(op, users, op in outputs or not users[op]) for op in ops}
    return {op: Request(_block_bytes(op, schedules.get(op)), p) for op, p in found.items() if p is not None}


def _users(ops: Sequence[Op]) -> dict[Op, list[Op]]:
    made = {v: op for op in ops for v in op.results}
    users: dict[Op, list[Op]] = {op: [] for op in ops}
    for op in ops:
        for producer in dict.fromkeys(made[v] for v in op.operands if v in made):
            users[producer].append(op)
    return users


def _priority(op: Op, users: Mapping[Op, Sequence[Op]], is_output: bool) -> Priority | None:
    kind = op_class(op)
    if kind in (OpClass.REDUCTION, OpClass.CONTRACTION):
        return None if is_output else Priority.MUST
    if not kind.is_elementwise or is_output:
        return None
    expensive = kind is OpClass.EXPENSIVE or lookup(op.name).cpi >= EXPENSIVE_CPI
    if len(users[op]) > 1:
        return Priority.EXPENSIVE_SHARED if expensive else Priority.LIGHT_SHARED
    return Priority.EXPENSIVE_INTO_DOT if expensive and _ends_in_dot(op, users) else None


def _ends_in_dot(op: Op, users: Mapping[Op, Sequence[Op]]) -> bool:
    """Whether the chain of only users reaches a contraction."""
    while len(users[op]) == 1:
        (op,) = users[op]
        if op_class(op) is OpClass.CONTRACTION:
            return True
    return False


def _block_bytes(op: Op, schedule: Schedule | None) -> int:
    """Bytes of one block's share of the results, in the type that kernels compute in."""
    count = 1 if schedule is None else blocks(op.results[0].shape, schedule)
    return sum(v.tensor.size // count * v.tensor.dtype.compute.itemsize for v in op.results)
