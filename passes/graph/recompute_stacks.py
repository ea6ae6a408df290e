"""Compute again from other stacks, where it is read, what a loop would leave in a stack of its own.

while:  gs[turn] = %g;  ds[turn] = %g * (1 - %g)           while:  gs[turn] = %g
while:  ... ds[127 - turn]                           ->    while:  g = gs[127 - turn];  ... g * (1 - g)

A gradient keeps what its way back multiplies with, each of it as a stack of all turns. A few light ops of
what is kept anyway take less time than memory does, and less memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from dataclasses import dataclass, replace

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import WHILE, OpClass, build, lookup
from jstitch.passes.base.context import Context
from jstitch.passes.base.plan import is_free
from jstitch.passes.base.rewrite import Producer, has, is_control, map_frames
from jstitch.passes.graph.dce import dce
from jstitch.passes.graph.find_recurrence import takes_loops
from jstitch.passes.graph.turn_stacks import SLICE, stacks_of

CHEAP = 6.0  # cycles of an element, about those of a load and a store from beyond the caches
MOST_OPS, MOST_SOURCES = 6, 2


def recompute_stacks(graph: Graph, context: Context) -> Graph:
    """The graph without stacks that are only read by other loops, and are little work to make of others."""
    if not (takes_loops(context) and has(graph, WHILE)):
        return graph
    live = dce(graph)
    changed: list[Graph] = []

    def again(frame: Graph) -> Graph:
        found = _rewritten(frame)
        changed.extend([found] if found is not frame else [])
        return found

    found = map_frames(live, again)
    return found if changed else graph


@dataclass(frozen=True)
class _Again:
    """What a stack holds, and what that is made of.

    value: of a turn. ops: in order, of `sources`, values that are in stacks: the results of the loop.
    """

    value: Value
    ops: tuple[Op, ...]
    sources: Mapping[Value, Value]


def _rewritten(frame: Graph) -> Graph:
    producers, users = frame.producers(), frame.users()

    def is_read_in_parts(stack: Value) -> bool:
        """Whether other loops alone read it, a part in each turn."""
        readers = users.get(stack, ())
        ends = [r for op in readers for v, r in zip(op.operands, op.results, strict=False) if v is stack]
        unread = not any(v in users or v in frame.outputs for v in ends)
        alone = bool(readers) and stack not in frame.outputs and unread
        return alone and all(_reads_parts(op, stack) for op in readers)

    again: dict[Value, _Again] = {}
    for op in filter(_is_loop, frame.ops):
        again |= _again(op, producers.get, is_read_in_parts)
    if not again:
        return frame
    return Graph(frame.inputs, tuple(_without_stacks(op, again) for op in frame.ops), frame.outputs)


def _is_loop(op: Op) -> bool:
    return is_control(op) and len(op.regions) == 2 and bool(op.regions[0].inputs)


# -- what may be made again --------------------------------------------------------------------------------


def _reads_parts(op: Op, stack: Value) -> bool:
    """Whether it is a loop that leaves the stack as it is, and reads elements of dimension 0 one by one."""
    if not _is_loop(op) or any(stack in region.captures for region in op.regions):
        return False
    condition, body = op.regions
    for n in (n for n, v in enumerate(op.operands) if v is stack):
        inside, test = body.inputs[n], condition.inputs[n]
        if body.outputs[n] is not inside or body.outputs.count(inside) != 1:
            return False
        if test in condition.users() or test in condition.outputs:
            return False
        if not all(_is_part(user, inside) for user in body.users().get(inside, ())):
            return False
    return True


def _is_part(op: Op, stack: Value) -> bool:
    return op.name == SLICE and stack not in op.operands[1:] and op.result.shape == (1, *stack.shape[1:])


def _again(op: Op, producer: Producer, may_go: Callable[[Value], bool]) -> dict[Value, _Again]:
    """The loop's stacks that may go."""
    loop = stacks_of(op, producer)
    if loop is None:
        return {}
    order = {o: n for n, o in enumerate(loop.body.ops)}
    left = {v: op.results[n] for n, v in loop.left().items()}
    found: dict[Value, _Again] = {}
    for v in sorted(left, key=lambda v: order[loop.producers[v]] if v in loop.producers else -1):
        kept = {u: stack for u, stack in left.items() if stack not in found and u is not v}
        ops = _made_of(v, kept, loop.producers) if may_go(left[v]) else None
        if ops is not None:
            read = {u: kept[u] for o in ops for u in o.operands if u in kept}
            found[left[v]] = _Again(v, tuple(sorted(ops, key=order.__getitem__)), read)
    return found


def _made_of(v: Value, kept: Container[Value], producers: Mapping[Value, Op]) -> set[Op] | None:
    """A few light ops that make a value of values that are kept."""
    found: set[Op] = set()
    todo, cycles, sources = [v], 0.0, set[Value]()
    while todo:
        u = todo.pop()
        made = producers.get(u)
        if u in kept:
            sources.add(u)
        elif made is None or len(made.results) > 1 or len(found) > MOST_OPS or cycles > CHEAP:
            return None
        elif made not in found:
            found.add(made)
            if is_free(made) and not made.operands:
                continue
            definition = lookup(made.name)
            alike = all(w.shape == made.result.shape for w in made.operands)
            if definition.op_class is not OpClass.LIGHT or not alike:
                return None
            cycles += definition.cpi
            todo += made.operands
    return found if 0 < len(sources) <= MOST_SOURCES and cycles <= CHEAP else None


# -- loops without them --------------------------------------------------------------------------------------


def _without_stacks(op: Op, again: Mapping[Value, _Again]) -> Op:
    """The op, which neither leaves nor reads what is made again."""
    left = {n for n, v in enumerate(op.results) if v in again}
    read = {n for n, v in enumerate(op.operands) if v in again}
    if read:
        op = _reading(op, {n: again[op.operands[n]] for n in read})
    return _without(op, left | read) if left or read else op


def _reading(op: Op, again: Mapping[int, _Again]) -> Op:
    """The loop, which makes the parts of some of its operands."""
    condition, body = op.regions
    given = {v: body.inputs[n] for n, v in enumerate(op.operands) if body.outputs[n] is body.inputs[n]}
    more = dict.fromkeys(s for a in again.values() for s in a.sources.values() if s not in given)
    added = {v: Value(v.tensor) for v in more}
    inside = {**given, **added}
    by_input = {body.inputs[n]: a for n, a in again.items()}
    ops: list[Op] = []
    for o in body.ops:
        a = by_input.get(o.operands[0]) if o.operands else None
        ops += [o] if a is None else _part(o, a, inside)
    new = tuple(added.values())
    tests = tuple(Value(v.tensor) for v in more)
    regions = (
        replace(condition, inputs=(*condition.inputs, *tests)),
        Graph((*body.inputs, *new), tuple(ops), (*body.outputs, *new)),
    )
    results = (*op.results, *(Value(v.tensor) for v in more))
    return replace(op, operands=(*op.operands, *more), results=results, regions=regions)


def _part(part: Op, again: _Again, inside: Mapping[Value, Value]) -> list[Op]:
    """The ops that make a part of a stack. inside: stacks, by their names around the loop."""
    start = part.operands[1]
    zero = build.splat(start.tensor, 0)
    ops = [zero]
    known: dict[Value, Value] = {}
    for v, stack in again.sources.items():
        whole = inside[stack]
        starts = (start, *[zero.result] * (whole.tensor.rank - 1))
        taken = build.dynamic_slice(whole, starts, (1, *whole.shape[1:]))
        shaped = build.reshape(taken.result, v.shape)
        known[v] = shaped.result
        ops += (taken, shaped)
    for o in again.ops:
        result = Value(o.result.tensor)
        ops.append(replace(o, operands=tuple(known[v] for v in o.operands), results=(result,)))
        known[o.result] = result
    ops.append(replace(build.reshape(known[again.value], part.result.shape), results=part.results))
    return [o if o.loc else o.located(part) for o in ops]


def _without(op: Op, places: Collection[int]) -> Op:
    """The loop without carried values that nobody reads, but to write the next ones."""
    condition, body = op.regions
    made = body.producers()
    dead = {made[body.outputs[n]] for n in places if body.outputs[n] is not body.inputs[n]}

    def kept(values: Sequence[Value]) -> tuple[Value, ...]:
        return tuple(v for n, v in enumerate(values) if n not in places)

    ops = tuple(o for o in body.ops if o not in dead)
    regions = (
        replace(condition, inputs=kept(condition.inputs)),
        Graph(kept(body.inputs), ops, kept(body.outputs)),
    )
    return replace(op, operands=kept(op.operands), results=kept(op.results), regions=regions)
