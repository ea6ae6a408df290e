"""Many root schedules followed through a growing pattern at once, each op looked at once.

    roots      column  (Row(0, 64), Row(0, 32), Column(1, 96), Row(0, 1))
    reduce     column  (Row(0, 64), Row(0, 32), refused,       Row(0, 1))

A column has one entry per root schedule. What an op makes of its users' columns depends on its name, shapes
and attributes only, so equal layers of a model are worked out once.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from jstitch.ir.graph import Op
from jstitch.ir.schedule import ONE_BLOCK, Schedule, blocks, coordinates
from jstitch.passes.lower.propagate_schedule import Refusal, agree, may_be_inlined, operand_schedules
from jstitch.passes.lower.schedule import distinct_schedules

Column = tuple[Schedule | None, ...]


@lru_cache(maxsize=256)
def root_schedules(shape: tuple[int, ...], limit: int) -> tuple[tuple[Schedule, ...], tuple[int, ...]]:
    """Root schedules worth following, and their numbers of blocks: whole dimensions first, then finest."""

    def key(schedule: Schedule) -> tuple[bool, int]:
        return any(c > 1 for _, c in coordinates(shape, schedule)), -blocks(shape, schedule)

    found = tuple(sorted(distinct_schedules(shape), key=key)[:limit])
    return found, tuple(blocks(shape, s) for s in found)


@dataclass(frozen=True)
class Followed:
    """A column per operand, and the root schedules (by number) that the op refuses, with the rule."""

    operands: tuple[Column, ...]
    refused: dict[int, str]


@dataclass
class Follower:
    """The memory of one planner run. Columns are interned: equal ones are one object."""

    _columns: dict[Column, Column] = field(default_factory=dict)
    _known: dict[Hashable, Followed] = field(default_factory=dict)

    def intern(self, column: Column) -> Column:
        return self._columns.setdefault(column, column)

    def follow(self, op: Op, wanted: Sequence[Column], is_output: bool) -> Followed:
        """From what the users want of the op to what the op wants of its operands."""
        distinct = tuple({id(c): c for c in wanted}.values())
        key = (_signature(op), is_output, *map(id, distinct))
        if key not in self._known:
            self._known[key] = self._work_out(op, distinct, is_output)
        return self._known[key]

    def _work_out(self, op: Op, wanted: Sequence[Column], is_output: bool) -> Followed:
        refused: dict[int, str] = {}
        rows = []
        for i, entries in enumerate(zip(*wanted, strict=True)):
            row = _row(op, entries, is_output)
            if isinstance(row, Refusal):
                refused[i] = str(row)
                row = (ONE_BLOCK,) * len(op.operands)
            rows.append(row)
        return Followed(tuple(map(self.intern, zip(*rows, strict=True))), refused)


def _row(op: Op, wanted: Sequence[Schedule | None], is_output: bool) -> tuple[Schedule | None, ...] | Refusal:
    """One root schedule: the operands' schedules."""
    schedule = agree(op, wanted)
    if isinstance(schedule, Refusal):
        return schedule
    refusal = may_be_inlined(op, is_output) if schedule is None else None
    return refusal or operand_schedules(op, schedule)


def _signature(op: Op) -> Hashable:
    """What schedule rules look at."""
    shapes = tuple(v.shape for v in (*op.operands, *op.results))
    attrs = tuple((k, v) for k, v in op.attrs.items() if not isinstance(v, np.ndarray))
    return op.name, shapes, attrs
