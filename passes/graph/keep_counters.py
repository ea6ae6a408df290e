"""Leave the arithmetic of loop counters to XLA, which must see it to know how often a loop turns.

    while i < 28:  %x1, %i1 = kernel(%x, %i)    ->    while i < 28:  %x1 = kernel(%x, %i);  %i1 = add %i, 1

A GPU that runs a loop of unknown length sends its condition to the host at every turn, and the host waits. On
a CPU XLA knows less of what it can move out of the loop, and the counter is two buffers more for our call.
A loop whose length follows from integer scalars that its body counts up is XLA's to count: its condition's
inputs, and what they are counted from, are marked, and no pattern takes a marked op.

XLA counts wrongly where an unsigned number goes down (k = 250; k > 20; k -= 3 in 8 bits: one turn of 77), and
believes itself where a call is in the loop: such a loop is XLA's with all that is in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import lookup
from jstitch.ir.types import TensorType
from jstitch.passes.base.plan import is_free
from jstitch.passes.base.rewrite import is_control

LEFT = "left"  # attribute of an op that no pattern takes: why
ADDED = "is added while the library multiplies"
_COUNTS = "counts the turns of a loop, which XLA so knows"
_MISCOUNTED = "is in a loop that counts an unsigned number down, whose turns XLA counts wrongly around a call"
SUBTRACT = "stablehlo.subtract"


def keep_counters(graph: Graph) -> Graph:
    """The graph with the counters of its loops marked, at any depth."""
    return _mark(graph, frozenset())


def _mark(graph: Graph, counters: frozenset[Op], miscounted: bool = False) -> Graph:
    ops = tuple(_marked(op, op in counters, miscounted) for op in graph.ops)
    return Graph(graph.inputs, ops, graph.outputs)


def _marked(op: Op, counts: bool, miscounted: bool) -> Op:
    if counts or (miscounted and not is_control(op) and not is_free(op)):
        return replace(op, attrs={**op.attrs, LEFT: _COUNTS if counts else _MISCOUNTED})
    if not is_control(op):
        return op
    found = _counters(*op.regions) if op.name == "stablehlo.while" else frozenset()
    inside = miscounted or any(map(_goes_down, found))
    return replace(op, regions=tuple(_mark(region, found, inside) for region in op.regions))


def _goes_down(op: Op) -> bool:
    return op.name == SUBTRACT and op.result.tensor.dtype.is_unsigned


def _counters(condition: Graph, body: Graph) -> frozenset[Op]:
    """Ops of either region that decide how often the loop turns; none when more than counting decides it."""
    tested = _slice(condition, condition.outputs)
    if tested is None:
        return frozenset()
    places = [n for n, v in enumerate(condition.inputs) if v in tested]
    counted = _slice(body, [body.outputs[n] for n in places])
    if counted is None or not counted.keys() & set(body.inputs) <= {body.inputs[n] for n in places}:
        return frozenset()
    return frozenset(op for op in (*tested.values(), *counted.values()) if op is not None and not is_free(op))


def _slice(region: Graph, wanted: Iterable[Value]) -> Mapping[Value, Op | None] | None:
    """What these values come from, with the op that makes each; None where it is not integer scalars."""
    producers, inputs = region.producers(), set(region.inputs)
    found: dict[Value, Op | None] = {}
    todo = list(wanted)
    while todo:
        v = todo.pop()
        op = producers.get(v)
        if v in found:
            continue
        if not _is_count(v) or not (v in inputs or op is None or _is_arithmetic(op)):
            return None
        found[v] = op
        todo += op.operands if op is not None else ()
    return found


def _is_count(value: Value) -> bool:
    kind = value.type
    return isinstance(kind, TensorType) and not kind.shape and not kind.dtype.is_float


def _is_arithmetic(op: Op) -> bool:
    return not op.regions and (is_free(op) or lookup(op.name).op_class.is_elementwise)
