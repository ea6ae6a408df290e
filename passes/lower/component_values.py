"""What stands for the values of a pattern of which some dimensions are written out.

%y [20000, 3] = %x * %x      made[%y, dim 1 at 0] = %8,  made[%y, dim 1 at 1] = %9,  ...
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from jstitch.ir.graph import Op, Value
from jstitch.ir.ops import build
from jstitch.passes.lower.form_groups import APART

At = Mapping[int, int]  # dimension -> which element along it
Key = tuple[Value, tuple[tuple[int, int], ...]]


@dataclass(eq=False)
class ComponentValues:
    """dims: of each value that are written out. ops: of the pattern. new: what they become.

    made: what a value has where some dimensions have one number. kept: values that are made as they were.
    origin: the op of the pattern that new ones are written for.
    """

    dims: Mapping[Value, Sequence[int]]
    ops: Sequence[Op]
    new: list[Op] = field(default_factory=list)
    made: dict[Key, Value] = field(default_factory=dict)
    kept: set[Value] = field(default_factory=set)
    origin: Op | None = None

    def __post_init__(self) -> None:
        self.makers = {v: op for op in self.ops for v in op.results}
        self.own: set[Value] = set()

    def emit(self, op: Op) -> Value:
        """Its first result."""
        self.new.append(op if self.origin is None else op.located(self.origin))
        if op.operands:
            self.own.update(op.results)
        return op.results[0]

    def keep(self, op: Op) -> None:
        self.emit(op)
        self.kept.update(op.results)

    def is_kept(self, v: Value) -> bool:
        """Whether the value is made as it was, or elsewhere."""
        return v in self.kept or v not in self.makers

    def set(self, values: Sequence[Value], at: At, made: Sequence[Value]) -> None:
        """What the values have there."""
        self.made.update(((v, _place(at)), piece) for v, piece in zip(values, made, strict=True))

    def places(self, v: Value, among: Collection[int] | None = None) -> Iterator[At]:
        """Of all components of a value. among: along these dimensions only."""
        dims = [d for d in self.dims.get(v, ()) if among is None or d in among]
        for index in itertools.product(*(range(v.shape[d]) for d in dims)):
            yield dict(zip(dims, index, strict=True))

    def piece(self, v: Value, at: At) -> Value:
        """What the value has there, without these dimensions: at least those that are written out."""
        at = {**dict.fromkeys((d for d in self.dims.get(v, ()) if v.shape[d] == 1), 0), **at}
        key = v, _place(at)
        if key not in self.made:
            self.made[key] = self._piece(v, at)
        return self.made[key]

    def _piece(self, v: Value, at: At) -> Value:
        if self.is_kept(v):
            return self._view(v, at, apart=v not in self.makers)
        own = {d: i for d, i in at.items() if d in self.dims.get(v, ())}
        left = [d for d in range(v.tensor.rank) if d not in own]
        return self._view(self.made[v, _place(own)], {left.index(d): i for d, i in at.items() if d in left})

    def _view(self, v: Value, at: At, apart: bool = False) -> Value:
        """A part of something. apart: somebody else makes it: nobody shares rows by it."""
        if not at:
            return v
        views = []
        if any(v.shape[d] > 1 for d in at):
            first = [at.get(d, 0) for d in range(v.tensor.rank)]
            last = [at[d] + 1 if d in at else n for d, n in enumerate(v.shape)]
            views.append(build.slice_(v, first, last, [1] * v.tensor.rank))
        shape = [n for d, n in enumerate(v.shape) if d not in at]
        views.append(build.reshape(views[-1].result if views else v, shape))
        for op in views:
            self.emit(replace(op, attrs={**op.attrs, APART: True}) if apart else op)
        return views[-1].result

    def shaped(self, v: Value, shape: Sequence[int]) -> Value:
        return v if v.shape == tuple(shape) else self.emit(build.reshape(v, shape))

    def made_here(self, v: Value) -> Value:
        """The value, or a copy of one that is a constant, or that somebody else makes."""
        return v if v in self.own else self.emit(build.reshape(v, v.shape))

    def whole(self, v: Value) -> Value:
        """The value, put together from its components."""
        if self.is_kept(v):
            return v
        ones = {d: 1 for d in self.dims.get(v, ())}
        shape = [ones.get(d, n) for d, n in enumerate(v.shape)]
        parts = [self.shaped(self.piece(v, at), shape) for at in self.places(v)]
        for d in (d for d in reversed(ones) if v.shape[d] > 1):
            each = v.shape[d]
            rows = (parts[n : n + each] for n in range(0, len(parts), each))
            parts = [self.emit(build.concatenate(row, d)) for row in rows]
        return parts[0]


def _place(at: At) -> tuple[tuple[int, int], ...]:
    return tuple(sorted(at.items()))
