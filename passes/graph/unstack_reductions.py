"""Reduce over a stack of few arrays op by op: the stack is never made, and nothing is reduced.

    %s = concatenate %a, %b, %c, dim 0       1 x n each          %1 = exponential %a
    %e = exponential %s                                          %2 = exponential %b
    %r = reduce add %e, dims = [0]                       ->      %3 = exponential %c
                                                                 %r = add (add %1, %2), %3

Ensembles, multi-scale losses, lengths and products of vectors whose components are arrays. Only of stacks of
which nothing but reductions is made: what is normalized by one is computed where all of it is. The parts are
added up in their order, as XLA does; narrow floats in float32, rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import build, lookup
from jstitch.ir.types import DType, TensorType
from jstitch.ir.unwind import Deep, each, unwind
from jstitch.passes.base.rewrite import Replacement, has, map_frames, rewrite
from jstitch.passes.base.row_access import has_identity, identities

REDUCE, CONCATENATE = "stablehlo.reduce", "stablehlo.concatenate"
MOST_PARTS = 16
MOST_OPS = 512  # of what is written for one stack
ROUNDING = ("stablehlo.add", "stablehlo.multiply")


def unstack_reductions(graph: Graph) -> Graph:
    """The graph without such reductions, in all frames."""
    return map_frames(graph, _of_frame) if has(graph, CONCATENATE) and has(graph, REDUCE) else graph


def _of_frame(frame: Graph) -> Graph:
    if not any(op.name == CONCATENATE for op in frame.ops):
        return frame
    stacked = _Stacked(frame)
    for op in frame.ops:
        if _is_stack(op):
            stacked.take(op)
    if not stacked.reductions:
        return frame
    parts = _Parts(frame.producers(), stacked.along)

    def rule(op: Op, _: object) -> Replacement | None:
        return parts.reduced(op) if op in stacked.reductions else None

    return rewrite(frame, rule, of=(REDUCE,))


def _is_stack(op: Op) -> bool:
    if op.name != CONCATENATE or not 1 < len(op.operands) <= MOST_PARTS:
        return False
    return all(v.shape[op.attrs["dimension"]] == 1 for v in op.operands)


@dataclass
class _Stacked:
    """What is made of stacks that end in reductions.

    along: such a value -> the dimension that has the parts. reductions: over that dimension.
    """

    frame: Graph
    along: dict[Value, int] = field(default_factory=dict)
    reductions: set[Op] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.users, self.outputs = self.frame.users(), {*self.frame.outputs}

    def take(self, stack: Op) -> None:
        """The stack, and all that is made of it, if all of it ends so."""
        along, ends = {stack.result: stack.attrs["dimension"]}, set[Op]()
        todo = [stack.result]
        while todo:
            v = todo.pop()
            if v in self.outputs:
                return
            for op in self.users.get(v, ()):
                if _reduces(op, v, along[v]):
                    ends.add(op)
                    continue
                d = _moved(op, v, along[v])
                if d is None or self.along.get(op.result, along.get(op.result, d)) != d:
                    return
                if op.result not in along:
                    along[op.result] = d
                    todo.append(op.result)
        if ends and len(stack.operands) * len(along) <= MOST_OPS:
            self.along |= along
            self.reductions |= ends


def _reduces(op: Op, v: Value, d: int) -> bool:
    """Whether it reduces the value, and only it, over that dimension by an elementwise op."""
    if (
        op.name != REDUCE
        or op.operands[0] is not v
        or len(op.operands) != 2
        or d not in op.attrs["dimensions"]
    ):
        return False
    monoid = op.attrs.get("monoid")
    return isinstance(monoid, str) and lookup(monoid).op_class.is_elementwise


def _moved(op: Op, v: Value, d: int) -> int | None:
    """The dimension that has the parts in what an op makes of the value; None where none has them apart."""
    if len(op.results) != 1 or op.regions:
        return None
    if build.is_broadcast(op):
        return int(op.attrs["broadcast_dimensions"][d])
    return d if lookup(op.name).op_class.is_elementwise and v.shape == op.result.shape else None


@dataclass
class _Parts:
    """Parts of values, by number, and the ops that make them: each once."""

    producers: dict[Value, Op]
    along: dict[Value, int]
    made: dict[tuple[Value, int, int], Value] = field(default_factory=dict)
    ops: list[Op] = field(default_factory=list)

    def reduced(self, op: Op) -> Replacement:
        """The reduction as ops on the parts, and one over the other dimensions, if there are any."""
        self.ops, self.made = [], {}
        x, init = op.operands
        d, monoid, dtype = self.along[x], op.attrs["monoid"], x.tensor.dtype
        wide = dtype.compute if monoid in ROUNDING else dtype
        parts = [unwind(self._part(x, d, n)) for n in range(x.shape[d])]
        total, *others = (self._wide(part, wide) for part in parts)
        for part in others:
            total = self._emit(build.elementwise(monoid, total, part))
        if rest := [dim - (dim > d) for dim in op.attrs["dimensions"] if dim != d]:
            total = self._emit(build.reduce(monoid, total, self._wide(init, wide), rest))
        elif not self._is_identity(op):
            start = self._filled(self._wide(init, wide), total.shape)
            total = self._emit(build.elementwise(monoid, total, start))
        self._wide(total, dtype)
        *before, last = self.ops
        return Replacement(op.results, (*before, replace(last, results=op.results)))

    def _is_identity(self, op: Op) -> bool:
        """Whether the reduction begins with what changes nothing."""
        start = build.splat_value(self.producers.get(op.operands[1]))
        return start is not None and has_identity(op) and bool(start == identities(op)[0])

    def _emit(self, op: Op) -> Value:
        self.ops.append(op)
        return op.result

    def _wide(self, v: Value, dtype: DType) -> Value:
        return v if v.tensor.dtype is dtype else self._emit(build.convert(v, dtype))

    def _filled(self, v: Value, shape: Sequence[int]) -> Value:
        return v if v.shape == tuple(shape) else self._emit(build.broadcast(v, shape, ()))

    def _part(self, v: Value, d: int, number: int) -> Deep[Value]:
        """Element `number` of the value along dimension d, without that dimension."""
        key = v, d, number
        if key not in self.made:
            self.made[key] = yield self._made(v, d, number)
        return self.made[key]

    def _made(self, v: Value, d: int, number: int) -> Deep[Value]:
        op, shape = self.producers.get(v), _without(v.shape, d)
        if op is not None and self.along.get(v) == d:
            if op.name == CONCATENATE:
                return self._reshaped(op.operands[number], shape)
            if build.is_broadcast(op):
                return (yield from self._of_broadcast(op, d, number))
            whole = [x for x in op.operands if x.shape == v.shape]  # others are numbers
            parts = iter((yield from each(self._part(x, d, number) for x in whole)))
            operands = [next(parts) if x.shape == v.shape else x for x in op.operands]
            result = Value(TensorType(shape, v.tensor.dtype))
            return self._emit(replace(op, operands=tuple(operands), results=(result,)))
        if op is not None and (value := build.splat_value(op)) is not None:
            return self._emit(build.splat(TensorType(shape, v.tensor.dtype), value))
        if op is not None and build.is_broadcast(op) and _is_same(op, d):
            return (yield from self._of_broadcast(op, d, number))
        return self._reshaped(self._sliced(v, d, number), shape)

    def _of_broadcast(self, op: Op, d: int, number: int) -> Deep[Value]:
        """Of what is broadcast, along dimension d or with what is the same in all of it."""
        (x,), dims = op.operands, [*op.attrs["broadcast_dimensions"]]
        if d in dims:
            own = dims.index(d)
            x = yield self._part(x, own, number if x.shape[own] > 1 else 0)
            del dims[own]
        shape = _without(op.result.shape, d)
        return self._emit(build.broadcast(x, shape, [dim - (dim > d) for dim in dims]))

    def _sliced(self, v: Value, d: int, number: int) -> Value:
        first = [number if dim == d else 0 for dim in range(len(v.shape))]
        limit = [number + 1 if dim == d else n for dim, n in enumerate(v.shape)]
        return self._emit(build.slice_(v, first, limit, [1] * len(first)))

    def _reshaped(self, v: Value, shape: Sequence[int]) -> Value:
        return self._emit(build.reshape(v, shape))


def _is_same(op: Op, d: int) -> bool:
    """Whether all of a broadcast along dimension d is the same."""
    dims = op.attrs["broadcast_dimensions"]
    return d not in dims or op.operands[0].shape[dims.index(d)] == 1


def _without(shape: Sequence[int], d: int) -> tuple[int, ...]:
    return (*shape[:d], *shape[d + 1 :])
