"""Write short loops over kernel ops out as straight-line code, so that their ops can fuse with the rest.

    %1:2 = while(%i = 0, %x = %0)              %1 = add %0, %0
      cond { compare LT, %i, 3 }        ->     %2 = add %1, %1
      do { add %i, 1; add %x, %x }             %3 = add %2, %2

JAX's threefry generator is such a loop on the CPU: five rounds of integer arithmetic on whole arrays. A loop
is written out when its trip count follows from constants and every op of its body can be in a kernel.

A scan is not, on a CPU, that is a kernel as it is: what turns leave in stacks would be written there turn by
turn, and work so small stays XLA's, which takes longer for the copies than for the loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import WHILE, OpClass, lookup
from jstitch.ir.ops.build import splat_value
from jstitch.ir.ops.evaluate import run_op
from jstitch.ir.scope import in_turn
from jstitch.ir.types import DType, TensorType
from jstitch.ir.unwind import Deep, each, unwind
from jstitch.passes.base.context import Context
from jstitch.passes.base.rewrite import Producer, Replacement, rewrite
from jstitch.passes.fuse.find_recurrences import find_recurrences
from jstitch.passes.graph.cse import cse
from jstitch.passes.graph.dce import dce

MAX_TRIPS = 8
MAX_OPS = 400  # after unrolling, per loop


def unroll_loops(graph: Graph, context: Context, *, trips: int = MAX_TRIPS, ops: int = MAX_OPS) -> Graph:
    """The graph with short loops written out, inner ones first.

    trips: of a loop, at most. ops: of a loop after unrolling, at most.
    """
    rule = partial(_rule, context=context, most_trips=trips, most_ops=ops)
    return rewrite(graph, rule, of=(WHILE,))


def _rule(
    op: Op, producer: Producer, *, context: Context, most_trips: int, most_ops: int
) -> Replacement | None:
    condition, body = op.regions
    if not all(map(_is_kernel_op, (*condition.ops, *body.ops))):
        return None
    trips = _trip_count(op, producer, most_trips)
    if trips is None or trips * len(body.ops) > most_ops:
        return None
    loops = trips > 1 and context.machine.device is None
    if loops and _is_scan(body) and is_kernel(op, producer, context):
        return None
    carried, ops = op.operands, list[Op]()
    for turn in range(trips):
        carried = write_out(body, carried, ops, op.scope, turn)
    return Replacement(carried, tuple(ops))


def _is_scan(body: Graph) -> bool:
    """Whether turns leave something in stacks, or take something from them."""
    return any(lookup(op.name).op_class is OpClass.INDEX for op in body.ops)


def is_kernel(loop: Op, producer: Producer, context: Context) -> bool:
    """Whether the loop, all by itself, is one."""
    constants = dict.fromkeys(op for op in map(producer, loop.uses) if op is not None and not op.operands)
    given = dict.fromkeys(v for v in loop.uses if producer(v) not in constants)
    body = loop.regions[1]
    turned = zip(loop.results, body.inputs, body.outputs, strict=True)
    made = tuple(v for v, before, after in turned if before is not after and v.shape)
    alone = Graph(tuple(given), (*constants, loop), made)
    return bool(find_recurrences(dce(cse(alone)), context).patterns)


def _is_kernel_op(op: Op) -> bool:
    """Whether a kernel can hold the op, or it is a constant. Reductions do not count: they end a stage."""
    definition = lookup(op.name)
    if op.regions or not all(isinstance(v.type, TensorType) for v in (*op.operands, *op.results)):
        return False
    match definition.op_class:
        case OpClass.LIGHT | OpClass.EXPENSIVE:
            return definition.scalar is not None and definition.scalar(op) is not None
        case OpClass.SHAPE | OpClass.INDEX:
            return definition.cases is not None or definition.position is not None
        case other:
            return other is OpClass.CONSTANT


def write_out(
    body: Graph, carried: Sequence[Value], ops: list[Op], scope: str, turn: int
) -> tuple[Value, ...]:
    """Append one trip's ops; the values that the next trip starts from. scope: the loop's."""
    names = dict(zip(body.inputs, carried, strict=True))
    for op in body.ops:
        results = tuple(Value(v.type) for v in op.results)
        operands = tuple(names.get(v, v) for v in op.operands)
        ops.append(replace(op, operands=operands, results=results, scope=in_turn(op.scope, scope, turn)))
        names.update(zip(op.results, results, strict=True))
    return tuple(names.get(v, v) for v in body.outputs)


# -- the trip count --------------------------------------------------------------------------------------


def _trip_count(op: Op, producer: Producer, most: int) -> int | None:
    """How often the body runs, when constants decide it and it is at most `most`."""
    condition, body = op.regions
    known = dict(_constants(body.inputs, (splat_value(producer(v)) for v in op.operands)))
    for trip in range(most + 1):
        inputs = {c: known[b] for c, b in zip(condition.inputs, body.inputs, strict=True) if b in known}
        goes_on = Evaluation(condition, inputs, producer).value(condition.outputs[0])
        if goes_on is None:
            return None
        if not bool(goes_on):
            return trip
        evaluation = Evaluation(body, known, producer)
        known = dict(_constants(body.inputs, map(evaluation.value, body.outputs)))
    return None


def _constants(
    values: Sequence[Value], arrays: Iterator[np.ndarray | None]
) -> Iterator[tuple[Value, np.ndarray]]:
    """The scalar integers among the carried values that are known."""
    for value, array in zip(values, arrays, strict=True):
        if array is not None and _is_counter(value):
            yield value, array


def _is_counter(value: Value) -> bool:
    type_ = value.type
    if not isinstance(type_, TensorType) or type_.shape:
        return False
    return type_.dtype.is_integer or type_.dtype is DType.BOOL


class Evaluation:
    """One run of a region as far as known scalars decide it."""

    def __init__(self, region: Graph, known: dict[Value, np.ndarray], producer: Producer) -> None:
        self.inside = region.producers()
        self.inputs = set(region.inputs)
        self.known: dict[Value, np.ndarray | None] = {**known}
        self.producer = producer

    def value(self, v: Value) -> np.ndarray | None:
        """The scalar, or None when it is not known."""
        return unwind(self._value(v))

    def _value(self, v: Value) -> Deep[np.ndarray | None]:
        if v not in self.known:
            decided = v not in self.inputs and _is_counter(v)
            self.known[v] = (yield from self._compute(v)) if decided else None
        return self.known[v]

    def _compute(self, v: Value) -> Deep[np.ndarray | None]:
        op = self.inside.get(v)
        if op is None or not op.operands:
            return splat_value(op or self.producer(v))
        known = yield from each(self._value(u) for u in op.operands)
        arrays = [a for a in known if a is not None]
        if len(arrays) < len(op.operands):
            return None
        return run_op(op, arrays)[0]
