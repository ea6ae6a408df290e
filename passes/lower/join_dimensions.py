"""Make one dimension of neighbours that no op of a pattern tells apart.

    m [31, 111] = max of x [179, 31, 111] over dim 0          x' [179, 3441] = reshape x, read in place
    y = x / broadcast m                                 ->    m' [3441]      = max of x' over dim 0
                                                              y' = x' / broadcast m', stored where y is

So a program can own columns of the right one. Whoever repeats or reduces one of two neighbours tells them
apart, and whoever moves elements; and what one op says holds for all that is reached from it element by
element. Dimensions of one element go.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from jstitch.ir.graph import Op, Value
from jstitch.ir.node_graph import connected_parts
from jstitch.ir.ops import OpClass, build, lookup
from jstitch.ir.types import TensorType
from jstitch.passes.base.plan import is_free
from jstitch.passes.base.row_access import data_operands, is_reduction
from jstitch.passes.lower.form_groups import APART
from jstitch.passes.lower.own_columns import FEW, wide

Shape = tuple[int, ...]
Border = tuple[Value | None, int]
"""Behind a dimension of a value, by its number among those of more than one element."""
TOLD: Border = None, 0  # with it are connected all that are between dimensions told apart


@dataclass(frozen=True, eq=False)
class Joined:
    """ops: in program order. values: what the old ops make -> what has the same elements in their order."""

    ops: Sequence[Op]
    values: Mapping[Value, Value]


def join_dimensions(ops: Sequence[Op], repeat: bool = False) -> Joined | None:
    """None where all dimensions of more than one element are told apart, or something is empty.

    repeat: what is small and has only some of joined dimensions is read at a remainder of their number, which
    tells nobody apart; a CPU's vectors would gather it.
    """
    if any(v.tensor.size == 0 for v in _values(ops)) or any(_reduces_nothing(op) for op in ops):
        return None
    borders = [(v, d) for v in _values(ops) for d in range(len(wide(v.shape)) - 1)]
    links = [link for op in ops for link in _links(op, repeat)]
    apart = next(part for part in connected_parts([TOLD, *borders], links) if TOLD in part)
    if apart.issuperset(borders):
        return None
    return _Joining(apart).run(ops)


def _values(ops: Iterable[Op]) -> dict[Value, None]:
    return dict.fromkeys(v for op in ops for v in (*op.operands, *op.results))


def _links(op: Op, repeat: bool) -> Iterator[tuple[Border, Border]]:
    """Borders that are told apart if the other is."""
    if is_reduction(op):
        for v in data_operands(op):
            yield from _kept_links(v, op)
    elif build.is_broadcast(op):
        if not (repeat and _is_small(op)):
            yield from _broadcast_links(op)
    elif _is_alike(op):
        shape = wide(op.results[0].shape)
        for v in (*op.operands, *op.results[1:]):
            if wide(v.shape) == shape:
                yield from (((v, d), (op.results[0], d)) for d in range(len(shape) - 1))
    elif not _is_constant(op):
        for v in (*op.operands, *op.results):
            yield from (((v, d), TOLD) for d in range(len(wide(v.shape)) - 1))


def _is_alike(op: Op) -> bool:
    """Whether its elements are its operands', each where it was."""
    if build.is_reshape(op):
        return wide(op.operands[0].shape) == wide(op.result.shape)
    return lookup(op.name).op_class.is_elementwise


def _is_constant(op: Op) -> bool:
    return is_free(op) and lookup(op.name).op_class is OpClass.CONSTANT


def _kept_links(v: Value, op: Op) -> Iterator[tuple[Border, Border]]:
    """Of what a reduction keeps; those of what it reduces are free."""
    reduced = _reduced(v, op)
    kept = [d for d in range(len(wide(v.shape))) if d not in reduced]
    for d in range(len(wide(v.shape)) - 1):
        if (d in reduced) != (d + 1 in reduced):
            yield (v, d), TOLD
    for n, d in enumerate(kept[:-1]):
        for result in op.results:
            yield (result, n), (v, d) if d + 1 in kept else TOLD


def _is_small(op: Op) -> bool:
    """Whether it repeats few elements, in the order of their dimensions."""
    dims = _placed(op)
    return dims == sorted(dims) and op.operands[0].tensor.size * FEW <= op.result.tensor.size


def _broadcast_links(op: Op) -> Iterator[tuple[Border, Border]]:
    """Of what a broadcast repeats together, and of what it takes over together."""
    v, dims = op.operands[0], _placed(op)
    number = {d: n for n, d in enumerate(dims)}
    for d in range(len(wide(op.result.shape)) - 1):
        here, there = number.get(d), number.get(d + 1)
        if here is None and there is None:
            continue
        if here is None or there != here + 1:
            yield (op.result, d), TOLD
    for n, (d, after) in enumerate(itertools.pairwise(dims)):
        yield (v, n), (op.result, d) if after == d + 1 else TOLD


def _reduces_nothing(op: Op) -> bool:
    return is_reduction(op) and not _reduced(op.operands[0], op)


def _reduced(v: Value, op: Op) -> set[int]:
    """The numbers, among its dimensions of more than one element, of those that are reduced."""
    places = [d for d, n in enumerate(v.shape) if n > 1]
    return {n for n, d in enumerate(places) if d in op.attrs["dimensions"]}


def _placed(op: Op) -> list[int]:
    """The same numbers, in a broadcast's result, of its operand's dimensions."""
    number = {d: n for n, d in enumerate(d for d, size in enumerate(op.result.shape) if size > 1)}
    pairs = zip(op.operands[0].shape, op.attrs["broadcast_dimensions"], strict=True)
    return [number[d] for size, d in pairs if size > 1]


class _Joining:
    def __init__(self, apart: set[Border]) -> None:
        self.apart = apart
        self.new: list[Op] = []
        self.values: dict[Value, Value] = {}
        self.made: set[Value] = set()

    def run(self, ops: Sequence[Op]) -> Joined:
        for op in ops:
            self._op(op)
            self.made.update(op.results)
        return Joined(self.new, {v: self.values[v] for v in self.made})

    def _op(self, op: Op) -> None:
        if is_reduction(op):
            numbers = self._numbers(op.operands[0])
            dims = dict.fromkeys(numbers[d] for d in sorted(_reduced(op.operands[0], op)))
            self._add(op, self._all_joined(op), dimensions=tuple(dims))
        elif build.is_broadcast(op):
            self._broadcast(op)
        elif build.is_reshape(op) and _is_alike(op):
            self.values[op.result] = self._joined(op.operands[0])
        elif _is_alike(op):
            self._add(op, self._all_joined(op))
        else:
            self._leave(op)

    def _broadcast(self, op: Op) -> None:
        v, shape, placed = self._joined(op.operands[0]), wide(op.result.shape), _placed(op)
        numbers = self._numbers(op.result)
        dims = tuple(dict.fromkeys(numbers[d] for d in placed))
        every = [d for d, number in enumerate(numbers) if number in dims]
        if every != sorted(placed):
            v = self._reshaped(v, [shape[d] for d in placed])
            v = self._apart(build.broadcast(v, [shape[d] for d in every], [every.index(d) for d in placed]))
        v = self._reshaped(v, [self._shape(op.result)[number] for number in dims])
        self._add(op, (v,), broadcast_dimensions=dims)

    def _add(self, op: Op, operands: Sequence[Value], **attrs: object) -> None:
        results = tuple(Value(TensorType(self._shape(v), v.tensor.dtype)) for v in op.results)
        self.new.append(replace(op, operands=tuple(operands), results=results, attrs={**op.attrs, **attrs}))
        self.values.update(zip(op.results, results, strict=True))

    def _leave(self, op: Op) -> None:
        """As it was, of values as they were."""
        operands = tuple(self._as_it_was(v) for v in op.operands)
        self.new.append(op if operands == op.operands else replace(op, operands=operands))
        for v in op.results:
            self.values[v] = self._reshaped(v, self._shape(v))

    def _all_joined(self, op: Op) -> list[Value]:
        return [self._joined(v) for v in op.operands]

    def _joined(self, v: Value) -> Value:
        if v not in self.values:
            self.values[v] = self._reshaped(v, self._shape(v))
        return self.values[v]

    def _as_it_was(self, v: Value) -> Value:
        return self._reshaped(self.values[v], v.shape) if v in self.made else v

    def _reshaped(self, v: Value, shape: Sequence[int]) -> Value:
        return v if v.shape == tuple(shape) else self._apart(build.reshape(v, shape))

    def _apart(self, view: Op) -> Value:
        """A view of memory: nobody shares rows by it."""
        self.new.append(replace(view, attrs={**view.attrs, APART: True}))
        return view.result

    def _numbers(self, v: Value) -> list[int]:
        """Of the joined dimensions that its dimensions are part of."""
        found = [0]
        for d in range(len(wide(v.shape)) - 1):
            found.append(found[-1] + ((v, d) in self.apart))
        return found

    def _shape(self, v: Value) -> Shape:
        shape = wide(v.shape)
        numbers = self._numbers(v) if shape else []
        sizes = [1] * (numbers[-1] + 1) if shape else []
        for number, size in zip(numbers, shape, strict=True):
            sizes[number] *= size
        return tuple(sizes)
