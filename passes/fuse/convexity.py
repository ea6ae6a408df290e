"""A pattern is one kernel only where nothing outside waits for it and is waited for.

{a, c} of a -> b -> c      ->      b
"""

from __future__ import annotations

import graphlib
from collections.abc import Sequence

from jstitch.ir.graph import Graph, Op
from jstitch.passes.base.plan import FusionPattern, is_free
from jstitch.passes.base.remember import per_object


def waits_for_itself(frame: Graph, pattern: FusionPattern) -> Op | None:
    """An op outside that waits for the pattern and that the pattern waits for."""
    inside = {op for op in pattern.ops if not is_free(op)}
    behind: dict[object, Op] = {}
    made = {v for op in inside for v in op.results}
    places = [_places(frame)[op] for op in inside]
    for op in frame.ops[min(places, default=0) : max(places, default=-1) + 1]:
        late = next((behind[v] for v in op.uses if v in behind), None)
        if op in inside and late is not None:
            return late
        if op not in inside and not is_free(op) and (late is not None or not made.isdisjoint(op.uses)):
            behind.update(dict.fromkeys(op.results, late or op))
    return None


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
