"""The user's lines that a stage of a kernel comes from, each with its ops.

softmax's second stage     ->     subtract, exponential: model.py:31 (softmax); reduce: model.py:32 (softmax)
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

from jstitch.ir.graph import Op, Value
from jstitch.passes.base.plan import is_free


def quote_lines(
    roots: Iterable[Op],
    known: Sequence[Container[Value]],
    producers: Mapping[Value, Op],
    order: Mapping[Op, int],
) -> tuple[str, ...]:
    """Lines in program order. roots: ops whose results the stage makes; known: values that it only reads.

    order: of the program's ops. Ops between the two, which it computes on the way, count too; those without
    a line do not.
    """
    found: dict[Op, None] = {}
    todo = list(roots)
    while todo:
        op = todo.pop()
        if op not in found and not is_free(op):
            found[op] = None
            computed = (v for v in op.operands if not any(v in values for values in known))
            todo += (producers[v] for v in computed if v in producers)
    ops: dict[str, dict[str, None]] = {}
    for op in sorted(found, key=lambda op: order.get(op, len(order))):
        if op.loc:
            line = op.loc.replace("\\", "/").rpartition("/")[2]
            ops.setdefault(line, {})[op.name.rpartition(".")[2]] = None
    return tuple(f"{', '.join(names)}: {line}" for line, names in ops.items())
