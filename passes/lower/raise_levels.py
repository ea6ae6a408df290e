"""Do a row's work in the phase that goes on with it, rather than write its values for that phase.

    phase 0: key = f(k);  p = softmax(s)           ->    phase 0: key = f(k)
    phase 1: y = p * mask(key)    reads p                phase 1: p = softmax(s);  y = p * mask(key)

Levels come as early as they can; here ops go up to the level of what they are for, where that moves fewer
bytes: the values that need not wait in memory, less what has to be read there for a second time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from jstitch.ir.graph import Op, Value
from jstitch.ir.node_graph import connected_parts
from jstitch.passes.base.plan import is_free


@dataclass(eq=False)
class RowFlow:
    """Ops of a pattern in order and their levels, which `raise_levels` changes.

    users: of each op, those that read its rows inside one program. spilled: values in memory. is_dear:
    whether a value is written for a later level rather than computed again there.
    """

    ops: Sequence[Op]
    level: dict[Op, int]
    users: Mapping[Op, Sequence[Op]]
    spilled: Iterable[Value]
    is_dear: Callable[[Value], bool]
    makers: dict[Op, list[Op]] = field(init=False)
    readers: dict[Value, list[Op]] = field(init=False)

    def __post_init__(self) -> None:
        self.makers = {}
        for op, users in self.users.items():
            for user in users:
                self.makers.setdefault(user, []).append(op)
        held = set(self.spilled)
        made = {v for op in self.ops if not is_free(op) for v in op.results} - held
        given = {v for op in self.ops if is_free(op) for v in op.results}
        self.fixed = {op for op in self.ops if held.intersection(op.results)}
        self.readers = {}
        for op in self.level:
            for v in dict.fromkeys(op.operands):
                if v not in made and v not in given:
                    self.readers.setdefault(v, []).append(op)


def raise_levels(flow: RowFlow) -> None:
    """Raise what saves bytes, one level at a time, until nothing does."""
    moving = True
    while moving:
        moving = False
        for low in range(max(flow.level.values(), default=0) - 1, -1, -1):
            for part in _parts(flow, low):
                if _saved(flow, part, low) > 0:
                    flow.level.update(dict.fromkeys(part, low + 1))
                    moving = True


def _parts(flow: RowFlow, low: int) -> Iterator[set[Op]]:
    """Ops of a level that nothing there has to wait for, those of one row together."""
    free: dict[Op, None] = {}
    for op in reversed(flow.ops):
        if flow.level.get(op) == low and op not in flow.fixed:
            if all(flow.level[u] > low or u in free for u in flow.users.get(op, ())):
                free[op] = None
    rows = ((op, u) for op in free for u in flow.users.get(op, ()) if u in free)
    yield from connected_parts(free, rows)


def _saved(flow: RowFlow, part: set[Op], low: int) -> int:
    """Bytes that are not written and read, less those that are read once more, when a part goes up."""
    waits = (v for op in part for v in _values(flow, op) if any(flow.level[u] > low for u in flow.users[op]))
    saved = 2 * sum(v.tensor.nbytes for v in waits if flow.is_dear(v))
    if not saved:
        return 0
    behind = {m for op in part for m in flow.makers.get(op, ()) if m not in part and flow.level[m] == low}
    for v in (v for m in behind for v in _values(flow, m)):
        saved -= (1 + flow.is_dear(v)) * v.tensor.nbytes
    return saved + sum(_read_less(flow, v, part, low) for v in _reads(flow, part))


def _values(flow: RowFlow, op: Op) -> tuple[Value, ...]:
    return op.results if flow.users.get(op) else ()


def _reads(flow: RowFlow, part: set[Op]) -> dict[Value, None]:
    return dict.fromkeys(v for op in part for v in op.operands if v in flow.readers)


def _read_less(flow: RowFlow, v: Value, part: set[Op], low: int) -> int:
    """Bytes of one value in memory: read at the level above anyway, or still read at this one."""
    levels = {flow.level[op] for op in flow.readers[v] if op not in part}
    return v.tensor.nbytes * ((low + 1 in levels) - (low in levels))
