"""Bring ops into program order: makers before users, otherwise as they stand.

b = f(a);  a = g(x);  c = h(b)     ->     a = g(x);  b = f(a);  c = h(b)
"""

from __future__ import annotations

from collections.abc import Sequence

from jstitch.ir.graph import Op


def sort_ops(ops: Sequence[Op]) -> tuple[Op, ...]:
    """The same ops; there is such an order, since none needs itself."""
    maker = {v: op for op in ops for v in op.results}
    done: dict[Op, None] = {}
    for op in ops:
        todo = [op]
        while todo:
            waits = [maker[v] for v in todo[-1].uses if v in maker and maker[v] not in done]
            if todo[-1] in done or not waits:
                done[todo.pop()] = None
            else:
                todo += waits
    return tuple(done)
