"""Few columns are made many, where rows are added up: a part of the rows' number goes to the columns.

    sum over 0 of tanh(x [180000, 10] + b)     ->     sum over (0, 1) of tanh(x' [15000, 12, 10] + b)

Ten columns fill no vector, 120 do (`sum_in_blocks` then adds up dimension 0 first). All that has such rows is
cut so: the dimension is followed through the ops that know it element by element.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from jstitch.ir.graph import Op, Value
from jstitch.ir.node_graph import connected_parts
from jstitch.ir.ops import OpClass, build, lookup
from jstitch.ir.types import TensorType
from jstitch.passes.base.plan import is_free
from jstitch.passes.base.row_access import data_operands, is_reduction
from jstitch.passes.lower.form_groups import APART
from jstitch.passes.lower.group import SEVERAL
from jstitch.passes.lower.own_columns import Part, whole, wide
from jstitch.passes.lower.sum_in_blocks import RUN, RUNS, VECTOR

Dim = tuple[Value | None, int]
UNKNOWN: Dim = None, 0  # connected with it are dimensions that some op looks at in another way
LEAST = 1 << 14  # elements that are worth it


def widen_columns(ops: Sequence[Op], outputs: Sequence[Value]) -> Part | None:
    """The ops with such dimensions cut in two; None where there are none, or they are wide enough."""
    dims = [(v, d) for v in _values(ops) for d in range(v.tensor.rank)]
    wanted = dict(found for op in ops for found in _wanted(op))
    if not wanted:
        return None
    parts = connected_parts([UNKNOWN, *dims], [link for op in ops for link in _links(op)])
    for part in parts:
        size = min((wanted[dim] for dim in part if dim in wanted), default=1)
        if size > 1 and UNKNOWN not in part:
            return _Dividing(part, size).run(ops, outputs)
    return None


def _wanted(op: Op) -> Iterator[tuple[Dim, int]]:
    """The first dimension of a tensor of few columns that is reduced to these, and what is to be cut off."""
    if not is_reduction(op) or op.attrs.get("monoid") is None or len(op.results) > 1:
        return
    x, dims = op.operands[0], sorted(op.attrs["dimensions"])
    columns = math.prod(x.shape[len(dims) :])
    if dims != list(range(len(dims))) or not SEVERAL < columns < VECTOR or x.tensor.size < LEAST:
        return
    ends = [math.prod(x.shape[d:]) for d in dims[1:]]
    if any(RUN <= end <= RUNS for end in ends):
        return
    behind = ends[0] if ends else columns
    sizes = [n for n in range(2, RUNS // behind + 1) if n * behind >= RUN and x.shape[0] % n == 0]
    if sizes:
        yield (x, 0), sizes[0]


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
class _Dividing:
    """dims: that are cut. size: of what is cut off."""

    dims: set[Dim]
    size: int

    def run(self, ops: Sequence[Op], outputs: Sequence[Value]) -> Part:
        values: dict[Value, Value] = {}
        new: list[Op] = []
        for op in ops:
            for v in op.operands:
                if v not in values and self.cuts(v):
                    view = build.reshape(v, self.shape(v))
                    new.append(replace(view, attrs={**view.attrs, APART: True}))
                    values[v] = view.result
            if is_free(op):
                new.append(op)
                continue
            made = {v: Value(TensorType(self.shape(v), v.tensor.dtype)) for v in op.results if self.cuts(v)}
            operands = tuple(values.get(v, v) for v in op.operands)
            results = tuple(made.get(v, v) for v in op.results)
            new.append(replace(op, operands=operands, results=results, attrs=self.attrs(op)))
            values.update(made)
        return Part(new, None, {v: whole(values[v]) for v in outputs if v in values})

    def cuts(self, v: Value) -> bool:
        return any((v, d) in self.dims for d in range(v.tensor.rank))

    def shape(self, v: Value) -> tuple[int, ...]:
        return tuple(n for d in range(v.tensor.rank) for n in self.sizes(v, d))

    def sizes(self, v: Value, d: int) -> tuple[int, ...]:
        n = v.shape[d]
        return (n // self.size, self.size) if (v, d) in self.dims else (n,)

    def place(self, v: Value, d: int) -> tuple[int, ...]:
        """Where the dimension is among those of the cut value."""
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
