"""Follow row-to-row edges from a value: everything that can be cut into the same rows.

seed x [N, C], N rows:   x -> sum over 1 -> broadcast -> subtract     all of them; not what is summed over 0
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from jstitch.ir.graph import Op, Value
from jstitch.passes.base.row_access import (
    Access,
    Reduction,
    data_operands,
    divides_rows,
    is_reduction,
    reduction,
    relations,
)


def spread_rows(
    seed: Value,
    rows: int,
    users: dict[Value, list[Op]],
    producer: dict[Value, Op],
    remaining: dict[Op, None],
    numbers: Mapping[Value, Op],
) -> tuple[set[Op], int] | None:
    """Ops reached both ways from `seed`, and the largest value's size. None when a reduction mixes rows.

    numbers: iotas, by result, where a loop goes over the rows that had better divide nothing.
    """
    blocked, todo, ops = {seed}, [seed], set[Op]()
    flat = rows == seed.tensor.size and rows > 1

    def block(values: Iterable[Value]) -> None:
        for v in values:
            if v not in blocked and (v in users or v in producer):
                blocked.add(v)
                todo.append(v)

    def join(op: Op) -> bool:
        """The op's results have rows: so have the operands it reaches row by row."""
        ops.add(op)
        block(op.results)
        if is_reduction(op):
            block(data_operands(op))
            return reduction(op, rows) is Reduction.INNER
        found = relations(op, rows)
        divided = (divides_rows(numbers[v], rows) for v in op.operands if v in numbers)
        if flat and (any(r.modular for r in found) or any(divided)):
            return False
        block(v for v, r in zip(op.operands, found, strict=True) if r.access is Access.ROW)
        return True

    while todo:
        value = todo.pop()
        maker = producer.get(value)
        if maker is not None and maker in remaining and maker not in ops and not join(maker):
            return None
        for op in users.get(value, ()):
            if op not in remaining or op in ops:
                continue
            if is_reduction(op):
                if value not in data_operands(op):
                    continue
                kind = reduction(op, rows)
                if kind is Reduction.MIXED:
                    return None
                if kind is Reduction.CROSS:
                    ops.add(op)
                    block(data_operands(op))
                    continue
                if not join(op):
                    return None
            elif _reaches_row(op, value, rows) and not join(op):
                return None
    return ops, max(v.tensor.size for v in blocked)


def _reaches_row(op: Op, value: Value, rows: int) -> bool:
    found = relations(op, rows)
    return any(v is value and r.access is Access.ROW for v, r in zip(op.operands, found, strict=True))
