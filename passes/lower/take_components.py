"""Rows of a few elements, each of which is a value of its own: loops go over the rows.

    %l = reduce add (%x * %x), dims = [1]    [20000, 3]
                                      ->
    %0, %1, %2 = %x[:, 0], %x[:, 1], %x[:, 2];    %l = %0 * %0 + %1 * %1 + %2 * %2

What is made of components for others is stored where they have it (`InStrips`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from jstitch.ir.graph import Op, Value
from jstitch.ir.ops import build, lookup
from jstitch.ir.types import DType, TensorType
from jstitch.passes.base.row_access import has_identity, identities
from jstitch.passes.lower.component_values import At, ComponentValues
from jstitch.passes.lower.find_components import (
    PAD,
    REDUCE,
    REVERSE,
    SLICE,
    TRANSPOSE,
    cuts_rows,
    find_components,
    is_chain,
    same_elements,
)
from jstitch.passes.lower.own_columns import Part, Turned

ADD = "stablehlo.add"
ROUNDED = (ADD, "stablehlo.multiply")  # in narrow floats after each step


def take_components(ops: Sequence[Op], outputs: Sequence[Value]) -> list[Part] | None:
    """The ops on components, and where these are in the outputs; None where no dimension is written out.

    A part for each component, all of whose ops are the first one's.
    """
    taken = _taken(ops)
    if taken is None:
        return None
    turned = {v: taken.turned(v) for v in outputs}
    parts = [
        Part((), None, {v: found[n] for v, found in turned.items() if n < len(found)})
        for n in range(max(1, *map(len, turned.values())))
    ]
    handed = [t.value for part in parts[1:] for t in part.turned.values()]
    return [replace(parts[0], ops=taken.values.new, handed=handed), *parts[1:]]


def with_components(ops: Sequence[Op], outputs: Sequence[Value]) -> tuple[list[Op], list[Value]]:
    """The same, with what is made of components put together again; and what stands for the outputs."""
    taken = _taken(ops)
    if taken is None:
        return list(ops), list(outputs)
    made = [taken.values.whole(v) for v in outputs]
    return taken.values.new, made


def _taken(ops: Sequence[Op]) -> _Taken | None:
    dims = find_components(ops)
    if not dims:
        return None
    taken = _Taken(ComponentValues(dims, ops))
    for op in ops:
        taken.take(op)
    return taken


@dataclass(frozen=True, eq=False)
class _Taken:
    values: ComponentValues

    def take(self, op: Op) -> None:
        """The op of each component, or as it is."""
        values = self.values
        values.origin = op
        if self._is_whole(op):
            operands = tuple(values.whole(v) for v in op.operands)
            values.keep(op if operands == op.operands else replace(op, operands=operands))
            return
        for at in values.places(op.results[0]):
            values.set(op.results, at, self._of(op, at))

    def _is_whole(self, op: Op) -> bool:
        if not any(v in self.values.dims for v in (*op.operands, *op.results)):
            return True
        if build.is_reshape(op):
            return cuts_rows(op)
        if op.name == REDUCE:
            return not is_chain(op)
        moves = build.is_broadcast(op) or build.is_concatenate(op)
        known = moves or op.name in (PAD, SLICE, REVERSE, TRANSPOSE) or not op.operands
        return not (known or lookup(op.name).op_class.is_elementwise)

    def turned(self, v: Value) -> list[Turned]:
        """What stands for an output: nothing, where it is made as it was."""
        values = self.values
        if values.is_kept(v):
            return []
        each = [math.prod(v.shape[d + 1 :]) for d in range(v.tensor.rank)]
        return [
            Turned(
                values.made_here(values.piece(v, at)),
                tuple(n for d, n in enumerate(each) if d not in at),
                sum(each[d] * i for d, i in at.items()),
            )
            for at in values.places(v)
        ]

    def _of(self, op: Op, at: At) -> Sequence[Value]:
        """What the op makes there."""
        if op.name == REDUCE:
            return [self._reduced(op, at)]
        if not op.operands:
            return [self._constant(op, at)]
        if build.is_broadcast(op):
            return [self._broadcast(op, at)]
        if build.is_concatenate(op):
            return [self._concatenated(op, at)]
        if build.is_reshape(op):
            return [self._reshaped(op, at)]
        moved = {
            TRANSPOSE: self._transposed,
            REVERSE: self._reversed,
            SLICE: self._sliced,
            PAD: self._padded,
        }.get(op.name)
        return self._elementwise(op, at) if moved is None else [moved(op, at)]

    def _elementwise(self, op: Op, at: At) -> Sequence[Value]:
        values, shape = self.values, op.results[0].shape
        operands = tuple(values.piece(v, at) if v.shape == shape else values.whole(v) for v in op.operands)
        results = tuple(Value(TensorType(_rest(v, at), v.tensor.dtype)) for v in op.results)
        values.emit(replace(op, operands=operands, results=results))
        return results

    def _constant(self, op: Op, at: At) -> Value:
        shape = op.result.shape
        if "value" in op.attrs:
            index = tuple(at.get(d, slice(None)) for d in range(len(shape)))
            return self.values.emit(build.constant(op.attrs["value"][index]))
        along, type_ = op.attrs["iota_dimension"], TensorType(_rest(op.result, at), op.result.tensor.dtype)
        if along in at:
            return self.values.emit(build.splat(type_, at[along]))
        return self.values.emit(build.iota(type_, _left(along, at)))

    def _broadcast(self, op: Op, at: At) -> Value:
        x, dims = op.operands[0], op.attrs["broadcast_dimensions"]
        own = {n: at[d] if x.shape[n] > 1 else 0 for n, d in enumerate(dims) if d in at}
        piece, shape = self.values.piece(x, own), _rest(op.result, at)
        kept = [_left(d, at) for n, d in enumerate(dims) if d not in at and x.shape[n] != 1]
        same = piece.shape == shape and kept == list(range(len(shape)))
        return piece if same else self.values.emit(build.broadcast(piece, shape, kept))

    def _concatenated(self, op: Op, at: At) -> Value:
        along = op.attrs["dimension"]
        if along not in at:
            parts = [self.values.shaped(self.values.piece(v, at), _rest(v, at)) for v in op.operands]
            return self.values.emit(build.concatenate(parts, _left(along, at)))
        number = at[along]
        for v in op.operands:
            if number < v.shape[along]:
                return self.values.piece(v, {**at, along: number})
            number -= v.shape[along]
        raise AssertionError("an element behind the last part")

    def _reshaped(self, op: Op, at: At) -> Value:
        x, r = op.operands[0], op.result
        own: dict[int, int] = {}
        for before, behind in same_elements(x.shape, r.shape):
            if not set(behind).isdisjoint(at):
                number = 0
                for d in sorted(behind):
                    number = number * r.shape[d] + at[d]
                for d in sorted(before, reverse=True):
                    number, own[d] = divmod(number, x.shape[d])
        return self.values.shaped(self.values.piece(x, own), _rest(r, at))

    def _transposed(self, op: Op, at: At) -> Value:
        x, order = op.operands[0], op.attrs["permutation"]
        own = {order[d]: i for d, i in at.items()}
        piece = self.values.piece(x, own)
        kept = [_left(d, own) for n, d in enumerate(order) if n not in at]
        return piece if kept == sorted(kept) else self.values.emit(build.transpose(piece, kept))

    def _reversed(self, op: Op, at: At) -> Value:
        x, turned = op.operands[0], op.attrs["dimensions"]
        piece = self.values.piece(x, {d: x.shape[d] - 1 - i if d in turned else i for d, i in at.items()})
        dims = [_left(d, at) for d in turned if d not in at]
        return self.values.emit(build.reverse(piece, dims)) if dims else piece

    def _sliced(self, op: Op, at: At) -> Value:
        x = op.operands[0]
        bounds = [op.attrs[k] for k in ("start_indices", "limit_indices", "strides")]
        starts, _, strides = bounds
        own = {d: starts[d] + i * strides[d] for d, i in at.items()}
        piece = self.values.piece(x, own)
        left = [d for d in range(x.tensor.rank) if d not in own]
        if any(op.result.shape[d] != x.shape[d] for d in left):
            piece = self.values.emit(build.slice_(piece, *([b[d] for d in left] for b in bounds)))
        return self.values.shaped(piece, _rest(op.result, at))

    def _padded(self, op: Op, at: At) -> Value:
        x, filled = op.operands
        low, high, inner = (
            op.attrs[k] for k in ("edge_padding_low", "edge_padding_high", "interior_padding")
        )
        own = {d: divmod(i - low[d], inner[d] + 1) for d, i in at.items()}
        if any(rest or not 0 <= i < x.shape[d] for d, (i, rest) in own.items()):
            return self.values.emit(build.broadcast(self.values.whole(filled), _rest(op.result, at), ()))
        piece = self.values.piece(x, {d: i for d, (i, _) in own.items()})
        left = [d for d in range(x.tensor.rank) if d not in own]
        edges = [[edge[d] for d in left] for edge in (low, high, inner)]
        if any(map(any, edges)):
            full = self.values.shaped(piece, [x.shape[d] for d in left])
            piece = self.values.emit(build.pad(full, self.values.whole(filled), *edges))
        return self.values.shaped(piece, _rest(op.result, at))

    def _reduced(self, op: Op, at: At) -> Value:
        """A chain over what is written out; a reduction of what is left, and of what there is of all."""
        values, (x, init) = self.values, op.operands
        reduced = op.attrs["dimensions"]
        kept = [d for d in range(x.tensor.rank) if d not in reduced]
        own = {kept[d]: i for d, i in at.items()}
        pieces = [values.piece(x, {**own, **inner}) for inner in values.places(x, reduced)]
        gone = {*own, *(d for d in values.dims.get(x, ()) if d in reduced)}
        rest = [_left(d, gone) for d in reduced if d not in gone]
        if len(gone) == len(own):
            result = Value(TensorType(_rest(op.result, at), op.result.tensor.dtype))
            attrs = {**op.attrs, "dimensions": tuple(rest)}
            start = values.whole(init)
            return values.emit(replace(op, operands=(pieces[0], start), results=(result,), attrs=attrs))
        return self._chained(op, pieces, rest)

    def _chained(self, op: Op, pieces: Sequence[Value], rest: Sequence[int]) -> Value:
        values, monoid, dtype = self.values, op.attrs["monoid"], op.result.tensor.dtype
        wide = dtype.compute if monoid in ROUNDED else dtype
        total, *others = (self._converted(piece, wide) for piece in pieces)
        for other in others:
            total = values.emit(build.elementwise(monoid, total, other))
        start = self._converted(values.whole(op.operands[1]), wide)
        if rest:
            total = values.emit(build.reduce(monoid, total, start, rest))
        elif not self._is_identity(op):
            full = values.emit(build.broadcast(start, total.shape, ()))
            total = values.emit(build.elementwise(monoid, total, full))
        return self._converted(total, dtype)

    def _converted(self, v: Value, dtype: DType) -> Value:
        return v if v.tensor.dtype is dtype else self.values.emit(build.convert(v, dtype))

    def _is_identity(self, op: Op) -> bool:
        """Whether the reduction starts from what changes nothing: 0.0 makes a sum of -0.0 another one."""
        start = build.splat_value(self.values.makers.get(op.operands[1]))
        if start is None or not has_identity(op) or start != identities(op)[0]:
            return False
        return op.attrs["monoid"] != ADD or not op.result.tensor.dtype.is_float or bool(np.signbit(start))


def _rest(v: Value, at: At) -> tuple[int, ...]:
    """The shape of what is left of a value without these dimensions."""
    return tuple(n for d, n in enumerate(v.shape) if d not in at)


def _left(d: int, gone: Mapping[int, int] | set[int]) -> int:
    """The number of a dimension where these are no more."""
    return d - sum(other < d for other in gone)
