"""Write a loop whose turns are several of the same turns as one with as many more turns, if that is a kernel.

    while i < 512, x [512, 4, 8]                          while i < 2048, x [2048, 8]
      four copies of a turn, of x[i, 0] ... x[i, 3]   ->    one turn, of x[i]

`unroll=4` saves XLA three of four starts of its kernels. In one kernel there are none, and copies of a turn
are only more code, whose parts of stacks lie apart. A loop that is no kernel stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import WHILE, build
from jstitch.passes.base.context import Context
from jstitch.passes.base.rewrite import Producer, Replacement, rewrite
from jstitch.passes.fuse.find_copies import WRITE, Copies, Stack, find_copies
from jstitch.passes.fuse.unroll_loops import is_kernel
from jstitch.passes.graph.find_recurrence import takes_loops


def roll_loops(graph: Graph, context: Context) -> Graph:
    """The graph with loops rolled up that are kernels then."""
    if not takes_loops(context):
        return graph
    return rewrite(graph, partial(_rule, context=context), of=(WHILE,))


def _rule(op: Op, producer: Producer, *, context: Context) -> Replacement | None:
    found = find_copies(op, producer)
    if found is None:
        return None
    made = _Writer(op, found).write()
    inside = {v: o for o in made.ops for v in o.results}
    loop = next(o for o in made.ops if o.name == WHILE)
    if not is_kernel(loop, lambda v: inside.get(v) or producer(v), context):
        return None
    return made


@dataclass
class _Writer:
    loop: Op
    copies: Copies
    before: list[Op] = field(default_factory=list)
    turn: list[Op] = field(default_factory=list)

    @property
    def turns(self) -> int:
        return self.copies.counter.trips * self.copies.count

    def write(self) -> Replacement:
        body = self.loop.regions[1]
        stacks = {s.place for s in (*self.copies.reads, *self.copies.writes)}
        operands = tuple(self._flat(v) if n in stacks else v for n, v in enumerate(self.loop.operands))
        inputs = tuple(Value(v.type) for v in operands)
        turn = Graph(inputs, *self._turn(body, inputs))
        results = tuple(Value(v.type) for v in inputs)
        made = replace(self.loop, operands=operands, results=results, regions=(self._goes_on(inputs), turn))
        shaped = [
            build.reshape(new, old.shape)
            for n, (new, old) in enumerate(zip(results, self.loop.results, strict=True))
            if n in stacks
        ]
        back = iter(shaped)
        values = tuple(next(back).result if n in stacks else v for n, v in enumerate(results))
        return Replacement(values, (*self.before, made, *shaped))

    def _flat(self, v: Value) -> Value:
        """A stack with a row for each turn."""
        op = build.reshape(v, (self.turns, *v.shape[2:]))
        self.before.append(op)
        return op.result

    def _goes_on(self, inputs: Sequence[Value]) -> Graph:
        own = tuple(Value(v.type) for v in inputs)
        counts = own[self.copies.counter.place]
        limit = build.splat(counts.tensor, self.turns)
        test = build.compare("LT", counts, limit.result)
        return Graph(own, (limit, test), test.results)

    def _emit(self, op: Op) -> Value:
        self.turn.append(replace(op, loc=op.loc or self.loop.loc))
        return self.turn[-1].results[0]

    def _turn(self, body: Graph, inputs: Sequence[Value]) -> tuple[tuple[Op, ...], tuple[Value, ...]]:
        """One copy: what it reads, does, and leaves."""
        found, place = self.copies, self.copies.counter.place
        names = dict(zip(body.inputs, inputs, strict=True))
        counts = inputs[place]
        for s in found.reads:
            names[s.parts[0]] = self._read(s, inputs[s.place], counts)
        for op in (*found.same, *found.ops):
            operands = tuple(names.get(v, v) for v in op.operands)
            results = tuple(Value(v.type) for v in op.results)
            self.turn.append(replace(op, operands=operands, results=results))
            names |= zip(op.results, results, strict=True)
        after = list(inputs)
        for n, v in found.after.items():
            after[n] = names.get(v, v)
        for s in found.writes:
            after[s.place] = self._write(s, names.get(s.parts[0], s.parts[0]), inputs[s.place], counts)
        one = self._emit(build.splat(counts.tensor, 1))
        after[place] = self._emit(build.add(counts, one))
        return tuple(self.turn), tuple(after)

    def _at(self, s: Stack, stack: Value, counts: Value) -> list[Value]:
        """Where a turn's row of a stack begins."""
        if s.backwards:
            last = self._emit(build.splat(counts.tensor, self.turns - 1))
            counts = self._emit(build.elementwise("stablehlo.subtract", last, counts))
        zero = self._emit(build.splat(counts.tensor, 0))
        return [counts, *[zero] * (stack.tensor.rank - 1)]

    def _read(self, s: Stack, stack: Value, counts: Value) -> Value:
        row = build.dynamic_slice(stack, self._at(s, stack, counts), (1, *stack.shape[1:]))
        return self._emit(build.reshape(self._emit(row), s.parts[0].shape))

    def _write(self, s: Stack, part: Value, stack: Value, counts: Value) -> Value:
        row = self._emit(build.reshape(part, (1, *stack.shape[1:])))
        where = self._at(s, stack, counts)
        return self._emit(build.op(WRITE, (stack, row, *where), stack.tensor))
