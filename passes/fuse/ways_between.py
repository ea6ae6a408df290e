"""Whether two kernels could be one, or something between them would have to run in the middle.

{a}, {b}, {c} with a -> b -> c and a -> c     ->     for a and c: b
"""

from __future__ import annotations

from collections.abc import Mapping

from jstitch.ir.graph import Graph, Op
from jstitch.passes.base.plan import Reason
from jstitch.passes.fuse.check_plan import contract

SEARCH = 2000  # nodes looked at for a way; then there is said to be none
WAITS = "one kernel for both would wait for"


class Ways:
    """Of a frame with ops that share a kernel as one node. owners: op -> its kernel's number."""

    def __init__(self, frame: Graph, owners: Mapping[Op, int]) -> None:
        self._node, self._after = contract(frame, dict(owners))
        self._last: dict[int, int] = {}
        self._first: dict[int, Op] = {}
        self._place: dict[int, int] = {}
        for place, op in enumerate(frame.ops):
            node = self._node[op]
            self._last[node] = place
            self._first.setdefault(node, op)
            self._place.setdefault(node, place)
        self._known: dict[tuple[int, int], Op | None] = {}

    def between(self, producer: Op, consumer: Op) -> Op | None:
        """An op on another way from the kernel of one to that of the other, or None."""
        ends = self._node[producer], self._node[consumer]
        if ends not in self._known:
            self._known[ends] = self._search(*ends)
        return self._known[ends]

    def _search(self, start: int, end: int) -> Op | None:
        todo = [n for n in self._after.get(start, ()) if n != end]
        seen = set(todo)
        while todo and len(seen) <= SEARCH:
            node = todo.pop()
            after = self._after.get(node, set())
            if end in after:
                return self._first[node]
            new = {n for n in after if n not in seen and self._place[n] <= self._last[end]}
            seen |= new
            todo += new
        return None


def waits(between: Op) -> Reason:
    """Why both cannot be one kernel, if this op is between them."""
    where = f" at {between.loc}" if between.loc else ""
    return Reason("cycle", f"{WAITS} {between.name}{where}, which waits for it")
