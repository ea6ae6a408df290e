"""Write several turns of a counted loop out in its body, so that it counts less often.

    while i < 28:  %y = f(%x, i);  i = i + 1
->
    while i < 28:  %a = f(%x, i);  %b = f(%a, i + 1);  %c = f(%b, i + 2);  %y = f(%c, i + 3);  i = i + 4

On a GPU a turn of a scan is a handful of launches, of which one only counts; and what ends one turn can share
a kernel with what begins the next. What every turn makes anew from what it carries, such as the caches of
beams that a search goes on with, goes back and forth between two places in two turns; after one it is copied
back. Loops are taken whose trip count follows from constants and has a divisor.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import build
from jstitch.ir.ops.build import splat_value
from jstitch.ir.ops.effects import has_effects
from jstitch.ir.types import TensorType
from jstitch.passes.profile import current
from jstitch.passes.rewrite import Producer, Replacement, is_control, rewrite
from jstitch.passes.unroll_loops import write_out

MAX_OPS = 1000  # of a body with all its turns
PAIR_OPS = 3000  # of a body with two


def unroll_turns(graph: Graph) -> Graph:
    """The graph with turns written out in the bodies of its innermost loops, where the target wants it."""
    return rewrite(graph, _rule) if current().turns > 1 else graph


@dataclass(frozen=True)
class _Counter:
    """The carried value that counts: its place, what it grows by, and how often the loop turns."""

    place: int
    step: int
    trips: int


def _rule(op: Op, producer: Producer) -> Replacement | None:
    if op.name != "stablehlo.while" or not all(map(_is_simple, op.regions[1].ops)):
        return None
    counter = _counter(op, producer)
    if counter is None:
        return None
    size = len(op.regions[1].ops)
    most = min(current().turns, max(MAX_OPS // max(1, size), 2 if 2 * size <= PAIR_OPS else 1))
    turns = next((k for k in range(most, 1, -1) if counter.trips % k == 0 and counter.trips > k), 1)
    if turns == 1:
        return None
    body = _several(op.regions[1], counter, turns, op.scope)
    new = replace(op, regions=(op.regions[0], body))
    return Replacement(op.results, (new,))


def _is_simple(op: Op) -> bool:
    tensors = all(isinstance(v.type, TensorType) for v in (*op.uses, *op.results))
    return tensors and not is_control(op) and not has_effects(op)


def _counter(op: Op, producer: Producer) -> _Counter | None:
    """Of a loop `while i < limit: i += step`, when constants say where it starts, goes by, and ends."""
    condition, body = op.regions
    test = condition.producers().get(condition.outputs[0])
    if test is None or test.name != "stablehlo.compare" or test.attrs["comparison_direction"] != "LT":
        return None
    places = {v: n for n, v in enumerate(condition.inputs)}
    place = places.get(test.operands[0])
    if place is None:
        return None
    start, limit = producer(op.operands[place]), condition.producers().get(test.operands[1])
    if (kept := places.get(test.operands[1])) is not None and body.outputs[kept] is body.inputs[kept]:
        limit = producer(op.operands[kept])
    bounds = [_number(made) for made in (start, limit)]
    step = _step(body, place, producer)
    if step is None or bounds[0] is None or bounds[1] is None:
        return None
    return _Counter(place, step, max(0, -((bounds[0] - bounds[1]) // step)))


def _number(op: Op | None) -> int | None:
    value = splat_value(op)
    return int(value) if value is not None and np.issubdtype(value.dtype, np.integer) else None


def _step(body: Graph, place: int, producer: Producer) -> int | None:
    """What the body adds to the counter, when that is a positive constant."""
    producers = body.producers()
    grown = producers.get(body.outputs[place])
    if grown is None or grown.name != "stablehlo.add" or grown.operands[0] is not body.inputs[place]:
        return None
    step = _number(producers.get(grown.operands[1]) or producer(grown.operands[1]))
    return step if step is not None and step > 0 else None


def _several(body: Graph, counter: _Counter, turns: int, scope: str) -> Graph:
    ops: list[Op] = []
    first = body.inputs[counter.place]
    carried: tuple[Value, ...] = body.inputs
    for turn in range(turns):
        at = _moved(body, first, turn * counter.step, ops) if turn else first
        carried = write_out(body, _put(carried, counter.place, at), ops, scope, turn)
    last = _moved(body, first, turns * counter.step, ops)
    return Graph(body.inputs, tuple(ops), _put(carried, counter.place, last))


def _moved(body: Graph, first: Value, distance: int, ops: list[Op]) -> Value:
    """The counter further on."""
    step = next(op for op in body.ops if first in op.operands)
    constant = build.splat(first.tensor, distance)
    moved = build.add(first, constant.result)
    ops += (constant.located(step), moved.located(step))
    return moved.result


def _put(values: tuple[Value, ...], place: int, value: Value) -> tuple[Value, ...]:
    return (*values[:place], value, *values[place + 1 :])
