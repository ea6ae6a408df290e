"""Bring ops into program order: makers before users, otherwise as they stand.

b = f(a);  a = g(x);  c = h(b)     ->     a = g(x);  b = f(a);  c = h(b)
"""

from __future__ import annotations

from collections.abc import Sequence

from jstitch.ir.graph import Op


def sort_ops(ops: Sequence[Op]) -> tuple[Op, ...]:
    """The same ops. Raises ValueError where one needs itself, and there is no such order."""
    maker = {v: op for op in ops for v in op.results}
    done: dict[Op, None] = {}
    begun: set[Op] = set()
    for op in ops:
        todo = [op]
        while todo:
            waits = [maker[v] for v in todo[-1].uses if v in maker and maker[v] not in done]
            if todo[-1] in done or not waits:
                done[todo.pop()] = None
            elif todo[-1] in begun:
                raise ValueError(f"Expected ops in some order, found that '{todo[-1].name}' needs itself.")
            else:
                begun.add(todo[-1])
                todo += waits
    return tuple(done)
