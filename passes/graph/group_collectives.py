"""Collectives that do not wait for one another, as one op, so that no pattern makes them.

    %1 = all_reduce %a;  %2 = all_reduce %b      ->      %1, %2 = jstitch.collectives %a, %b

XLA starts such collectives at once, or makes one of them: a kernel that reads %1 and makes %b would take that
away. To every later pass it would read from what it is read by. A device's own part of a sum, which XLA makes
a reduce_scatter, is a member with it. The members are written one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.node_graph import topological_order
from jstitch.ir.ops import COLLECTIVES
from jstitch.ir.ops.collective import COLLECTIVE, SLICED, SUMMED, devices
from jstitch.passes.base.rewrite import has, map_frames

MOST = 64  # ops that compute where a part begins


@dataclass(eq=False)
class _Joined:
    """Collectives of one kind: a name, a type, groups of devices.

    waits: for which of all groups, by their bits, itself or through others.
    """

    kind: tuple[str, ...]
    members: list[Op]
    waits: int


def group_collectives(graph: Graph) -> Graph:
    """The graph with those of one kind, type and devices that do not wait for one another as one op."""
    return map_frames(graph, _group) if has(graph, *COLLECTIVE) else graph


def _group(frame: Graph) -> Graph:
    parts = _parts(frame)
    place = {op: n for n, op in enumerate(frame.ops)}
    together: list[Op] = []
    gone: set[Op] = set()
    for found in _find(frame):
        own = [*found.members, *(parts[op][-1] for op in found.members if op in parts)]
        if len(own) > 1:
            copied = {op for member in found.members for op in parts.get(member, ())}
            together.append(_together(sorted({*own, *copied}, key=place.__getitem__)))
            gone.update(own)
    if not together:
        return frame
    alone = [op for op in frame.ops if op not in gone]
    return Graph(frame.inputs, _in_order([*alone, *together], frame), frame.outputs)


def _parts(frame: Graph) -> dict[Op, list[Op]]:
    """Sums over devices of which each device takes a part and nobody anything else -> that slice, last, and
    what its place is computed by: from the device's number alone.
    """
    readers = Counter(v for op in frame.ops for v in op.uses)
    readers.update(frame.outputs)
    makers = {v: op for op in frame.ops for v in op.results}
    found: dict[Op, list[Op]] = {}
    for op in frame.ops:
        made = makers.get(op.operands[0]) if op.name == SLICED else None
        if made is None or made.name != SUMMED or len(made.results) > 1 or readers[made.results[0]] > 1:
            continue
        places = _made_of_nothing(op.operands[1:], makers)
        if places is not None:
            found[made] = [*places, op]
    return found


def _made_of_nothing(values: Sequence[Value], makers: Mapping[Value, Op]) -> list[Op] | None:
    """The few ops that values are computed by; None where they are computed from an argument, or together."""
    found: dict[Op, None] = {}
    todo = list(values)
    while todo:
        op = makers.get(todo.pop())
        if op is None or op.name in COLLECTIVE or op.regions or len(found) > MOST:
            return None
        if op not in found:
            found[op] = None
            todo += op.uses
    return list(found)


def _find(frame: Graph) -> list[_Joined]:
    """Each joins the first group that it can: none that it waits for, also once groups are one op each."""
    groups: list[_Joined] = []
    behind: dict[Value, int] = {}  # the groups that a value waits for, by their bits
    for op in frame.ops:
        waits = 0
        for v in op.uses:
            waits |= behind.get(v, 0)
        if op.name in COLLECTIVE:
            waits |= _all_of(waits, groups)
            waits |= 1 << _join(op, waits, groups)
        behind.update(dict.fromkeys(op.results, waits))
    return groups


def _all_of(waits: int, groups: Sequence[_Joined]) -> int:
    """What those groups wait for."""
    found = 0
    for n, group in enumerate(groups):
        if waits >> n & 1:
            found |= group.waits
    return found


def _join(op: Op, waits: int, groups: list[_Joined]) -> int:
    """The number of the group that the op is put into."""
    kind = op.name, str(op.operands[0].tensor.dtype), devices(op)
    fitting = [n for n, g in enumerate(groups) if g.kind == kind and not waits >> n & 1]
    if not fitting:
        groups.append(_Joined(kind, [op], waits))
        return len(groups) - 1
    number = fitting[0]
    groups[number].members.append(op)
    for n, group in enumerate(groups):
        if n == number or group.waits >> number & 1:
            group.waits |= waits
    return number


def _together(members: Sequence[Op]) -> Op:
    """One op of members, each behind those that it reads. What only members read is nobody else's."""
    made = {v: Value(v.type) for op in members for v in op.results}
    operands = tuple(dict.fromkeys(v for op in members for v in op.uses if v not in made))
    inside = {v: Value(v.type) for v in operands} | made
    ops = (
        replace(op, operands=tuple(inside[v] for v in op.uses), results=tuple(made[v] for v in op.results))
        for op in members
    )
    hidden = {v for op in members for v in op.uses if v in made}
    results = tuple(v for v in made if v not in hidden)
    body = Graph(tuple(inside[v] for v in operands), tuple(ops), tuple(made[v] for v in results))
    return Op(COLLECTIVES, operands, results, {}, (body,)).located(members[-1])


def _in_order(ops: Sequence[Op], frame: Graph) -> tuple[Op, ...]:
    """Each behind what it reads; else as in the frame, groups where their last one was."""
    place = {v: n for n, op in enumerate(frame.ops) for v in op.results}
    own = {op: n for n, op in enumerate(frame.ops)}
    maker = {v: op for op in ops for v in op.results}
    waits = ((maker[v], op) for op in ops for v in op.uses if v in maker)
    key = {op: own[op] if op in own else max(place[v] for v in op.results) for op in ops}
    order = topological_order(ops, waits, key.__getitem__)
    assert order is not None, "groups that wait for each other"
    return tuple(order)
