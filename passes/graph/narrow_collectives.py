"""Move elements between devices in the narrower of two types.

    %1 = convert %0 : bf16 -> f32              %1 = all_gather %0 : bf16
    %2 = all_gather %1                 ->      %2 = convert %1 : bf16 -> f32

    %1 = all_gather %0 : f32                   %1 = convert %0 : f32 -> bf16
    %2 = convert %1 : f32 -> bf16      ->      %2 = all_gather %1

The elements are the same. XLA does so, too, where it sees the convert: not in a kernel.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import OpClass, build, lookup
from jstitch.ir.ops.collective import MOVES
from jstitch.ir.ops.convert import CONVERT
from jstitch.ir.types import TensorType
from jstitch.passes.base.rewrite import Producer, Replacement, has, rewrite


def narrow_collectives(graph: Graph) -> Graph:
    """The graph with such converts behind, or before, what moves their elements."""
    if not has(graph, *MOVES):
        return graph
    readers = Counter(v for op in graph.walk() for v in op.operands)
    for frame in (graph, *(region for op in graph.walk() for region in op.regions)):
        readers.update(frame.outputs)

    def rule(op: Op, producer: Producer) -> Replacement | None:
        if len(op.operands) != 1 or len(op.results) != 1:
            return None
        if op.name in MOVES:
            return _behind(op, producer)
        made = producer(op.operands[0])
        is_moved = op.name == CONVERT and made is not None and made.name in MOVES
        return _before(op, made, readers[made.result]) if is_moved and made is not None else None

    return rewrite(graph, rule)


def _behind(move: Op, producer: Producer) -> Replacement | None:
    """What moves the operand of a convert, and the convert."""
    path, op = [move], producer(move.operands[0])
    while op is not None and lookup(op.name).op_class is OpClass.SHAPE and len(op.operands) == 1:
        path.append(op)
        op = producer(op.operands[0])
    if op is None or op.name != CONVERT or _width(op.operands[0]) >= _width(op.result):
        return None
    value, made = op.operands[0], []
    for step in reversed(path):
        made.append(_of(step, value))
        value = made[-1].result
    wide = build.convert(value, move.result.tensor.dtype).located(op)
    return Replacement(wide.results, (*made, wide))


def _before(convert: Op, move: Op, readers: int) -> Replacement | None:
    """The convert of the move's operand, which nobody else reads moved, and what moves it."""
    if len(move.operands) > 1 or _width(convert.result) >= _width(move.result) or readers > 1:
        return None
    narrow = build.convert(move.operands[0], convert.result.tensor.dtype).located(convert)
    moved = _of(move, narrow.result)
    return Replacement(moved.results, (narrow, moved))


def _of(op: Op, operand: Value) -> Op:
    """The same, of elements of another type."""
    kind = TensorType(op.result.shape, operand.tensor.dtype)
    return replace(op, operands=(operand,), results=(Value(kind),))


def _width(v: Value) -> int:
    return v.tensor.dtype.itemsize
