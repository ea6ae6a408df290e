"""Compute with the real and imaginary parts of complex numbers, which kernels hold.

    %z = multiply %x, %y : complex<f32>    ->    %a, %b = real %x, imag %x;  %c, %d = real %y, imag %y
                                                 %re = %a * %c - %b * %d;    %im = %a * %d + %b * %c
                                                 %z = complex %re, %im       where somebody wants it whole

What only moves complex numbers stays as it is, unless what it moves is computed with before or afterwards.
So do the values between what XLA has alone: Fourier transforms, products of matrices. A loop carries the
parts of a number where a turn computes them.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.node_graph import connected_parts
from jstitch.ir.ops import OpClass, lookup
from jstitch.ir.ops.complex_parts import has_rule, only_moves, write_parts
from jstitch.ir.ops.part_writer import Number, Pair, PartWriter, is_complex, joined, part_type, parts_of
from jstitch.passes.base.rewrite import is_control, is_loop


def split_complex(graph: Graph) -> Graph:
    """The graph, whose inputs and outputs keep their types, with such values in parts."""
    chosen = _choose(graph)
    whole = [False] * len(graph.outputs)
    return _Splitter(chosen).frame(graph, graph.inputs, whole) if chosen else graph


# -- which values ---------------------------------------------------------------------------------------


def _choose(graph: Graph) -> frozenset[Value]:
    """Complex values that are computed with, and all that are moved to them or from them."""
    ties, computed = list[Sequence[Value]](), set[Value]()
    for op in _ops(graph):
        values = [v for v in (*op.operands, *op.results) if is_complex(v)]
        if is_control(op):
            ties += filter(None, _tied(op))
        elif values and has_rule(op):
            if only_moves(op):
                ties.append(values)
            elif lookup(op.name).op_class is not OpClass.CONSTANT:
                computed.update(values)
    if not computed:
        return frozenset()
    parts = connected_parts(computed, (pair for tied in ties for pair in pairwise(tied)))
    return frozenset(v for part in parts if not part.isdisjoint(computed) for v in part)


def _ops(graph: Graph) -> Iterator[Op]:
    """Of the graph and of all frames in it."""
    for op in graph.ops:
        yield op
        if is_control(op):
            for region in op.regions:
                yield from _ops(region)


def _tied(op: Op) -> Iterator[Sequence[Value] | None]:
    """For each result of a loop or branch the complex values that it has in common with it, if there are any.

    A loop carries what its turn gets from XLA alone as XLA made it.
    """
    rows: list[tuple[Value, ...]]
    if is_loop(op):
        condition, body = op.regions
        rows = [*zip(op.results, op.operands, condition.inputs, body.inputs, body.outputs, strict=True)]
        whole = {v for inner in body.ops if not (has_rule(inner) or is_control(inner)) for v in inner.results}
    else:
        rows = [*zip(op.results, *(region.outputs for region in op.regions), strict=True)]
        whole = set()
    yield from (row if is_complex(row[0]) and row[-1] not in whole else None for row in rows)


# -- in parts -------------------------------------------------------------------------------------------


@dataclass
class _Splitter:
    """parts: of chosen values. whole: what stands for a value that is one, in a frame and those around it."""

    chosen: frozenset[Value]
    parts: dict[Value, Pair] = field(default_factory=dict)
    whole: ChainMap[Value, Value] = field(default_factory=ChainMap)

    def frame(self, graph: Graph, inputs: Sequence[Number], split: Sequence[bool]) -> Graph:
        """A graph that takes and gives what it did, or the parts of it.

        inputs: what stands for each of its own. split: outputs that are wanted in parts.
        """
        writer = PartWriter()
        self.whole = self.whole.new_child()
        for v, number in zip(graph.inputs, inputs, strict=True):
            self._made(writer, v, number)
        for op in graph.ops:
            first = len(writer.ops)
            self._write(writer, op)
            writer.ops[first:] = [new.located(op) for new in writer.ops[first:]]
        outputs = tuple(self._wanted(writer, graph.outputs, split))
        self.whole = self.whole.parents
        return Graph(tuple(v for x in inputs for v in _flat(x)), tuple(writer.ops), outputs)

    def _write(self, writer: PartWriter, op: Op) -> None:
        if is_control(op):
            self._control(writer, op)
        elif has_rule(op) and not self.chosen.isdisjoint((*op.operands, *op.results)):
            numbers = [self.parts.get(v) or self._one(writer, v) for v in op.operands]
            for v, number in zip(op.results, write_parts(writer, op, numbers), strict=True):
                self._made(writer, v, number)
        else:
            operands = tuple(self._one(writer, v) for v in op.operands)
            same = all(a is b for a, b in zip(operands, op.operands, strict=True))
            writer.ops.append(op if same else replace(op, operands=operands))
            for v in op.results:
                self._made(writer, v, v)

    def _made(self, writer: PartWriter, v: Value, number: Number) -> None:
        """A value is there, in one or in parts; a chosen one is taken apart."""
        if isinstance(number, tuple):
            self.parts[v] = number
            return
        self.whole[v] = number
        if v in self.chosen:
            re, im = map(writer.write, parts_of(number))
            self.parts[v] = re, im

    def _one(self, writer: PartWriter, v: Value) -> Value:
        """The value in one, written where it is first wanted so."""
        if v not in self.whole and v in self.parts:
            self.whole[v] = writer.write(joined(*self.parts[v], v.tensor.dtype))
        return self.whole.get(v, v)

    def _control(self, writer: PartWriter, op: Op) -> None:
        """A loop or a branch whose results, and what they have in common with it, are in parts."""
        split = [row is not None and v in self.chosen for v, row in zip(op.results, _tied(op), strict=True)]
        operands, regions = (
            self._loop(writer, op, split) if is_loop(op) else self._branches(writer, op, split)
        )
        results = _fresh(op.results, split)
        flat = tuple(v for x in results for v in _flat(x))
        writer.ops.append(replace(op, operands=operands, regions=regions, results=flat, source=None))
        for v, number in zip(op.results, results, strict=True):
            self._made(writer, v, number)

    def _loop(
        self, writer: PartWriter, op: Op, split: Sequence[bool]
    ) -> tuple[tuple[Value, ...], tuple[Graph, Graph]]:
        operands = tuple(self._wanted(writer, op.operands, split))
        condition, body = op.regions
        tests = self.frame(condition, _fresh(condition.inputs, split), [False])
        return operands, (tests, self.frame(body, _fresh(body.inputs, split), split))

    def _branches(
        self, writer: PartWriter, op: Op, split: Sequence[bool]
    ) -> tuple[tuple[Value, ...], tuple[Graph, ...]]:
        operands = tuple(self._one(writer, v) for v in op.operands)
        return operands, tuple(self.frame(region, (), split) for region in op.regions)

    def _wanted(self, writer: PartWriter, values: Sequence[Value], split: Sequence[bool]) -> Iterator[Value]:
        """The values in one, or both parts of those that are split."""
        for v, apart in zip(values, split, strict=True):
            yield from self._parts(writer, v) if apart else (self._one(writer, v),)

    def _parts(self, writer: PartWriter, v: Value) -> Pair:
        """Of a value that may be one until here: what a loop starts with, what a branch gives."""
        if v not in self.parts:
            re, im = map(writer.write, parts_of(self._one(writer, v)))
            return re, im
        return self.parts[v]


def _fresh(values: Sequence[Value], split: Sequence[bool]) -> list[Number]:
    return [
        (Value(part_type(v)), Value(part_type(v))) if apart else v
        for v, apart in zip(values, split, strict=True)
    ]


def _flat(x: Number) -> Pair | tuple[Value]:
    return x if isinstance(x, tuple) else (x,)
