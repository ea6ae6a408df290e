"""Few columns are made many, where rows are added up: a part of the rows' number goes to the columns.

    sum over 0 of tanh(x [180000, 10] + b)     ->     sum over (0, 1) of tanh(x' [15000, 12, 10] + b)

Ten columns fill no vector, 120 do (`sum_in_blocks` then adds up dimension 0 first). All that has such rows is
cut so: the dimension is followed through the ops that know it element by element.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from jstitch.ir.graph import Op, Value
from jstitch.ir.node_graph import connected_parts
from jstitch.ir.ops import OpClass, build, lookup
from jstitch.ir.types import TensorType
from jstitch.passes.base.plan import is_free
from jstitch.passes.base.row_access import data_operands, is_reduction
from jstitch.passes.lower.form_groups import APART
from jstitch.passes.lower.group import SEVERAL
from jstitch.passes.lower.own_columns import Part, Turned, wide
from jstitch.passes.lower.split_reductions import identity_of
from jstitch.passes.lower.sum_in_blocks import RUN, RUNS, VECTOR, added

Dim = tuple[Value | None, int]
UNKNOWN: Dim = None, 0  # connected with it are dimensions that some op looks at in another way
LEAST = 1 << 14  # elements that are worth it


def widen_columns(ops: Sequence[Op], outputs: Sequence[Value]) -> list[Part] | None:
    """The ops with such dimensions cut in two; None where there are none, or they are wide enough.

    Rows left over behind the last whole piece are what they were; a second part says where they go.
    """
    dims = [(v, d) for v in _values(ops) for d in range(v.tensor.rank)]
    find = _wanted if any(is_reduction(op) for op in ops) else _repeated
    wanted = dict(found for op in ops for found in find(op))
    if not wanted:
        return None
    parts = connected_parts([UNKNOWN, *dims], [link for op in ops for link in _links(op)])
    for part in parts:
        size = min((wanted[dim] for dim in part if dim in wanted), default=1)
        if size > 1 and UNKNOWN not in part:
            return _divided(part, size, ops, outputs)
    return None


def _divided(dims: set[Dim], size: int, ops: Sequence[Op], outputs: Sequence[Value]) -> list[Part] | None:
    """The ops with so much cut off these dimensions; of what is left over, as it is."""
    many = next(v.shape[d] for v, d in dims if v is not None)
    rest = many % size
    pieces = [_Piece(dims, 0, many - rest, size), *([_Piece(dims, many - rest, rest, 0)] if rest else [])]
    if rest and not _may_rest(dims, ops):
        return None
    new = [made for op in ops for made in ([op] if is_free(op) else _of_pieces(op, pieces))]
    parts = [Part((), None, {v: piece.turned(v) for v in outputs if v in piece.values}) for piece in pieces]
    handed = [turned.value for part in parts[1:] for turned in part.turned.values()]
    return [replace(parts[0], ops=new, handed=handed), *parts[1:]]


def _may_rest(dims: set[Dim], ops: Sequence[Op]) -> bool:
    """Whether what is left over meets nothing of another dimension, and can be added to the others' sums."""
    cuts = {v: sum((v, d) in dims for d in range(v.tensor.rank)) for v in _values(ops)}
    summed = (op for op in ops if is_reduction(op) and cuts[op.operands[0]] and not cuts[op.results[0]])
    return max(cuts.values()) == 1 and all(
        op.attrs.get("monoid") is not None and len(op.results) == 1 for op in summed
    )


def _of_pieces(op: Op, pieces: Sequence[_Piece]) -> Iterator[Op]:
    """The op of each piece; what it makes of all, in one."""
    whole = not any(pieces[0].cuts(v) for v in op.results)
    if len(pieces) == 1 or (whole and not any(pieces[0].cuts(v) for v in op.operands)):
        yield from pieces[0].made(op)
    elif whole:
        halves = [Value(TensorType(op.result.shape, op.result.tensor.dtype.compute)) for _ in pieces]
        start = identity_of(op, op.result)
        yield start
        yield from pieces[0].made(replace(op, operands=(*data_operands(op), start.result)), halves[0])
        yield from pieces[1].made(op, halves[1])
        yield from added(op, halves)
    else:
        for piece in pieces:
            yield from piece.made(op)


def _wanted(op: Op) -> Iterator[tuple[Dim, int]]:
    """The dimension to be cut of a tensor that is reduced to few columns, and how much is to be cut off."""
    if not is_reduction(op) or op.attrs.get("monoid") is None or len(op.results) > 1:
        return
    x, dims = op.operands[0], sorted(op.attrs["dimensions"])
    columns = math.prod(x.shape[len(dims) :])
    if dims != list(range(len(dims))) or not SEVERAL < columns < VECTOR or x.tensor.size < LEAST:
        return
    yield from _cut(x, len(dims))


def _repeated(op: Op) -> Iterator[tuple[Dim, int]]:
    """The same of a tensor that has the same few columns in all of its rows."""
    if build.is_broadcast(op) and op.result.tensor.size >= LEAST:
        shape, last = op.result.shape, op.result.tensor.rank - 1
        if op.attrs["broadcast_dimensions"] == (last,) and 1 < shape[last] < VECTOR:
            yield from _cut(op.result, last)


def _cut(x: Value, leading: int) -> Iterator[tuple[Dim, int]]:
    """The first of so many dimensions of which a part is neither short nor long, if none is so as it is."""
    behind = [math.prod(x.shape[d + 1 :]) for d in range(leading)]
    if any(RUN <= each <= RUNS for each in behind):
        return
    for d, each in enumerate(behind):
        sizes = [n for n in range(2, min(x.shape[d], RUNS // each) + 1) if n * each >= RUN]
        if sizes:
            yield (x, d), min(sizes, key=lambda n: (x.shape[d] % n > 0, n * each % VECTOR > 0, n))
            return


def _links(op: Op) -> Iterator[tuple[Dim, Dim]]:
    """Dimensions that are one."""
    if is_reduction(op):
        for v in data_operands(op):
            kept = [d for d in range(v.tensor.rank) if d not in op.attrs["dimensions"]]
            yield from (((r, n), (v, d)) for r in op.results for n, d in enumerate(kept))
            yield from (((v, d), (op.operands[0], d)) for d in range(v.tensor.rank))
    elif build.is_broadcast(op):
        v = op.operands[0]
        for n, d in enumerate(op.attrs["broadcast_dimensions"]):
            if v.shape[n] == op.result.shape[d]:
                yield (v, n), (op.result, d)
    elif lookup(op.name).op_class.is_elementwise:
        for v in (*op.operands, *op.results[1:]):
            if v.shape == op.results[0].shape:
                yield from (((v, d), (op.results[0], d)) for d in range(v.tensor.rank))
    elif build.is_reshape(op) and wide(op.operands[0].shape) == wide(op.result.shape):
        sides = ([d for d, n in enumerate(v.shape) if n > 1] for v in (op.operands[0], op.result))
        yield from (((op.operands[0], a), (op.result, b)) for a, b in zip(*sides, strict=True))
    elif not (is_free(op) and lookup(op.name).op_class is OpClass.CONSTANT):
        yield from (((v, d), UNKNOWN) for v in (*op.operands, *op.results) for d in range(v.tensor.rank))


def _values(ops: Sequence[Op]) -> dict[Value, None]:
    return dict.fromkeys(v for op in ops for v in (*op.operands, *op.results))


@dataclass(frozen=True, eq=False)
class _Piece:
    """A part of what is along some dimensions, and what the ops make of it.

    dims: that are cut, of as many elements. count: of them, from `first` on. size: of what is cut off; 0:
    nothing is. values: of the old ops, as the piece has them.
    """

    dims: set[Dim]
    first: int
    count: int
    size: int
    values: dict[Value, Value] = field(default_factory=dict)

    def made(self, op: Op, result: Value | None = None) -> Iterator[Op]:
        """The same op of the piece, and views of what it reads. result: of a reduction of all there is."""
        for v in op.operands:
            if v not in self.values and self.cuts(v):
                yield from self._view(v)
        made = {v: Value(TensorType(self.shape(v), v.tensor.dtype)) for v in op.results if self.cuts(v)}
        self.values.update(made)
        operands = tuple(self.values.get(v, v) for v in op.operands)
        results = tuple(made.get(v, v) for v in op.results) if result is None else (result,)
        yield replace(op, operands=operands, results=results, attrs=self.attrs(op))

    def turned(self, v: Value) -> Turned:
        """What stands for its part of the old value."""
        strides: list[int] = []
        first = 0
        for d in range(v.tensor.rank):
            each = math.prod(v.shape[d + 1 :])
            cut = (v, d) in self.dims
            strides += [each * self.size, each] if cut and self.size else [each]
            first += each * self.first if cut else 0
        return Turned(self.values[v], tuple(strides), first)

    def cuts(self, v: Value) -> bool:
        return any((v, d) in self.dims for d in range(v.tensor.rank))

    def shape(self, v: Value) -> tuple[int, ...]:
        return tuple(n for d in range(v.tensor.rank) for n in self.sizes(v, d))

    def sizes(self, v: Value, d: int) -> tuple[int, ...]:
        if (v, d) not in self.dims:
            return (v.shape[d],)
        return (self.count // self.size, self.size) if self.size else (self.count,)

    def place(self, v: Value, d: int) -> tuple[int, ...]:
        """Where the dimension is among those of the piece's value."""
        first = sum(len(self.sizes(v, before)) for before in range(d))
        return tuple(range(first, first + len(self.sizes(v, d))))

    def attrs(self, op: Op) -> Mapping[str, object]:
        if is_reduction(op):
            dims = [n for d in op.attrs["dimensions"] for n in self.place(op.operands[0], d)]
            return {**op.attrs, "dimensions": tuple(dims)}
        if build.is_broadcast(op):
            v = op.operands[0]
            pairs = enumerate(op.attrs["broadcast_dimensions"])
            dims = [n for own, d in pairs for n in self.place(op.result, d)[: len(self.sizes(v, own))]]
            return {**op.attrs, "broadcast_dimensions": tuple(dims)}
        return op.attrs

    def _view(self, v: Value) -> Iterator[Op]:
        """The piece of what somebody else makes, where that is: nobody shares rows by it."""
        found, dims = v, [(v, d) in self.dims for d in range(v.tensor.rank)]
        starts = [self.first if cut else 0 for cut in dims]
        ends = [self.first + self.count if cut else n for cut, n in zip(dims, v.shape, strict=True)]
        views = []
        if tuple(ends) != v.shape or any(starts):
            views.append(build.slice_(v, starts, ends, [1] * v.tensor.rank))
        if self.size:
            found = views[-1].result if views else v
            views.append(build.reshape(found, self.shape(v)))
        yield from (replace(view, attrs={**view.attrs, APART: True}) for view in views)
        self.values[v] = views[-1].result
