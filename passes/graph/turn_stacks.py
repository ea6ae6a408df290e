"""What the turns of a loop read and leave one part each of: stacks, in the order of one number of the turn.

xs[127 - turn], ys[127 - turn], of 128 turns     ->     parts of one order: a value of a turn, of all turns
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from jstitch.ir.graph import Op, Value
from jstitch.ir.index import Var, bounds
from jstitch.ir.ops import build, lookup
from jstitch.ir.types import TensorType
from jstitch.passes.base.product_side import SIDES
from jstitch.passes.base.rewrite import Producer, is_control
from jstitch.passes.graph.count_turns import Counter, count_turns
from jstitch.passes.graph.find_recurrence import TURN
from jstitch.passes.graph.turn_numbers import turn_numbers

SLICE = "stablehlo.dynamic_slice"


@dataclass(eq=False)
class TurnStacks:
    """The stacks of one loop. start: a number by which turns go through them; None: there is none."""

    op: Op
    counter: Counter
    producer: Producer

    def __post_init__(self) -> None:
        self.condition, self.body = self.op.regions
        self.producers, self.users = self.body.producers(), self.body.users()
        self.turns = self.counter.trips
        self.numbers = turn_numbers(self.op, self.counter, Var(TURN, self.turns), self.producer)
        self.place_of = {v: n for n, v in enumerate(self.body.inputs)}
        self.start = next(filter(self.counts, self.starts()), None)

    def starts(self) -> Iterator[Value]:
        """By what turns read or write stacks; then all numbers of turns."""
        for op in self.body.ops:
            if op.name == SLICE and self.goes_through(op.operands[0], op.result.shape):
                yield op.operands[1]
            elif lookup(op.name).in_place and self.goes_through(op.operands[0], op.operands[1].shape):
                yield op.operands[2]
        yield from self.numbers

    def goes_through(self, whole: Value, part: Sequence[int]) -> bool:
        """Whether parts of that shape are one for each turn."""
        return tuple(part) == (1, *whole.shape[1:]) and whole.shape[0] == self.turns

    def counts(self, v: Value) -> bool:
        """Whether it is each number of a turn once."""
        at = self.numbers.get(v)
        steps = [abs(k) for _, k in at.terms] if at is not None else []
        return at is not None and steps == [1] and bounds(at) == (0, self.turns - 1)

    def in_order(self, v: Value) -> bool:
        """Whether a part that begins there is the turn's."""
        assert self.start is not None
        return self.counts(v) and self.numbers[v] == self.numbers[self.start]

    def left(self) -> dict[int, Value]:
        """Places of stacks -> the value of which each turn leaves a part, whatever its shape there."""
        found: dict[int, Value] = {}
        for n in range(len(self.body.inputs)):
            v = self.part_at(n)
            if v is not None:
                while (made := self.producers.get(v)) is not None and build.is_reshape(made):
                    (v,) = made.operands
                found[n] = v
        return found

    def part_at(self, place: int) -> Value | None:
        """What a turn leaves in the stack that is carried there; None where that is none."""
        before, after = self.body.inputs[place], self.body.outputs[place]
        update = self.producers.get(after)
        if self.start is None or update is None or not lookup(update.name).in_place:
            return None
        whole, v, start, *_ = update.operands
        fits = whole is before and self.goes_through(whole, v.shape) and self.in_order(start)
        return v if fits and self.is_link(before, after) else None

    def is_link(self, before: Value, after: Value) -> bool:
        """Whether turns do nothing with a carried value but make the next from it."""
        return self.is_alone(before) and after not in self.users and self.body.outputs.count(after) == 1

    def is_alone(self, v: Value) -> bool:
        """Whether one op reads it, and nobody else."""
        return len(self.users.get(v, ())) == 1 and v not in self.body.outputs

    def is_given(self, v: Value) -> bool:
        """Whether it is the same in all turns."""
        place = self.place_of.get(v)
        return v not in self.producers and (place is None or self.body.outputs[place] is v)

    def outside(self, v: Value) -> Value:
        """What is the same in all turns, by its name around the loop."""
        place = self.place_of.get(v)
        return v if place is None else self.op.operands[place]

    def read_from(self, v: Value) -> Value | None:
        """A stack of which each turn reads the value, by its name around the loop."""
        made = self.slice_of(v)
        return None if made is None else self.outside(made.operands[0])

    def slice_of(self, v: Value) -> Op | None:
        """What reads the value from a stack of all turns."""
        while (made := self.producers.get(v)) is not None and build.is_reshape(made):
            (v,) = made.operands
        if made is None or made.name != SLICE or not self.is_given(made.operands[0]):
            return None
        source, start, *_ = made.operands
        return made if self.goes_through(source, made.result.shape) and self.in_order(start) else None


def stacks_of(op: Op, producer: Producer) -> TurnStacks | None:
    counter = turns_of(op, producer)
    return None if counter is None else TurnStacks(op, counter, producer)


def turns_of(op: Op, producer: Producer) -> Counter | None:
    """Of a loop of tensors that turns a known number of times, twice at least."""
    if not is_control(op) or len(op.regions) != 2 or not op.regions[0].inputs:
        return None
    if not all(isinstance(v.type, TensorType) for v in (*op.uses, *op.results)):
        return None
    counter = count_turns(op, producer)
    return None if counter is None or counter.trips < 2 else counter


def product_of_turns(
    made: Op,
    operands: Sequence[Value],
    shape: Sequence[int],
    moved: tuple[int, int],
    contracted: tuple[int, ...],
) -> Op:
    """moved: dimensions that are new in front of each operand. contracted: those of them that are summed."""
    attrs = dict(made.attrs)
    for side, by in zip(SIDES, moved, strict=True):
        for kind in ("batching", "contracting"):
            name = f"{side}_{kind}_dimensions"
            attrs[name] = tuple(d + by for d in attrs[name])
        if contracted:
            name = f"{side}_contracting_dimensions"
            attrs[name] = (*contracted, *attrs[name])
    return build.op(made.name, operands, TensorType(tuple(shape), made.result.tensor.dtype), attrs)
