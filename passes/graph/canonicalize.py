"""Bring ops into one form: remove those that do nothing, merge chains, shrink to splats.

    %1 = transpose %0, [0, 1]                  %3 = broadcast_in_dim %0, dims = [1]
    %2 = reshape %1 : 8 -> 1x8           ->
    %3 = broadcast_in_dim %2, dims = [0, 1]

The rules live with the ops (`jstitch.ir.ops.simplify`); each keeps every bit of every result. What only a
concatenate along the same dimension reads is part of it: `jnp.concatenate` takes sixteen arrays at a time.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from functools import partial

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops.build import concatenate, is_concatenate
from jstitch.ir.ops.simplify import simplify
from jstitch.passes.base.rewrite import Producer, Replacement, rewrite

_STEPS = 8


def canonicalize(graph: Graph) -> Graph:
    """Apply the op table's simplifications until none fires."""
    for _ in range(_STEPS):
        simpler = rewrite(graph, partial(_rule, _read_once(graph)))
        if simpler is graph:
            break
        graph = simpler
    return graph


def _read_once(graph: Graph) -> Container[Value]:
    """Results of concatenates that one op or output reads, once."""
    made = {op.result for op in graph.walk() if is_concatenate(op)}
    if len(made) < 2:
        return ()
    ops = [*graph.walk()]
    read = itertools.chain(graph.outputs, *(op.operands for op in ops), *(r.outputs for r in _regions(ops)))
    return {v for v, count in Counter(v for v in read if v in made).items() if count == 1}


def _regions(ops: Iterable[Op]) -> Iterator[Graph]:
    return (region for op in ops for region in op.regions)


def _rule(read_once: Container[Value], op: Op, producer: Producer) -> Replacement | None:
    """Simplify until nothing fires, so that one pass over the graph does nearly everything."""
    current: Op | Value = _joined(op, producer, read_once)
    while isinstance(current, Op):
        found = simplify(current, producer)
        if found is None:
            break
        current = found
    if current is op:
        return None
    if isinstance(current, Value):
        return Replacement((current,))
    simpler = current.located(op)
    return Replacement(simpler.results, (simpler,))


def _joined(op: Op, producer: Producer, read_once: Container[Value]) -> Op:
    """A concatenate with the parts of those that nothing else reads."""
    if not is_concatenate(op):
        return op
    along = op.attrs["dimension"]

    def parts(v: Value) -> tuple[Value, ...]:
        made = producer(v) if v in read_once else None
        inner = made is not None and is_concatenate(made) and made.attrs["dimension"] == along
        return made.operands if made is not None and inner else (v,)

    found = [part for v in op.operands for part in parts(v)]
    return concatenate(found, along) if len(found) > len(op.operands) else op
