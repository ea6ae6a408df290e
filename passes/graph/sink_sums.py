"""Sum the elements that a loop's turns add up behind the loop instead of in each turn.

    while:  %g : 128;     %g1 = add %g, (reduce add %v : 32x128, dims 0)
->
    while:  %g : 32x128;  %g1 = add %g, %v                    %r = add %g0, (reduce add %g, dims 0)

The gradient of what every turn multiplies all rows with is such a sum. Without it a turn needs nothing of
other elements, and the loop can be one kernel; so it is done where nothing else stands against that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import WHILE, OpClass, build, lookup
from jstitch.ir.types import TensorType
from jstitch.passes.base.context import Context
from jstitch.passes.base.rewrite import Producer, Replacement, has, rewrite
from jstitch.passes.graph.count_turns import count_turns
from jstitch.passes.graph.dce import dce
from jstitch.passes.graph.find_recurrence import takes_loops

SUM = "stablehlo.add"


@dataclass(frozen=True)
class Sum:
    """A carried value, its place, and what each turn adds to it: the reduction, and reshapes of that."""

    place: int
    added: Op
    reduction: Op
    reshapes: tuple[Op, ...]

    @property
    def ops(self) -> tuple[Op, ...]:
        return (self.added, self.reduction, *self.reshapes)


def sink_sums(graph: Graph, context: Context) -> Graph:
    """The graph with the sums of such loops behind them, where loops may be kernels."""
    if not (takes_loops(context) and has(graph, WHILE)):
        return graph
    live = dce(graph)  # what nobody reads is no reader of a sum
    found = rewrite(live, _rule, of=(WHILE,))
    return graph if found is live else found


def _rule(op: Op, producer: Producer) -> Replacement | None:
    body = op.regions[1]
    sums = _sums(body)
    gone = {o for s in sums for o in s.ops}
    simple = all(_is_simple(o) for o in body.ops if o not in gone)
    if not sums or not simple or count_turns(op, producer) is None:
        return None
    return _sunk(op, sums)


def _is_simple(op: Op) -> bool:
    """Whether a kernel may compute it element by element."""
    kinds = (OpClass.LIGHT, OpClass.EXPENSIVE, OpClass.SHAPE, OpClass.INDEX, OpClass.CONSTANT)
    tensors = all(isinstance(v.type, TensorType) for v in (*op.operands, *op.results))
    return tensors and not op.regions and lookup(op.name).op_class in kinds


def _sums(body: Graph) -> list[Sum]:
    """What turns do nothing with but add a sum to it."""
    return sums_of(body, _adds_up)


def sums_of(body: Graph, adds_up: Callable[[Op, Producer], bool]) -> list[Sum]:
    """Carried values that turns do nothing with but add to what such an op makes. body: of a loop."""
    reader = _Reader(body, adds_up)
    places = enumerate(zip(body.inputs, body.outputs, strict=True))
    found = (reader.sum_at(place, before, after) for place, (before, after) in places)
    return [s for s in found if s is not None]


class _Reader:
    """Looks at the body of a loop."""

    def __init__(self, body: Graph, adds_up: Callable[[Op, Producer], bool]) -> None:
        self.body, self.producers, self.users = body, body.producers(), body.users()
        self.adds_up = adds_up

    def sum_at(self, place: int, before: Value, after: Value) -> Sum | None:
        added = self.producers.get(after)
        if added is None or added.name != SUM or not self.is_alone(before) or after in self.users:
            return None
        others = [v for v in added.operands if v is not before]
        if len(others) != 1 or self.body.outputs.count(after) != 1:
            return None
        (term,) = others
        reshapes: list[Op] = []
        while (maker := self.producers.get(term)) is not None and self.is_alone(term):
            if self.adds_up(maker, self.producers.get):
                return Sum(place, added, maker, tuple(reshapes))
            if not build.is_reshape(maker):
                return None
            reshapes.insert(0, maker)
            (term,) = maker.operands
        return None

    def is_alone(self, v: Value) -> bool:
        """Whether one op reads it, and nobody else."""
        return len(self.users.get(v, ())) == 1 and v not in self.body.outputs


def _adds_up(op: Op, producer: Producer) -> bool:
    """Whether it is the sum of one tensor over dimensions."""
    if "dimensions" not in op.attrs or op.attrs.get("monoid") != SUM or len(op.operands) != 2:
        return False
    start = build.splat_value(producer(op.operands[1]))
    return start is not None and not start


def _sunk(op: Op, sums: Sequence[Sum]) -> Replacement:
    condition, body = op.regions
    inputs, outputs, operands = list(body.inputs), list(body.outputs), list(op.operands)
    tests, results = list(condition.inputs), list(op.results)
    zeros, behind = list[Op](), list[Op]()
    new: dict[Op, Op] = {}
    totals: dict[int, Value] = {}
    for s in sums:
        term, n = s.reduction.operands[0], s.place
        before, result, zero = Value(term.tensor), Value(term.tensor), build.splat(term.tensor, 0)
        new[s.added] = build.add(before, term).located(s.added)
        zeros.append(zero)
        behind += _total(s, result, op.operands[n])
        totals[n] = behind[-1].result
        inputs[n], outputs[n], operands[n] = before, new[s.added].result, zero.result
        tests[n], results[n] = Value(term.tensor), result
    gone = {o for s in sums for o in (s.reduction, *s.reshapes)}
    ops = tuple(new.get(o, o) for o in body.ops if o not in gone)
    regions = Graph(tuple(tests), condition.ops, condition.outputs), Graph(tuple(inputs), ops, tuple(outputs))
    loop = replace(op, operands=tuple(operands), results=tuple(results), regions=regions)
    values = tuple(totals.get(n, v) for n, v in enumerate(results))
    return Replacement(values, (*zeros, loop, *behind))


def _total(s: Sum, terms: Value, start: Value) -> list[Op]:
    """The reduction of all turns' terms, and what the loop started from."""
    zero = build.splat(TensorType((), terms.tensor.dtype), 0)
    ops = [zero, build.reduce(SUM, terms, zero.result, s.reduction.attrs["dimensions"])]
    ops += (build.reshape(ops[-1].result, o.result.shape) for o in s.reshapes)
    return [*(o.located(s.reduction) for o in ops), build.add(start, ops[-1].result).located(s.added)]
