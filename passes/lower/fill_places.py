"""Give ops that a pass made out of several others a place in the user's code: that of an op that reads them.

%1 = mul %0, %0                              %1 = mul %0, %0     // model.py:3
%2 = reduce %1           // model.py:3  ->   %2 = reduce %1      // model.py:3
"""

from __future__ import annotations

from collections.abc import Sequence

from jstitch.ir.graph import Op, Value


def fill_places(ops: Sequence[Op]) -> list[Op]:
    """The ops, in program order; those without a place have their first reader's, else their operands'."""
    if all(op.loc or op.scope for op in ops):
        return list(ops)
    return _behind(_before(ops))


def _before(ops: Sequence[Op]) -> list[Op]:
    reader: dict[Value, Op] = {}
    filled: list[Op] = []
    for op in reversed(ops):
        users = [reader[v] for v in op.results if v in reader]
        op = op.located(users[0]) if users else op
        filled.append(op)
        reader.update(dict.fromkeys(op.uses, op))
    return filled[::-1]


def _behind(ops: Sequence[Op]) -> list[Op]:
    maker: dict[Value, Op] = {}
    filled: list[Op] = []
    for op in ops:
        makers = [maker[v] for v in op.operands if v in maker]
        filled.append(op.located(makers[0]) if makers else op)
        maker.update(dict.fromkeys(op.results, filled[-1]))
    return filled
