"""Multiply what a loop's turns make behind the loop, all of it at once, instead of in each turn.

    while:  %d = ...;  %g1 = add %g, (dot_general (xs[turn]), %d : rows contracted)
            ys[turn] = dot_general %d, %w
->
    while:  %d = ...;  ds[turn] = %d
    %g = add %g0, (dot_general xs, ds : turns and rows contracted);  ys = dot_general ds, %w

Gradients of a cell's weights, and of what it is given, are such products: no turn waits for them. One product
of all turns takes less time than many of few rows, and without them rows of the batch have nothing to do with
each other. What is multiplied goes to memory for it: no more than the loop's own stacks already take.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import WHILE, build
from jstitch.ir.types import TensorType
from jstitch.passes.base.context import Context
from jstitch.passes.base.product_side import PRODUCT, Side
from jstitch.passes.base.rewrite import Producer, Replacement, has, rewrite
from jstitch.passes.graph.dce import dce
from jstitch.passes.graph.find_recurrence import takes_loops
from jstitch.passes.graph.turn_stacks import TurnStacks, product_of_turns, turns_of

SUM = "stablehlo.add"
TRANSPOSE = "stablehlo.transpose"
UPDATE = "stablehlo.dynamic_update_slice"


def sink_products(graph: Graph, context: Context) -> Graph:
    """The graph with such products behind their loops."""
    if not (takes_loops(context) and has(graph, WHILE)):
        return graph
    live = dce(graph)  # what nobody reads is no reader of a product
    found = rewrite(live, _rule, of=(WHILE,))
    return graph if found is live else found


@dataclass(frozen=True)
class _Sunk:
    """A carried value that goes behind the loop. made: the op of a turn that makes it, or what it grows by.

    moves: reshapes and transposes behind that. factors: what is to be there of all turns. is_stack: whether
    turns leave parts of it; else they add to it.
    """

    place: int
    made: Op
    moves: tuple[Op, ...]
    factors: tuple[Value, ...]
    is_stack: bool = False


def _rule(op: Op, producer: Producer) -> Replacement | None:
    counter = turns_of(op, producer)
    return None if counter is None else _Loop(op, counter, producer).sunk()


@dataclass(eq=False)
class _Loop(TurnStacks):
    """Takes products out of one loop.

    Stacks have turns in the order of one of its own. new: what turns have to leave for it -> its stack.
    """

    new: dict[Value, Value] = field(default_factory=dict)

    def sunk(self) -> Replacement | None:
        found = list(self.found()) if self.start is not None else []
        for v in (v for s in found for v in s.factors if self.read_from(v) is None):
            self.new.setdefault(v, Value(TensorType((self.turns, *v.shape), v.tensor.dtype)))
        room = sum(v.tensor.nbytes for v in {*self.op.uses, *self.op.results})
        fits = sum(v.tensor.nbytes for v in self.new.values()) <= room
        return self.without(found) if found and fits else None

    # -- what may go ------------------------------------------------------------------------------------

    def found(self) -> Iterator[_Sunk]:
        """Carried values that no turn needs, and that are products; and sums of what these multiply."""
        places = range(len(self.body.inputs))
        products = [s for n in places if (s := self.total(n) or self.stack(n)) is not None]
        yield from products
        stacked = {v for s in products for v in s.factors}
        for n in places:
            made, moves = self.added(n)
            if made is not None and self.adds_up(made) and made.operands[0] in stacked:
                yield _Sunk(n, made, moves, (made.operands[0],))

    def total(self, place: int) -> _Sunk | None:
        """A sum of products."""
        made, moves = self.added(place)
        if made is None or made.name != PRODUCT or any(map(self.is_given, made.operands)):
            return None
        return _Sunk(place, made, moves, made.operands)

    def added(self, place: int) -> tuple[Op | None, tuple[Op, ...]]:
        """What makes what each turn adds to a carried value with which it does nothing else."""
        before, after = self.body.inputs[place], self.body.outputs[place]
        plus = self.producers.get(after)
        if plus is None or plus.name != SUM or not self.is_link(before, after):
            return None, ()
        others = [v for v in plus.operands if v is not before]
        return self.maker(others[0]) if len(others) == 1 else (None, ())

    def maker(self, v: Value) -> tuple[Op | None, tuple[Op, ...]]:
        """What makes a value that nobody else reads, and how its elements are moved after that."""
        moves: list[Op] = []
        while self.is_alone(v) and (made := self.producers.get(v)) is not None:
            if not build.is_reshape(made) and made.name != TRANSPOSE:
                return made, tuple(moves[::-1])
            moves.append(made)
            (v,) = made.operands
        return None, ()

    def stack(self, place: int) -> _Sunk | None:
        """A stack of products with something that is the same in all turns."""
        part = self.part_at(place)
        made, moves = self.maker(part) if part is not None else (None, ())
        if made is None or made.name != PRODUCT or Side.of(made, 0).batch:
            return None
        if not self.is_given(made.operands[1]) or self.is_given(made.operands[0]):
            return None
        return _Sunk(place, made, moves, made.operands[:1], is_stack=True)

    def adds_up(self, op: Op) -> bool:
        """Whether it is the sum of one tensor over dimensions."""
        if op.attrs.get("monoid") != SUM or "dimensions" not in op.attrs or len(op.operands) != 2:
            return False
        start = build.splat_value(self.producers.get(op.operands[1]) or self.producer(op.operands[1]))
        return start is not None and not start

    # -- behind the loop --------------------------------------------------------------------------------

    def behind(self, sunk: _Sunk) -> list[Op]:
        """The ops that make it of all turns; the last one's result is it."""
        ops = [build.reshape(self.of_turns(v), (self.turns, *v.shape)) for v in sunk.factors]
        stacks = [op.result for op in ops]
        made = sunk.made
        if made.name != PRODUCT:
            zero = build.splat(TensorType((), stacks[0].tensor.dtype), 0)
            dims = (0, *(d + 1 for d in made.attrs["dimensions"]))
            ops += (zero, build.reduce(SUM, stacks[0], zero.result, dims))
        elif sunk.is_stack:
            shape = self.turns, *made.result.shape
            ops.append(product_of_turns(made, (*stacks, self.outside(made.operands[1])), shape, (1, 0), ()))
        else:
            ops.append(product_of_turns(made, stacks, made.result.shape, (1, 1), (0,)))
        for move in sunk.moves:
            ops.append(_moved(move, ops[-1].result, sunk.is_stack, self.turns))
        result, last = ops[-1].result, self.op.results[sunk.place]
        start = self.op.operands[sunk.place]
        ops.append(build.reshape(result, last.shape) if sunk.is_stack else build.add(start, result))
        return [op.located(made) for op in ops]

    def of_turns(self, v: Value) -> Value:
        return self.new[v] if v in self.new else self.read_from(v) or v

    def without(self, found: Sequence[_Sunk]) -> Replacement:
        """The loop, with what it leaves for the products, and these."""
        gone = {s.place for s in found}
        last = {self.producers[self.body.outputs[n]] for n in gone}
        stays = [n for n in range(len(self.body.inputs)) if n not in gone]
        wholes = list(self.new.values())
        starts = [build.splat(v.tensor, 0) for v in wholes]
        before = [Value(v.tensor) for v in wholes]
        updates = [self.update(w, v) for w, v in zip(before, self.new, strict=True)]

        def kept(values: Sequence[Value], more: Iterable[Value]) -> tuple[Value, ...]:
            return (*(values[n] for n in stays), *more)

        body = Graph(
            kept(self.body.inputs, before),
            (*(op for op in self.body.ops if op not in last), *itertools.chain(*updates)),
            kept(self.body.outputs, (ops[-1].result for ops in updates)),
        )
        tests = kept(self.condition.inputs, (Value(v.tensor) for v in wholes))
        loop = replace(
            self.op,
            operands=kept(self.op.operands, (op.result for op in starts)),
            results=kept(self.op.results, wholes),
            regions=(replace(self.condition, inputs=tests), body),
        )
        made = {s.place: self.behind(s) for s in found}
        values = (made[n][-1].result if n in made else v for n, v in enumerate(self.op.results))
        return Replacement(tuple(values), (*starts, loop, *itertools.chain(*made.values())))

    def update(self, whole: Value, v: Value) -> list[Op]:
        """A turn leaves the value."""
        assert self.start is not None
        made = self.producers.get(v, self.op)
        part = build.reshape(v, (1, *v.shape))
        zero = build.splat(self.start.tensor, 0)
        starts = (self.start, *[zero.result] * v.tensor.rank)
        update = build.op(UPDATE, (whole, part.result, *starts), whole.tensor)
        return [op.located(made) for op in (part, zero, update)]


def _moved(move: Op, v: Value, is_stack: bool, turns: int) -> Op:
    """The reshape or transpose of a turn, of all turns."""
    if move.name != TRANSPOSE:
        return build.reshape(v, (turns, *move.result.shape) if is_stack else move.result.shape)
    order = move.attrs["permutation"]
    return build.transpose(v, (0, *(d + 1 for d in order)) if is_stack else order)
