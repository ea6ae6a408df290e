"""Write ops as a loop over chunks of their rows, and what is left of them behind it.

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
from jstitch.passes.base.sort_ops import sort_ops
from jstitch.passes.chunk.find_rows import Index, Rows

CHUNKED = "chunked"
"""An attribute of the loop: why it is one."""
SLICE, UPDATE = "stablehlo.dynamic_slice", "stablehlo.dynamic_update_slice"
COUNT = TensorType((), DType.S32)


@dataclass(frozen=True)
class Chunks:
    """ops: a loop, what it starts from, and what others read of the rows, behind it. body: the loop's."""

    ops: tuple[Op, ...]
    body: Graph


def write_chunks(rows: Rows, written: Sequence[Value], chunks: int, why: str) -> Chunks:
    """The rows' ops in so many turns, of as many rows each, and for rows that are left. written: what
    others read.
    """
    kinds = [_carried(v, rows) for v in written]
    size = rows.count // chunks
    starts = [build.splat(t, 0) for t in (COUNT, *kinds)]
    body = _body(rows, written, kinds, size)
    loop = _loop(body, starts, chunks, why).located(rows.ops[0])
    rest = _Writer(rows, rows.count - chunks * size)
    made: Sequence[Value] = loop.results[1:]
    if rest.size:
        rest.begin(rest.add(build.splat(COUNT, chunks * size)))
        made = [rest.put(v, before) for v, before in zip(written, made, strict=True)]
    pairs = list(zip(made, written, strict=True))
    named = {a: b for a, b in pairs if a.type == b.type}
    ops = [replace(op, results=tuple(named.get(v, v) for v in op.results)) for op in (loop, *rest.ops)]
    rounded = [_rounded(a, b) for a, b in pairs if a not in named]
    return Chunks((*starts, *ops, *rounded), body)


def put_in(index: Index, rows: Rows, chunks: Chunks) -> Graph:
    """The frame with the loop in place of the rows' ops."""
    frame, users, gone = index.frame, index.users, set(rows.ops)
    for op in reversed(rows.ops):  # of copies, those stay that others read, and what they are made of
        read = (v in index.returned or not gone.issuperset(users.get(v, ())) for v in op.results)
        if op in rows.copies and any(read):
            gone.discard(op)
    ops: list[Op] = []
    for op in frame.ops:
        ops += chunks.ops if op is rows.ops[0] else ()
        ops += () if op in gone else (op,)
    return replace(frame, ops=sort_ops(ops))


def _carried(v: Value, rows: Rows) -> TensorType:
    """The type of a value while rows are added, or added up: sums in f32 at least."""
    return v.tensor if v in rows.cut else TensorType(v.shape, v.tensor.dtype.compute)


def _rounded(found: Value, wanted: Value) -> Op:
    """A sum, rounded to its type."""
    return replace(build.convert(found, wanted.tensor.dtype), results=(wanted,))


def _body(rows: Rows, written: Sequence[Value], kinds: Sequence[TensorType], size: int) -> Graph:
    """What a turn does; carried: a counter, and what is written."""
    writer, turn = _Writer(rows, size), Value(COUNT)
    carried = [Value(t) for t in kinds]
    writer.begin(writer.add(build.elementwise("stablehlo.multiply", turn, writer.number(size))))
    after = [writer.add(build.add(turn, writer.number(1)))]
    after += [writer.put(v, before) for v, before in zip(written, carried, strict=True)]
    return Graph((turn, *carried), tuple(writer.ops), tuple(after))


def _loop(body: Graph, starts: Sequence[Op], chunks: int, why: str) -> Op:
    carried = tuple(Value(v.type) for v in body.inputs)
    limit = build.splat(COUNT, chunks)
    test = build.compare("LT", carried[0], limit.result)
    condition = Graph(carried, (limit, test), test.results)
    results = tuple(Value(v.type) for v in body.outputs)
    initial = tuple(op.result for op in starts)
    return Op("stablehlo.while", initial, results, {CHUNKED: why}, (condition, body))


@dataclass
class _Writer:
    """Ops for `size` rows; values: of all rows -> of these. first: the first of them."""

    rows: Rows
    size: int
    ops: list[Op] = field(default_factory=list)
    values: dict[Value, Value] = field(default_factory=dict)

    def begin(self, first: Value) -> None:
        """All of the rows' ops."""
        self.first = first
        for v in self.rows.read():
            if v in self.rows.cut:
                self.values[v] = self._slice(v, self.rows.cut[v])
        for op in self.rows.ops:
            if op in self.rows.sums:
                self._write_sum(op)
            else:
                self._write(op)

    def put(self, v: Value, before: Value) -> Value:
        """A value that others read, with these rows, after what it was before."""
        part = self.values[v]
        if v not in self.rows.cut:
            return self.add(build.add(before, part))
        starts = tuple(self._starts(v, self.rows.cut[v]))
        return self.add(build.op(UPDATE, (before, part, *starts), v.tensor))

    def add(self, op: Op) -> Value:
        self.ops.append(op)
        return op.result

    def number(self, n: int) -> Value:
        return self.add(build.splat(COUNT, n))

    def _starts(self, v: Value, dim: int) -> Iterator[Value]:
        for d in range(v.tensor.rank):
            yield self.first if d == dim else self.number(0)

    def _cut(self, t: TensorType, dim: int) -> TensorType:
        return TensorType((*t.shape[:dim], self.size, *t.shape[dim + 1 :]), t.dtype)

    def _slice(self, v: Value, dim: int) -> Value:
        kind = self._cut(v.tensor, dim)
        attrs = {"slice_sizes": kind.shape}
        return self.add(build.op(SLICE, (v, *self._starts(v, dim)), kind, attrs))

    def _write(self, op: Op) -> None:
        cut = self.rows.cut
        operands = tuple(self.values.get(v, v) for v in op.operands)
        results = tuple(Value(self._cut(v.tensor, cut[v])) for v in op.results)
        dim = cut[op.results[0]]
        if lookup(op.name).position is not None and op.attrs["iota_dimension"] == dim:
            self.values[op.result] = self._numbered(results[0].tensor, dim)
            return
        self.ops.append(replace(_fewer(op, dim, self.size), operands=operands, results=results))
        self.values.update(zip(op.results, results, strict=True))

    def _numbered(self, kind: TensorType, dim: int) -> Value:
        """An iota further on. Counted in integers: a sum of bf16 is not 300 + 1, rounded once."""
        dtype = kind.dtype if kind.dtype.is_integer else COUNT.dtype
        places = self.add(build.iota(TensorType(kind.shape, dtype), dim))
        first = self.add(build.convert(self.first, dtype))
        found = self.add(build.add(places, self.add(build.broadcast(first, kind.shape, ()))))
        return found if dtype is kind.dtype else self.add(build.convert(found, kind.dtype))

    def _write_sum(self, op: Op) -> None:
        """In f32 where its type is narrower: it will be added to others."""
        operands = tuple(self.values.get(v, v) for v in op.operands)
        own, wide = op.result.tensor.dtype, op.result.tensor.dtype.compute
        if own is wide:
            self.values[op.result] = self.add(_summed(op, operands, own))
        elif op.name != PRODUCT:
            data, zero = build.convert(operands[0], wide), build.splat(TensorType((), wide), 0)
            parts = self.add(data), self.add(zero)
            self.values[op.result] = self.add(build.reduce("stablehlo.add", *parts, op.attrs["dimensions"]))
        elif op.attrs.get("algorithm"):  # which says what is summed in what
            self.values[op.result] = self.add(build.convert(self.add(_summed(op, operands, own)), wide))
        else:
            self.values[op.result] = self.add(_summed(op, operands, wide))


def _summed(op: Op, operands: tuple[Value, ...], dtype: DType) -> Op:
    """The sum of other operands, in that type."""
    return replace(op, operands=operands, results=(Value(TensorType(op.result.shape, dtype)),))


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
