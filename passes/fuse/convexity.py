"""A pattern is one kernel only where nothing outside waits for it and is waited for.

{a, c} of a -> b -> c      ->      b
"""

from __future__ import annotations

import graphlib
from collections.abc import Mapping, Sequence

from jstitch.ir.graph import Graph, Op, Value
from jstitch.passes.base.plan import FusionPattern, is_free
from jstitch.passes.base.remember import per_object


def waits_for_itself(frame: Graph, pattern: FusionPattern) -> Op | None:
    """An op outside that waits for the pattern and that the pattern waits for."""
    inside = {op for op in pattern.ops if not is_free(op)}
    place, users = _places(frame), _users(frame)
    last = max((place[op] for op in inside), default=-1)
    behind: dict[Op, Op] = {}  # what waits for the pattern -> the first op outside on the way there
    todo: list[tuple[Value, Op | None]] = [
        (v, None) for op in pattern.ops if op in inside for v in op.results
    ]
    while todo:
        made, first = todo.pop()
        for user in users.get(made, ()):
            if user in inside:
                if first is not None:
                    return first
            elif user not in behind and not is_free(user) and place[user] < last:
                behind[user] = first or user
                todo += ((v, behind[user]) for v in user.results)
    return None


@per_object
def _users(frame: Graph) -> Mapping[Value, list[Op]]:
    return frame.users()


@per_object
def _places(frame: Graph) -> dict[Op, int]:
    return {op: n for n, op in enumerate(frame.ops)}


def has_cycle(ops: Sequence[Op]) -> bool:
    """Whether some of them wait for each other, so that no order is right."""
    maker = {v: op for op in ops for v in op.results}
    waits = {op: [maker[v] for v in op.uses if v in maker] for op in ops}
    try:
        graphlib.TopologicalSorter(waits).prepare()
    except graphlib.CycleError:
        return True
    return False
