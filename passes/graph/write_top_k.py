"""Find the few largest elements of rows by maxima, which kernels can do, on a CPU.

    %v, %i = top_k %x, k = 2             %a = max(%x);  %p = min(where %x is %a, its place)
                                   ->    %b = max(what comes after %a at %p);  %q = min(where ..., its place)
                                         %v, %i = concatenate %a, %b; concatenate %p, %q

Gates of experts, beams, accuracies: XLA:CPU calls a library that sorts a part of each row, which takes 2 to
12 ns for an element. Floats are compared as the integers that their bits are, by which all of them are in
order: NaN above infinity, -0 below 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import build, lookup
from jstitch.ir.types import DType, TensorType
from jstitch.passes.base.context import Context
from jstitch.passes.base.rewrite import Producer, Replacement, rewrite
from jstitch.passes.graph.swap_products import TRANSPOSE

TOP_K = "chlo.top_k"
MOST = 8  # elements of a row that are wanted: twice as many reductions
SHORT = 1 << 10  # elements of a row, below which a library's call takes longer
LONGEST = 1 << 18  # elements of a row, which a core's cache holds while it is read again
FEW = 16  # rows, elements of a vector: of fewer that lie side by side in memory none is made
LIBRARY = 10  # what XLA takes for an element of a row, in elements of a window
AS_F32 = frozenset({DType.F32, DType.BF16, DType.F16})
LEAST, REST = -(1 << 31), (1 << 31) - 1


def write_top_k(graph: Graph, context: Context) -> Graph:
    """The graph without `top_k` of at most MOST elements, where kernels can find them."""
    return graph if context.machine.device is not None else rewrite(graph, _rule, of=(TOP_K,))


def _rule(op: Op, producer: Producer) -> Replacement | None:
    x = op.operands[0]
    if x.tensor.dtype not in {*AS_F32, DType.S32}:
        return None
    if math.prod(x.shape[:-1]) < FEW and x.shape[-1] > SHORT and _lies_in_columns(x, producer):
        return None
    values, places = op.results
    wanted = values.tensor.shape[-1]
    few = 1 <= wanted <= MOST and op.operands[0].shape[-1] <= LONGEST
    if not (few and values.tensor.size and places.tensor.dtype is DType.S32):
        return None
    writer = _Writer(op.operands[0], wanted)
    return Replacement(writer.build(), tuple(writer.ops))


def _lies_in_columns(x: Value, producer: Producer) -> bool:
    """Whether a row's elements come from what has other rows' between them, in the same order."""
    todo, seen = [x], {x}
    while todo:
        op = producer(todo.pop())
        if op is None:
            continue
        if op.name == TRANSPOSE:
            order = op.attrs["permutation"]
            return bool(order[-1] != len(order) - 1)
        if lookup(op.name).op_class.is_elementwise:
            same = [v for v in op.operands if v.shape == x.shape and v not in seen]
            seen.update(same)
            todo += same
    return False


@dataclass
class _Writer:
    x: Value
    wanted: int
    ops: list[Op] = field(default_factory=list)

    def build(self) -> tuple[Value, Value]:
        """The largest, in order, and their places."""
        keys = self._keys()
        shape = keys.shape
        place = self._emit(build.iota(TensorType(shape, DType.S32), len(shape) - 1))
        most, places = list[Value](), list[Value]()
        left: Value | None = None
        for _ in range(self.wanted):
            found = keys if left is None else self._select(left, keys, LEAST)
            top = self._reduce("stablehlo.maximum", found, LEAST)
            hit = self._compare("EQ", keys, top)
            if left is not None:
                hit = self._emit(build.logical_and(hit, left))
            at = self._reduce("stablehlo.minimum", self._select(hit, place, shape[-1]), REST)
            most.append(top)
            places.append(at)
            left = self._after(keys, top, place, at)
        last = len(shape) - 1
        values = self._emit(build.concatenate([self._column(v) for v in most], last))
        return self._values(values), self._emit(build.concatenate([self._column(v) for v in places], last))

    def _keys(self) -> Value:
        """Integers in the order of the elements."""
        if self.x.tensor.dtype is DType.S32:
            return self.x
        x = self.x
        if x.tensor.dtype is not DType.F32:
            x = self._emit(build.convert(x, DType.F32))
        kind = TensorType(x.shape, DType.S32)
        return self._turned(self._emit(build.op("stablehlo.bitcast_convert", [x], kind)))

    def _values(self, keys: Value) -> Value:
        """The elements that have these keys. XLA's time for them is the row's."""
        row = max(1, LIBRARY * self.x.shape[-1] // self.wanted)
        made = self.ops[-1]
        self.ops[-1] = replace(made, attrs={**made.attrs, "window": row})
        if self.x.tensor.dtype is DType.S32:
            return keys
        kind = TensorType(keys.shape, DType.F32)
        found = self._emit(build.op("stablehlo.bitcast_convert", [self._turned(keys)], kind))
        wanted = self.x.tensor.dtype
        return found if wanted is DType.F32 else self._emit(build.convert(found, wanted))

    def _turned(self, bits: Value) -> Value:
        """Negative floats have larger bits the smaller they are: all but the sign is inverted, and back."""
        negative = self._emit(build.compare("LT", bits, self._splat(bits, 0)))
        inverted = self._emit(build.elementwise("stablehlo.xor", bits, self._splat(bits, REST)))
        return self._emit(build.select(negative, inverted, bits))

    def _after(self, keys: Value, top: Value, place: Value, at: Value) -> Value:
        """Where elements come after the one of key `top` at place `at`."""
        less, same = self._compare("LT", keys, top), self._compare("EQ", keys, top)
        behind = self._emit(build.logical_and(same, self._compare("GT", place, at)))
        return self._emit(build.elementwise("stablehlo.or", less, behind))

    def _compare(self, direction: str, x: Value, row: Value) -> Value:
        """Of elements with what their row has."""
        wide = self._emit(build.broadcast(row, x.shape, range(len(row.shape))))
        return self._emit(build.compare(direction, x, wide))

    def _select(self, where: Value, x: Value, other: int) -> Value:
        return self._emit(build.select(where, x, self._splat(x, other)))

    def _reduce(self, name: str, x: Value, start: int) -> Value:
        init = self._emit(build.constant(np.asarray(start, np.int32)))
        return self._emit(build.reduce(name, x, init, [len(x.shape) - 1]))

    def _column(self, v: Value) -> Value:
        return self._emit(build.reshape(v, (*v.shape, 1)))

    def _splat(self, like: Value, value: Any) -> Value:
        return self._emit(build.splat(like.tensor, value))

    def _emit(self, op: Op) -> Value:
        self.ops.append(op)
        return op.result
