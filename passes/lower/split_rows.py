"""Rows of products whose number no step of the kernel divides, in two parts: whole steps, and the rest.

%o [8, 12, 197, 64]      ->      %a of rows [0, 160), five tiles of 32;  %b of rows [160, 197), one of 37

Image patches with a token for the class are 197, 257 or 577, which are prime; so tiles of tensor cores waste
what they multiply. On a CPU a large prime number of rows is one step: nobody shares it, and no cache holds it.
Each part is a lane of its own; both read what products have on their right, and write what they make to where
the whole has its rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from jstitch.ir.graph import Op, Value
from jstitch.ir.ops import OpClass, build, lookup
from jstitch.ir.ops.links import linked
from jstitch.ir.types import TensorType
from jstitch.passes.base.product_side import PRODUCT, Side
from jstitch.passes.lower.own_columns import Part, Turned
from jstitch.passes.lower.schedule import divisors
from jstitch.passes.lower.tile_rows import FEW_ROWS, MOST_CPU_ROWS, MOST_ROWS, TENSOR_ROWS

WASTE = 1.15  # rows that tensor cores multiply for tiles of one size, over those for two parts
UNITS = 64, 32, 16  # rows of whole tiles


class _CannotSplitError(Exception):
    """An op that needs all rows at once."""


def split_rows(part: Part, outputs: Sequence[Value], on_gpu: bool) -> list[Part]:
    """The part as it is, or in two. outputs: of the pattern."""
    rows = _rows(part)
    if rows is None:
        return [part]
    cut = where_to_split(rows) if on_gpu else where_to_share(rows)
    if cut is None:
        return [part]
    try:
        dims = _dimensions(part, part.made(outputs), rows)
        return [_piece(part, outputs, dims, bounds) for bounds in ((0, cut), (cut, rows))]
    except _CannotSplitError:
        return [part]


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


def _dimensions(part: Part, made: Sequence[Value], rows: int) -> Mapping[Value, int]:
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
    _check(part, made, dims)
    return dims


def _forward(op: Op, dims: Mapping[Value, int], rows: int) -> int | None:
    """The dimension of its results that goes with one of its operands' that is cut."""
    for d, size in enumerate(op.results[0].shape):
        ties = linked(op, d) if size == rows else None
        known = zip(op.operands, ties or (), strict=False)
        if any(place is not None and dims.get(v) == place for v, place in known):
            return d
    return None


def _check(part: Part, made: Sequence[Value], dims: Mapping[Value, int]) -> None:
    """All that reads rows must be cut itself, and all that is stored. Raises _CannotSplitError."""
    for op in part.ops:
        dim = dims.get(op.results[0])
        ties = None if dim is None else linked(op, dim)
        for v, place in zip(op.operands, ties or [None] * len(op.operands), strict=False):
            if dims.get(v) != place:
                raise _CannotSplitError
    if any(v not in dims for v in made):
        raise _CannotSplitError


@dataclass
class _Piece:
    """Rows [low, high). values: of all rows -> of these."""

    dims: Mapping[Value, int]
    low: int
    high: int
    ops: list[Op] = field(default_factory=list)
    values: dict[Value, Value] = field(default_factory=dict)

    def write(self, op: Op) -> None:
        dim = self.dims.get(op.results[0])
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
        if v in self.dims and v not in self.values:
            self.values[v] = self._slice(v)
        return self.values.get(v, v)

    def _slice(self, v: Value) -> Value:
        dim, shape = self.dims[v], v.shape
        start = [self.low if d == dim else 0 for d in range(len(shape))]
        limit = [self.high if d == dim else n for d, n in enumerate(shape)]
        self.ops.append(build.slice_(v, start, limit, [1] * len(shape)))
        return self.ops[-1].result

    def _sliced(self, op: Op) -> Value:
        """Of a constant, or of places: made whole, of which no more than these rows are looked at."""
        self.ops.append(op)
        return self._slice(op.result)

    def _kind(self, v: Value) -> TensorType:
        dim, shape = self.dims[v], v.shape
        return TensorType((*shape[:dim], self.high - self.low, *shape[dim + 1 :]), v.tensor.dtype)

    def _attrs(self, op: Op, dim: int) -> Mapping[str, object]:
        """With limits that fit so many rows."""
        if op.name != "stablehlo.slice":
            return op.attrs
        limits = tuple(op.attrs["limit_indices"])
        fewer = (*limits[:dim], self.high - self.low, *limits[dim + 1 :])
        return {**op.attrs, "limit_indices": fewer}


def _piece(part: Part, outputs: Sequence[Value], dims: Mapping[Value, int], bounds: tuple[int, int]) -> Part:
    piece = _Piece(dims, *bounds)
    for op in part.ops:
        piece.write(op)
    turned = {}
    for v in outputs:
        known = part.turned.get(v) or Turned(v, _strides(v), 0)
        first = known.first + bounds[0] * known.strides[dims[known.value]]
        turned[v] = Turned(piece.values[known.value], known.strides, first)
    return Part(piece.ops, None, turned)


def _strides(v: Value) -> tuple[int, ...]:
    return tuple(math.prod(v.shape[d + 1 :]) for d in range(v.tensor.rank))
