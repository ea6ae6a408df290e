"""Rows of products whose number no step of the kernel divides, in two parts: whole steps, and the rest.

%o [8, 12, 197, 64]      ->      %a of rows [0, 160), five tiles of 32;  %b of rows [160, 197), one of 37

Image patches with a token for the class are 197, 257 or 577, which are prime; so tiles of tensor cores waste
what they multiply. On a CPU a large prime number of rows is one step, which nobody shares and no cache holds.
Each part is a lane of its own; both read what products have on their right, and write what they make to where
the whole has its rows. What adds up all rows is added up in each part; a third one adds the two, and has what
is made of the sums.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from jstitch.ir.graph import Op, Value
from jstitch.ir.ops import OpClass, build, lookup
from jstitch.ir.ops.links import linked
from jstitch.ir.types import TensorType
from jstitch.passes.base.product_side import PRODUCT, Side
from jstitch.passes.base.row_access import has_identity, identities
from jstitch.passes.lower.own_columns import Part, Turned
from jstitch.passes.lower.schedule import divisors
from jstitch.passes.lower.tile_rows import FEW_ROWS, MOST_CPU_ROWS, MOST_ROWS, TENSOR_ROWS

WASTE = 1.15  # rows that tensor cores multiply for tiles of one size, over those for two parts
UNITS = 64, 32, 16  # rows of whole tiles


class _CannotSplitError(Exception):
    """An op that needs all rows at once."""


def split_rows(part: Part, outputs: Sequence[Value], on_gpu: bool) -> list[Part]:
    """The part as it is, or in two, and a third of what is made of both. outputs: of the pattern."""
    rows = _rows(part)
    if rows is None:
        return [part]
    cut = where_to_split(rows) if on_gpu else where_to_share(rows)
    if cut is None:
        return [part]
    try:
        how = _cut(part, part.made(outputs), rows)
    except _CannotSplitError:
        return [part]
    if on_gpu and how.totals:
        return [part]  # they would be a launch of their own
    pieces = [_Piece(how, *bounds) for bounds in ((0, cut), (cut, rows))]
    parts = [piece.part(part, outputs) for piece in pieces]
    return [*parts, _together(part, outputs, how, pieces)] if how.totals else parts


def where_to_split(rows: int) -> int | None:
    """The first row of the second part; None where one tile for all rows wastes about as little."""
    whole = [rows // n * _padded(n) for n in divisors(rows) if FEW_ROWS <= n <= MOST_ROWS]
    for unit in UNITS:
        cut = (rows - FEW_ROWS) // unit * unit
        if cut > 0 and rows - cut <= MOST_ROWS:
            apart = cut + _padded(rows - cut)
            return cut if not whole or min(whole) > WASTE * apart else None
    return None


def where_to_share(rows: int) -> int | None:
    """The first row of the second part on a CPU; None where steps of a good size divide the rows."""
    if rows <= MOST_CPU_ROWS or any(FEW_ROWS <= n <= MOST_CPU_ROWS for n in divisors(rows)):
        return None
    return rows // UNITS[0] * UNITS[0]


def _padded(rows: int) -> int:
    """Those that tensor cores multiply for so many."""
    return -(-rows // TENSOR_ROWS) * TENSOR_ROWS


def _rows(part: Part) -> int | None:
    """Of the results of all products, where they have one dimension of them."""
    found = set()
    for op in part.ops:
        if op.name == PRODUCT:
            free = Side.of(op, 0).free
            found.add(op.operands[0].shape[free[0]] if len(free) == 1 else None)
    return found.pop() if len(found) == 1 else None


@dataclass(frozen=True)
class _Cut:
    """dims: values -> the dimension that is cut. totals: what adds up all rows. after: what they make."""

    dims: Mapping[Value, int]
    totals: Sequence[Op]
    after: Set[Value]


def _cut(part: Part, made: Sequence[Value], rows: int) -> _Cut:
    """Raises _CannotSplitError."""
    dims = _dimensions(part, rows)
    totals = [op for op in part.ops if _is_total(op, dims)]
    after: set[Value] = {op.result for op in totals}
    for op in part.ops:
        if not after.isdisjoint(op.operands):
            after.update(op.results)
    _check(part, made, _Cut(dims, totals, after))
    return _Cut(dims, totals, after)


def _dimensions(part: Part, rows: int) -> Mapping[Value, int]:
    """Values -> the dimension that is cut. Raises _CannotSplitError."""
    dims = {op.result: len(Side.of(op, 0).batch) for op in part.ops if op.name == PRODUCT}
    for op in part.ops:
        if op.results[0] not in dims and (dim := _forward(op, dims, rows)) is not None:
            dims |= dict.fromkeys(op.results, dim)
    for op in reversed(part.ops):
        if (dim := dims.get(op.results[0])) is None:
            continue
        ties = linked(op, dim)
        if ties is None:
            raise _CannotSplitError
        for v, place in zip(op.operands, ties, strict=True):
            if place is not None and dims.setdefault(v, place) != place:
                raise _CannotSplitError
    return dims


def _is_total(op: Op, dims: Mapping[Value, int]) -> bool:
    """Whether it adds up what is cut, in a type that rounds no more in parts."""
    if lookup(op.name).op_class is not OpClass.REDUCTION or len(op.results) > 1 or not has_identity(op):
        return False
    kind, (x, *rest) = op.result.tensor.dtype, op.operands
    return kind.compute is kind and dims.get(x) in op.attrs["dimensions"] and dims.keys().isdisjoint(rest)


def _forward(op: Op, dims: Mapping[Value, int], rows: int) -> int | None:
    """The dimension of its results that goes with one of its operands' that is cut."""
    for d, size in enumerate(op.results[0].shape):
        ties = linked(op, d) if size == rows else None
        known = zip(op.operands, ties or (), strict=False)
        if any(place is not None and dims.get(v) == place for v, place in known):
            return d
    return None


def _check(part: Part, made: Sequence[Value], how: _Cut) -> None:
    """All that reads rows must be cut itself, or add them up, and nothing else that is stored may be made of
    all of them. Raises _CannotSplitError.
    """
    dims = how.dims
    for op in part.ops:
        if op in how.totals:
            continue
        dim = dims.get(op.results[0])
        if dim is not None and not how.after.isdisjoint(op.results):
            raise _CannotSplitError
        ties = None if dim is None else linked(op, dim)
        for v, place in zip(op.operands, ties or [None] * len(op.operands), strict=False):
            if dims.get(v) != place:
                raise _CannotSplitError
    if any(v not in dims and v not in how.after for v in made):
        raise _CannotSplitError


@dataclass
class _Piece:
    """Rows [low, high). values: of all rows -> of these. sums: of these rows, for each total."""

    how: _Cut
    low: int
    high: int
    ops: list[Op] = field(default_factory=list)
    values: dict[Value, Value] = field(default_factory=dict)
    sums: list[Value] = field(default_factory=list)

    def part(self, whole: Part, outputs: Sequence[Value]) -> Part:
        for op in whole.ops:
            if op in self.how.totals:
                self._add(op)
            elif self.how.after.isdisjoint(op.results):
                self._write(op)
        turned = {}
        for v in outputs:
            known = whole.turned.get(v) or Turned(v, _strides(v), 0)
            if known.value in self.values:
                first = known.first + self.low * known.strides[self.how.dims[known.value]]
                turned[v] = Turned(self.values[known.value], known.strides, first)
        return Part(self.ops, None, turned, self.sums)

    def _add(self, op: Op) -> None:
        """The total of these rows: only the first one begins with what the whole begins with."""
        init = op.operands[1]
        if self.low > 0:
            self.ops.append(build.splat(init.tensor, identities(op)[0]))
            init = self.ops[-1].result
        result = Value(op.result.tensor)
        self.ops.append(replace(op, operands=(self._of(op.operands[0]), init), results=(result,)))
        self.sums.append(result)

    def _write(self, op: Op) -> None:
        dim = self.how.dims.get(op.results[0])
        if dim is None:
            self.ops.append(op)
            return
        operands = tuple(map(self._of, op.operands))
        if lookup(op.name).op_class is OpClass.CONSTANT or lookup(op.name).position is not None:
            self.values[op.result] = self._sliced(op)
            return
        results = tuple(Value(self._kind(v)) for v in op.results)
        self.ops.append(replace(op, operands=operands, results=results, attrs=self._attrs(op, dim)))
        self.values.update(zip(op.results, results, strict=True))

    def _of(self, v: Value) -> Value:
        """These rows of a value, which may come from outside."""
        if v in self.how.dims and v not in self.values:
            self.values[v] = self._slice(v)
        return self.values.get(v, v)

    def _slice(self, v: Value) -> Value:
        dim, shape = self.how.dims[v], v.shape
        start = [self.low if d == dim else 0 for d in range(len(shape))]
        limit = [self.high if d == dim else n for d, n in enumerate(shape)]
        self.ops.append(build.slice_(v, start, limit, [1] * len(shape)))
        return self.ops[-1].result

    def _sliced(self, op: Op) -> Value:
        """Of a constant, or of places: made whole, of which no more than these rows are looked at."""
        self.ops.append(op)
        return self._slice(op.result)

    def _kind(self, v: Value) -> TensorType:
        dim, shape = self.how.dims[v], v.shape
        return TensorType((*shape[:dim], self.high - self.low, *shape[dim + 1 :]), v.tensor.dtype)

    def _attrs(self, op: Op, dim: int) -> Mapping[str, object]:
        """With limits that fit so many rows."""
        if op.name != "stablehlo.slice":
            return op.attrs
        limits = tuple(op.attrs["limit_indices"])
        fewer = (*limits[:dim], self.high - self.low, *limits[dim + 1 :])
        return {**op.attrs, "limit_indices": fewer}


def _together(part: Part, outputs: Sequence[Value], how: _Cut, pieces: Sequence[_Piece]) -> Part:
    """Totals of all rows, and what is made of them."""
    ops = [op for op in part.ops if op not in how.totals and not how.after.isdisjoint(op.results)]
    read = {v for op in ops for v in op.operands}
    before: list[Op] = []
    for op in reversed(part.ops):
        if how.after.isdisjoint(op.results) and not read.isdisjoint(op.results):
            before.insert(0, op)
            read.update(op.operands)
    sums = zip(how.totals, *(piece.sums for piece in pieces), strict=True)
    adds = [
        replace(build.elementwise(total.attrs["monoid"], a, b), results=total.results).located(total)
        for total, a, b in sums
    ]
    turned = {v: part.turned[v] for v in outputs if v in part.turned}
    own = {v: new for v, new in turned.items() if new.value in how.after}
    return Part([*before, *adds, *ops], None, own)


def _strides(v: Value) -> tuple[int, ...]:
    return tuple(math.prod(v.shape[d + 1 :]) for d in range(v.tensor.rank))
