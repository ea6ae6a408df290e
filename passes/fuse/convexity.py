"""A pattern is one kernel only where nothing outside waits for it and is waited for.

{a, c} of a -> b -> c      ->      b
"""

from __future__ import annotations

from jstitch.ir.graph import Graph, Op
from jstitch.passes.base.plan import FusionPattern, is_free


def waits_for_itself(frame: Graph, pattern: FusionPattern) -> Op | None:
    """An op outside that waits for the pattern and that the pattern waits for."""
    inside = {op for op in pattern.ops if not is_free(op)}
    behind: dict[object, Op] = {}
    made = {v for op in inside for v in op.results}
    for op in frame.ops:
        late = next((behind[v] for v in op.uses if v in behind), None)
        if op in inside and late is not None:
            return late
        if op not in inside and not is_free(op) and (late is not None or not made.isdisjoint(op.uses)):
            behind.update(dict.fromkeys(op.results, late or op))
    return None
