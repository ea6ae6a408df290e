"""Cut a pattern whose reductions keep the last dimension into strips of columns (FS-2018, section 4.1).

    softmax over dim 0 of [64, 4096]     ->     32 strips of 128 columns, each [64, 128], in one phase

    x' = transpose(reshape(x, [64, 32, 128]), (1, 0, 2))     read in place: an index, no copy
    m' = reduce(max, x', dims = [1])                         [32, 128]: inside a strip
    y' = exp(x' - m') / ...                                  stored where [64, 4096] has it

This is the paper's Column schedule. In rows, such a reduction crosses all of them: partial results in one
phase, combined in the next, and the rows read again. A program that owns columns has all that they need.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from jstitch.ir.graph import Op, Value
from jstitch.ir.ops import OpClass, build, lookup
from jstitch.ir.types import TensorType
from jstitch.passes.base.plan import is_free
from jstitch.passes.base.row_access import data_operands, is_reduction
from jstitch.passes.lower.form_groups import APART, HELD, Strips

FEW = 8  # what has at most this share of the cut tensor's elements may stay as it is
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Columns:
    """How a tensor, or a part of its columns, is cut.

    shape: without dimensions of one element. lead: leading dimensions, which stay outside the reduced ones.
    width: columns of a strip. first: of the part's columns.
    """

    shape: Shape
    lead: int
    width: int
    first: int = 0

    @property
    def strips(self) -> int:
        """That are whole, from the first column on."""
        return (self.shape[-1] - self.first) // self.width

    @property
    def end(self) -> int:
        """Behind the last of the part's columns."""
        return self.first + self.strips * self.width

    @property
    def rest(self) -> Columns | None:
        """The columns behind the strips, as one."""
        left = self.shape[-1] - self.end
        return replace(self, width=left, first=self.end) if left else None

    @property
    def is_whole(self) -> bool:
        return self.end - self.first == self.shape[-1]

    @property
    def whole(self) -> Shape:
        """The tensor's shape in strips."""
        return (*self.shape[: self.lead], self.strips, *self.shape[self.lead : -1], self.width)

    @property
    def kept(self) -> Shape:
        """That of what its reductions leave, not in strips."""
        return (*self.shape[: self.lead], self.shape[-1])

    @property
    def kept_strips(self) -> Shape:
        return (*self.shape[: self.lead], self.strips, self.width)


@dataclass(frozen=True)
class Turned:
    """A value in strips that stands for another, or for a part of it.

    Its element at an index is the other's at `first`, and the index's numbers times the strides.
    """

    value: Value
    strides: tuple[int, ...]
    first: int


@dataclass(frozen=True)
class Part:
    """Ops that make the same, or a part of it. strips: of what they make; None: they are as they were.

    turned: values of the old ops -> what stands for them. handed: what later parts read.
    """

    ops: Sequence[Op]
    strips: Strips | None = None
    turned: Mapping[Value, Turned] = field(default_factory=dict)
    handed: Sequence[Value] = ()

    def made(self, values: Iterable[Value]) -> list[Value]:
        """What the ops make of old values."""
        return [self.turned[v].value if v in self.turned else v for v in values]


class _CannotOwnError(Exception):
    """An op that wants more than a strip."""


def own_columns(
    ops: Sequence[Op], outputs: Sequence[Value], cut: Columns, hold: bool = False
) -> list[Part] | None:
    """The ops, in program order, in strips; None where one of them wants more than a strip of another.

    Columns behind the last whole strip are a part of their own. hold: strips of what is read from memory are
    worth a tile each, where no cache keeps them.
    """
    try:
        return [_Rewriting(c, hold).run(ops, outputs) for c in (cut, cut.rest) if c is not None]
    except _CannotOwnError:
        return None


class _Rewriting:
    def __init__(self, cut: Columns, hold: bool) -> None:
        self.cut, self.hold = cut, hold
        self.made: set[Value] = set()
        self.outputs: set[Value] = set()
        self.new: list[Op] = []
        self.native: dict[Value, Value] = {}
        self.views: dict[Value, Value] = {}

    def run(self, ops: Sequence[Op], outputs: Sequence[Value]) -> Part:
        self.made = {v for op in ops if not op.attrs.get(APART) for v in op.results}
        self.outputs = set(outputs)
        for op in ops:
            self._op(op)
        strips = Strips(math.prod(self.cut.whole[: self.cut.lead + 1]), self.cut.width)
        return Part(self.new, strips, {v: self._turned(v) for v in outputs if v in self.native})

    def _turned(self, v: Value) -> Turned:
        """Dimensions (lead..., strip, middle..., column) of a value (lead..., middle..., column)."""
        lead, shape = self.cut.lead, wide(v.shape)
        strides = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
        return Turned(self.native[v], (*strides[:lead], self.cut.width, *strides[lead:]), self.cut.first)

    def _op(self, op: Op) -> None:
        if is_free(op):
            self.new.append(op)
        elif is_reduction(op):
            self._reduction(op)
        elif lookup(op.name).op_class.is_elementwise and self._kind(op.results[0]) is not None:
            self._elementwise(op)
        elif any(v in self.native for v in op.uses):
            self._shape_op(op)
        elif build.is_broadcast(op) and self._kind(op.result) == self.cut.shape:
            self._broadcast(op)
        else:
            self._leave(op)

    def _leave(self, op: Op) -> None:
        """As it was: what only moves elements to where strips read them, or has few."""
        kind, returned = lookup(op.name).op_class, not self.outputs.isdisjoint(op.results)
        moves = kind in (OpClass.SHAPE, OpClass.INDEX) and not returned
        elements = max(v.tensor.size for v in (*op.operands, *op.results))
        if not moves and elements * FEW > math.prod(self.cut.shape):
            raise _CannotOwnError
        self.new.append(op)

    def _kind(self, v: Value) -> Shape | None:
        """The shape of what is cut or kept, if the value has it but for dimensions of one element."""
        shape = wide(v.shape)
        return shape if shape in (self.cut.shape, self.cut.kept) else None

    def _strips(self, kind: Shape) -> Shape:
        return self.cut.whole if kind == self.cut.shape else self.cut.kept_strips

    def _add(
        self, op: Op, old: Sequence[Value], shape: Shape, operands: Iterable[Value], **attrs: object
    ) -> None:
        results = tuple(Value(TensorType(shape, v.tensor.dtype)) for v in old)
        self.new.append(replace(op, operands=tuple(operands), results=results, attrs={**op.attrs, **attrs}))
        self.native.update(zip(old, results, strict=True))

    # -- ops ------------------------------------------------------------------------------------------------

    def _elementwise(self, op: Op) -> None:
        shape = op.results[0].shape
        kind = self._kind(op.results[0])
        assert kind is not None
        operands = (self._view(v) if v.shape == shape else self._whole(v) for v in op.operands)
        self._add(op, op.results, self._strips(kind), list(operands))

    def _reduction(self, op: Op) -> None:
        data = data_operands(op)
        if self._kind(data[0]) != self.cut.shape or not keeps_columns(op, self.cut):
            if any(v in self.native for v in op.operands):
                raise _CannotOwnError
            self._leave(op)
            return
        lead = self.cut.lead
        dims = tuple(range(lead + 1, len(self.cut.shape)))
        inits = [self._whole(v) for v in op.operands[len(data) :]]
        views = [self._view(v) for v in data]
        self._add(op, op.results, self.cut.kept_strips, [*views, *inits], dimensions=dims)

    def _shape_op(self, op: Op) -> None:
        """Of something in strips: it gets or loses dimensions of one element, or repeats what is kept."""
        v = op.operands[0]
        kind = self._kind(op.result)
        if kind is None or any(u in self.native for u in op.uses[1:]):
            raise _CannotOwnError
        if build.is_broadcast(op):
            self._broadcast(op)
        elif build.is_reshape(op) and kind == self._kind(v):
            self.native[op.result] = self.native[v]
        else:
            raise _CannotOwnError

    def _broadcast(self, op: Op) -> None:
        """Where each dimension goes among those of more than one element, then among those of the strips."""
        v, shape = op.operands[0], op.result.shape
        kind = self._kind(op.result)
        assert kind is not None
        place = {d: n for n, d in enumerate(d for d, size in enumerate(shape) if size > 1)}
        pairs = zip(v.shape, op.attrs["broadcast_dimensions"], strict=True)
        dims = [place[d] for size, d in pairs if size > 1]
        if dims == list(range(len(kind))):
            self.native[op.result] = self._view(v)
            return
        roles = [self._role(n, kind) for n in dims]
        last = len(self.cut.shape) - 1
        cut = last in roles
        if (cut and roles[-1] != last) or (v in self.native and roles != [*range(self.cut.lead), last]):
            raise _CannotOwnError  # turned, or of another tensor with as many elements
        source = self._parts(v, cut)
        to = [self._place(role, kind) for role in roles]
        to = [*to[:-1], self.cut.lead, len(self._strips(kind)) - 1] if cut else to
        found = self._reordered(source, to)
        self._add(op, op.results, self._strips(kind), [found[0]], broadcast_dimensions=found[1])

    def _role(self, n: int, kind: Shape) -> int:
        """The number, among the cut tensor's dimensions, of dimension n of a value of this kind."""
        return n if kind == self.cut.shape or n < self.cut.lead else len(self.cut.shape) - 1

    def _place(self, role: int, kind: Shape) -> int:
        """Where, in strips, a dimension stands that is not cut."""
        if role < self.cut.lead:
            return role
        if kind != self.cut.shape:
            raise _CannotOwnError
        return role + 1

    def _reordered(self, v: Value, dims: list[int]) -> tuple[Value, tuple[int, ...]]:
        """A broadcast's dimensions must ascend."""
        order = sorted(range(len(dims)), key=dims.__getitem__)
        if order != list(range(len(dims))):
            v = self._apart(build.transpose(v, order))
        return v, tuple(sorted(dims))

    def _parts(self, v: Value, cut: bool) -> Value:
        """A value that is repeated: its last dimension in strips, and none of one element."""
        if v in self.native:
            return self.native[v]
        return self._divided(v) if cut else self._reshaped(v, wide(v.shape))

    def _reshaped(self, v: Value, shape: Shape) -> Value:
        return v if shape == v.shape else self._apart(build.reshape(v, shape))

    def _divided(self, v: Value) -> Value:
        """The part's columns, and these in strips: (..., strip, column)."""
        if v.shape[-1] == 1:
            v = self._reshaped(v, wide(v.shape))
        if not self.cut.is_whole:
            start, limit = (0,) * (v.tensor.rank - 1), v.shape[:-1]
            v = self._apart(
                build.slice_(v, (*start, self.cut.first), (*limit, self.cut.end), (1,) * v.tensor.rank)
            )
        lead = tuple(n for n in v.shape[:-1] if n > 1)
        return self._reshaped(v, (*lead, self.cut.strips, self.cut.width))

    # -- values ---------------------------------------------------------------------------------------------

    def _whole(self, v: Value) -> Value:
        if v in self.native:
            raise _CannotOwnError
        return v

    def _view(self, v: Value) -> Value:
        """In strips, whoever makes it."""
        if v in self.native:
            return self.native[v]
        if v not in self.views:
            cut = self._divided(v)
            lead, rank = self.cut.lead, cut.tensor.rank
            order = (*range(lead), rank - 2, *range(lead, rank - 2), rank - 1)
            ordered = order == tuple(range(rank))
            view = cut if ordered else self._apart(build.transpose(cut, order))
            held = self.hold and v not in self.made and self._kind(v) == self.cut.shape
            self.views[v] = self._held(view) if held else view
        return self.views[v]

    def _held(self, view: Value) -> Value:
        same = build.convert(view, view.tensor.dtype)
        self.new.append(replace(same, attrs={**same.attrs, HELD: True}))
        return same.result

    def _apart(self, view: Op) -> Value:
        """A view of memory: nobody shares rows by it."""
        self.new.append(replace(view, attrs={**view.attrs, APART: True}))
        return view.result


def wide(shape: Shape) -> Shape:
    """Without dimensions of one element."""
    return tuple(n for n in shape if n > 1)


def keeps_columns(op: Op, cut: Columns) -> bool:
    """Whether a reduction of the cut tensor reduces all between its leading and its last dimension."""
    shape = op.operands[0].shape
    places = [d for d, n in enumerate(shape) if n > 1]
    reduced = [n for n, d in enumerate(places) if d in op.attrs["dimensions"]]
    return reduced == list(range(cut.lead, len(cut.shape) - 1))


def whole(value: Value) -> Turned:
    """What stands for another of as many elements, in the same order."""
    return Turned(value, tuple(math.prod(value.shape[d + 1 :]) for d in range(value.tensor.rank)), 0)


def as_they_were(parts: Sequence[Part], outputs: Sequence[Value]) -> tuple[list[Op], list[Value]]:
    """The ops of all parts, and those that put what is cut together again; and what these make."""
    ops = [op for part in parts for op in part.ops]
    made: list[Value] = []
    for v in outputs:
        pieces = [part.turned[v] for part in parts if v in part.turned]
        along = _along(v.shape, max((piece.first for piece in pieces), default=0))
        found = [_in_place(piece, v, along, ops) for piece in pieces]
        if len(found) > 1:
            ops.append(build.concatenate(found, along))
            found = [ops[-1].result]
        made.append(found[0] if found else v)
    return list(dict.fromkeys(ops)), made


def _in_place(turned: Turned, v: Value, along: int, ops: list[Op]) -> Value:
    """A part of the old value along that dimension, made by ops that are appended."""
    shape = turned.value.shape
    order = sorted(range(len(shape)), key=lambda d: -turned.strides[d])
    turn = build.transpose(turned.value, order)
    own = math.prod(shape) * v.shape[along] // v.tensor.size if v.tensor.size else 0
    back = build.reshape(turn.result, [own if d == along else n for d, n in enumerate(v.shape)])
    ops += turn, back
    return back.result


def _along(shape: Shape, first: int) -> int:
    """The dimension in which element number `first` is not the first one."""
    strides = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
    return next((d for d, n in enumerate(strides) if first >= n and shape[d] > 1), 0)
