"""Do not fill what a loop overwrites: memory for the rows that its turns stack up needs no first value.

    %z = constant 0 : tensor<28x8xf32>                        %z = jstitch.unset
    while i < 28, %y = %z:                              ->    while i < 28, %y = %z:
      %y = dynamic_update_slice %y, %row, i, 0                  %y = dynamic_update_slice %y, %row, i, 0

What a scan returns of every turn starts as zeros, which XLA writes, and nobody reads. Loops are taken whose
trip count follows from constants and whose updates fill every row, where nothing else in the loop looks at
the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import WHILE, build, lookup
from jstitch.ir.ops.build import splat_value
from jstitch.ir.types import TensorType
from jstitch.passes.base.context import Context
from jstitch.passes.base.plan import is_free
from jstitch.passes.base.rewrite import Producer, Replacement, rewrite
from jstitch.passes.graph.count_turns import Counter, count_turns, number_of, step_of

UPDATE = "stablehlo.dynamic_update_slice"
MOST_TRIPS = 1 << 17
DEPTH = 32  # ops from the counter to an index


def leave_unset(graph: Graph, context: Context) -> Graph:
    """The graph whose loops start with unset memory where that is so, if the target has it."""
    return rewrite(graph, _rule, of=(WHILE,)) if context.profile.unset else graph


def _rule(op: Op, producer: Producer) -> Replacement | None:
    counter = count_turns(op, producer)
    if counter is None or not 0 < counter.trips <= MOST_TRIPS:
        return None
    loop = _Loop.of(op, counter, producer)
    places = [n for n in range(len(op.operands)) if loop.is_overwritten(n)]
    unset = {n: build.unset(op.operands[n].tensor) for n in places}
    if not unset:
        return None
    operands = tuple(unset[n].result if n in unset else v for n, v in enumerate(op.operands))
    return Replacement(op.results, (*unset.values(), replace(op, operands=operands)))


@dataclass(frozen=True)
class _Loop:
    """known: what scalars of the body are in each turn; None: nobody knows."""

    op: Op
    counter: Counter
    producer: Producer
    producers: Mapping[Value, Op]
    users: Mapping[Value, Sequence[Op]]
    tested: Mapping[Value, Sequence[Op]]
    known: dict[Value, np.ndarray | None] = field(default_factory=dict)

    @classmethod
    def of(cls, op: Op, counter: Counter, producer: Producer) -> _Loop:
        condition, body = op.regions
        return cls(op, counter, producer, body.producers(), body.users(), condition.users())

    def is_overwritten(self, n: int) -> bool:
        """Whether carried value `n` starts as a constant that nobody reads."""
        first, body = self.producer(self.op.operands[n]), self.op.regions[1]
        if first is None or not is_free(first) or not isinstance(first.result.type, TensorType):
            return False
        updates = self._updates(body.inputs[n], body.outputs[n])
        return not self._is_tested(n) and self._fill(first.result.tensor, updates)

    def _is_tested(self, n: int) -> bool:
        condition = self.op.regions[0]
        return bool(self.tested.get(condition.inputs[n])) or condition.inputs[n] in condition.outputs

    def _updates(self, value: Value, last: Value) -> list[Op]:
        """The updates from a turn's first value to its last, [] where anything else reads one of them."""
        found: list[Op] = []
        outputs = self.op.regions[1].outputs
        while value is not last:
            match self.users.get(value, ()):
                case [Op(name=name) as op] if name == UPDATE and op.operands.index(value) == 0:
                    if value in op.operands[1:] or value in outputs:
                        return []
                    found.append(op)
                    value = op.result
                case _:
                    return []
        return found if outputs.count(last) == 1 and not self.users.get(last) else []

    def _fill(self, whole: TensorType, updates: Sequence[Op]) -> bool:
        """Whether the updates of all turns together write every element."""
        shapes = {op.operands[1].shape for op in updates}
        cut = {d for shape in shapes for d, n in enumerate(shape) if n != whole.shape[d]}
        if len(cut) != 1:
            return bool(updates) and not cut
        (d,) = cut
        written = np.zeros(whole.shape[d], np.bool_)
        for op in updates:
            starts = self._starts(op.operands[2 + d])
            size = op.operands[1].shape[d]
            if starts is None or starts.min() < 0 or starts.max() > len(written) - size:
                return False
            for k in range(size):
                written[starts + k] = True
        return bool(written.all())

    def _starts(self, index: Value) -> NDArray[np.int64] | None:
        """An index in each turn, if it follows from the counter and constants."""
        found = self._in_turns(index, DEPTH)
        return None if found is None else found.astype(np.int64)

    def _in_turns(self, value: Value, depth: int) -> np.ndarray | None:
        """A scalar in each turn: a counter, a constant, or what elementwise ops make of such."""
        if value not in self.known:
            self.known[value] = self._evaluated(value, depth)
        return self.known[value]

    def _counted(self, n: int) -> np.ndarray | None:
        """Carried value `n` in each turn, if it counts, whether or not the condition looks at it."""
        body = self.op.regions[1]
        start, step = number_of(self.producer(self.op.operands[n])), step_of(body, n, self.producer)
        if start is None or step is None or body.inputs[n].tensor.shape:
            return None
        turns = start + step * np.arange(self.counter.trips, dtype=np.int64)
        return turns.astype(body.inputs[n].tensor.dtype.numpy)

    def _evaluated(self, value: Value, depth: int) -> np.ndarray | None:
        if value in self.op.regions[1].inputs:
            return self._counted(self.op.regions[1].inputs.index(value))
        op = self.producers.get(value) or self.producer(value)
        if (constant := splat_value(op)) is not None:
            return np.full(self.counter.trips, constant)
        definition = lookup(op.name) if op is not None else None
        if definition is None or op is None or not definition.op_class.is_elementwise or not depth:
            return None
        operands = [self._in_turns(v, depth - 1) for v in op.operands]
        if definition.reference is None or any(v is None for v in operands):
            return None
        with np.errstate(all="ignore"):
            return definition.reference(op, *operands)[0]
