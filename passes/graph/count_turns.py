"""How often a loop turns, where constants say it.

while i < 28:  i = i + 1        i carried in place 0, from 0 in steps of 1, 28 trips
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from jstitch.ir.graph import Graph, Op
from jstitch.ir.ops.build import splat_value
from jstitch.passes.base.rewrite import Producer


@dataclass(frozen=True)
class Counter:
    """The carried value that counts: its place, start and step, and how often the loop turns."""

    place: int
    start: int
    step: int
    trips: int


def count_turns(op: Op, producer: Producer) -> Counter | None:
    """Of a loop `while i < limit: i += step`, when constants say where it starts, goes by, and ends."""
    condition, body = op.regions
    test = condition.producers().get(condition.outputs[0])
    if test is None or test.name != "stablehlo.compare" or test.attrs["comparison_direction"] != "LT":
        return None
    places = {v: n for n, v in enumerate(condition.inputs)}
    place = places.get(test.operands[0])
    if place is None:
        return None
    start, bound = producer(op.operands[place]), test.operands[1]
    limit = condition.producers().get(bound) or producer(bound)
    if (kept := places.get(bound)) is not None and body.outputs[kept] is body.inputs[kept]:
        limit = producer(op.operands[kept])
    first, last = number_of(start), number_of(limit)
    step = step_of(body, place, producer)
    if step is None or first is None or last is None:
        return None
    return Counter(place, first, step, max(0, -((first - last) // step)))


def number_of(op: Op | None) -> int | None:
    """The integer that an op makes, in every element."""
    value = splat_value(op)
    return int(value) if value is not None and np.issubdtype(value.dtype, np.integer) else None


def step_of(body: Graph, place: int, producer: Producer) -> int | None:
    """What the body adds to a carried value, when that is a positive constant."""
    producers = body.producers()
    grown = producers.get(body.outputs[place])
    if grown is None or grown.name != "stablehlo.add" or grown.operands[0] is not body.inputs[place]:
        return None
    step = number_of(producers.get(grown.operands[1]) or producer(grown.operands[1]))
    return step if step is not None and step > 0 else None
