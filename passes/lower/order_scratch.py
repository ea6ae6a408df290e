"""The order of what lanes hand to one another in scratch memory: at even distances where lanes are alike.

    two lanes "sum x", two "sum y * y", each with a lane "divide"     ->     x0 x1, y0 y1, dx0 dx1, dy0 dy1

Lanes are alike that do the same ops, for and after lanes that are alike: whole patterns packed in one kernel.
Emitters then find a buffer of any of them at `first + lane * stride`, and need their code only once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from jstitch.ir.graph import Op, Value
from jstitch.passes.lower.form_groups import Grouping
from jstitch.passes.lower.group import Group

Lane = tuple[int, Group]
"""The ops of one group on one level."""


def order_scratch(grouping: Grouping, outputs: Collection[Value]) -> list[Value]:
    """Spilled values that are no outputs, which have memory of their own."""
    wanted = grouping.spilled.difference(outputs)
    lanes: dict[Lane, list[Op]] = {}
    for op in grouping.ops:
        if op in grouping.level_of:
            lanes.setdefault((grouping.level_of[op], grouping.group_of[op]), []).append(op)
    alike: dict[object, list[list[Value]]] = {}
    kinds = _kinds(lanes, wanted)
    for lane in sorted(lanes, key=lambda lane: lane[0]):
        kept = [v for op in lanes[lane] for v in op.results if v in wanted]
        alike.setdefault(kinds[lane], []).append(kept)
    return [
        v for values in alike.values() for side_by_side in zip(*values, strict=True) for v in side_by_side
    ]


def _kinds(lanes: Mapping[Lane, Sequence[Op]], wanted: Collection[Value]) -> Mapping[Lane, int]:
    """A number for each lane, the same for lanes that are alike and hand over the same of their values."""
    owner = {op: lane for lane, ops in lanes.items() for op in ops}
    maker = {v: op for ops in lanes.values() for op in ops for v in op.results}
    before: dict[Lane, dict[Lane, None]] = {lane: {} for lane in lanes}
    after: dict[Lane, dict[Lane, None]] = {lane: {} for lane in lanes}
    for lane, ops in lanes.items():
        for source in (owner[maker[v]] for op in ops for v in op.operands if v in maker):
            if source != lane:
                before[lane][source] = after[source][lane] = None
    own = {
        lane: tuple((op.name, *((v.type, v in wanted) for v in op.results)) for op in ops)
        for lane, ops in lanes.items()
    }
    upwards = sorted(lanes, key=lambda lane: lane[0])
    first = _numbers(upwards, lambda lane: own[lane], before)
    return _numbers(upwards[::-1], lambda lane: first[lane], after)


def _numbers(
    lanes: Sequence[Lane], own: Callable[[Lane], object], near: Mapping[Lane, Iterable[Lane]]
) -> dict[Lane, int]:
    """Equal for lanes of equal `own` whose neighbours, which stand before them, have equal numbers."""
    known: dict[object, int] = {}
    found: dict[Lane, int] = {}
    for lane in lanes:
        key = own(lane), tuple(found[other] for other in near[lane] if other in found)
        found[lane] = known.setdefault(key, len(known))
    return found
