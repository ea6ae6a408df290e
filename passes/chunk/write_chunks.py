"""Write ops as a loop over chunks of their rows.

    %z = dot_general %x, %w;  ...  %g = dot_general %x, %d
->
    while i < 32:
        %c = dynamic_slice %x, i * 1024          1,024 rows of what is cut
        %z = dot_general %c, %w;  ...
        %g' = %g + dot_general %c, %d            sums of f32 and wider; rounded after the loop
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import build, lookup
from jstitch.ir.ops.links import linked
from jstitch.ir.types import DType, TensorType
from jstitch.passes.base.product_side import PRODUCT
from jstitch.passes.chunk.find_rows import Rows

CHUNKED = "chunked"
"""An attribute of the loop: why it is one."""
UPDATE, COUNT = "stablehlo.dynamic_update_slice", TensorType((), DType.S32)


@dataclass(frozen=True)
class Chunks:
    """ops: a loop, what it starts from, and what others read of the rows, behind it. body: the loop's."""

    ops: tuple[Op, ...]
    body: Graph


def write_chunks(rows: Rows, written: Sequence[Value], chunks: int, why: str) -> Chunks:
    """The rows' ops in so many turns, of as many rows each. written: what others read."""
    body, starts = _Writer(rows, rows.count // chunks).body(written)
    wide = [v.tensor.dtype.compute if v not in rows.cut else v.tensor.dtype for v in written]
    found = [
        v if t is v.tensor.dtype else Value(TensorType(v.shape, t))
        for v, t in zip(written, wide, strict=True)
    ]
    loop = _loop(body, starts, found, chunks, why).located(rows.ops[0])
    rounded = [_as(made, v) for made, v in zip(found, written, strict=True) if made is not v]
    return Chunks((*starts, loop, *rounded), body)


def _as(found: Value, wanted: Value) -> Op:
    """A value under another name, rounded to its type."""
    return replace(build.convert(found, wanted.tensor.dtype), results=(wanted,))


def _loop(body: Graph, starts: Sequence[Op], found: Sequence[Value], chunks: int, why: str) -> Op:
    carried = tuple(Value(v.type) for v in body.inputs)
    limit = build.splat(COUNT, chunks)
    test = build.compare("LT", carried[0], limit.result)
    condition = Graph(carried, (limit, test), test.results)
    results = (Value(COUNT), *found)
    initial = tuple(op.result for op in starts)
    return Op("stablehlo.while", initial, results, {CHUNKED: why}, (condition, body))


@dataclass
class _Writer:
    """Ops of the body; `values`: of the whole program -> of one turn."""

    rows: Rows
    size: int
    ops: list[Op] = field(default_factory=list)
    values: dict[Value, Value] = field(default_factory=dict)

    def body(self, written: Sequence[Value]) -> tuple[Graph, list[Op]]:
        """What a turn does; and what the loop starts from: a counter, and what is written."""
        self.turn = Value(COUNT)
        self.first = self._add(build.elementwise("stablehlo.multiply", self.turn, self._number(self.size)))
        for v in self.rows.read():
            if v in self.rows.cut:
                self.values[v] = self._slice(v, self.rows.cut[v])
        for op in self.rows.ops:
            self._write(op)
        starts = [build.splat(COUNT, 0)]
        carried, outputs = [self.turn], [self._add(build.add(self.turn, self._number(1)))]
        for v in written:
            before, after = self._put(v)
            carried.append(before)
            outputs.append(after)
            starts.append(build.splat(before.tensor, 0))
        return Graph(tuple(carried), tuple(self.ops), tuple(outputs)), starts

    def _add(self, op: Op) -> Value:
        self.ops.append(op)
        return op.result

    def _number(self, n: int) -> Value:
        return self._add(build.splat(COUNT, n))

    def _starts(self, v: Value, dim: int) -> Iterator[Value]:
        for d in range(v.tensor.rank):
            yield self.first if d == dim else self._number(0)

    def _cut(self, t: TensorType, dim: int) -> TensorType:
        return TensorType((*t.shape[:dim], self.size, *t.shape[dim + 1 :]), t.dtype)

    def _slice(self, v: Value, dim: int) -> Value:
        kind = self._cut(v.tensor, dim)
        attrs = {"slice_sizes": kind.shape}
        return self._add(build.op("stablehlo.dynamic_slice", (v, *self._starts(v, dim)), kind, attrs))

    def _write(self, op: Op) -> None:
        cut = self.rows.cut
        operands = tuple(self.values.get(v, v) for v in op.operands)
        if op in self.rows.sums:
            return self._write_sum(op, operands)
        results = tuple(Value(self._cut(v.tensor, cut[v])) for v in op.results)
        dim = cut[op.results[0]]
        self.ops.append(replace(_fewer(op, dim, self.size), operands=operands, results=results))
        self.values.update(zip(op.results, results, strict=True))
        if lookup(op.name).position is not None and op.attrs["iota_dimension"] == dim:
            self.values[op.result] = self._moved(results[0])
        return None

    def _moved(self, places: Value) -> Value:
        """An iota further on."""
        first = self._add(build.convert(self.first, places.tensor.dtype))
        spread = self._add(build.broadcast(first, places.shape, ()))
        return self._add(build.add(places, spread))

    def _write_sum(self, op: Op, operands: tuple[Value, ...]) -> None:
        """In f32 where its type is narrower: it will be added to others."""
        wide = op.result.tensor.dtype.compute
        result = Value(TensorType(op.result.shape, wide))
        if op.name != PRODUCT and wide is not op.result.tensor.dtype:
            data, zero = build.convert(operands[0], wide), build.splat(TensorType((), wide), 0)
            parts = self._add(data), self._add(zero)
            self.values[op.result] = self._add(build.reduce("stablehlo.add", *parts, op.attrs["dimensions"]))
            return
        self.ops.append(replace(op, operands=operands, results=(result,)))
        self.values[op.result] = result

    def _put(self, v: Value) -> tuple[Value, Value]:
        """What is carried for a value that others read: before this turn, and after it."""
        part = self.values[v]
        if v not in self.rows.cut:
            before = Value(part.type)
            return before, self._add(build.add(before, part))
        before = Value(v.type)
        starts = tuple(self._starts(v, self.rows.cut[v]))
        return before, self._add(
            build.op("stablehlo.dynamic_update_slice", (before, part, *starts), v.tensor)
        )


def _fewer(op: Op, dim: int, size: int) -> Op:
    """With attributes that fit so many rows."""
    match op.name:
        case "stablehlo.constant":
            value = op.attrs["value"]
            shape = (*value.shape[:dim], size, *value.shape[dim + 1 :])
            made = build.splat(TensorType(shape, op.result.tensor.dtype), value.reshape(-1)[0])
            return replace(op, attrs=made.attrs)
        case "stablehlo.slice":
            limits = tuple(op.attrs["limit_indices"])
            return replace(op, attrs={**op.attrs, "limit_indices": (*limits[:dim], size, *limits[dim + 1 :])})
        case "stablehlo.gather" | "stablehlo.dynamic_slice":
            place = (linked(op, dim) or (None,))[0]
            sizes = list(op.attrs["slice_sizes"])
            if place is not None and place not in op.attrs.get("operand_batching_dims", ()):
                sizes[place] = size
            return replace(op, attrs={**op.attrs, "slice_sizes": tuple(sizes)})
        case _:
            return op
