"""Write a reduction over small windows out as slices of its padded operand, which kernels can index.

    %w = reduce_window add %x, 0.0               %p = pad %x, 0.0, low = [1], high = [1]
      window 3, stride 2, padding 1        ->    %a, %b, %c = slices of %p from 0, 1 and 2, stride 2
                                                 %w = add 0.0, (add (add %a, %b), %c)

Average and max pooling and the gradient of the former are such reductions. The padding is the monoid's
identity, or there is none; a combiner of several ops, a large window and a prefix sum stay. Narrow floats are
combined in float32 and rounded once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from jstitch.ir.expr import Formula
from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import build, lookup
from jstitch.ir.types import DType
from jstitch.passes.base.pairwise import pairwise
from jstitch.passes.base.rewrite import Producer, Replacement, rewrite

MAX_WINDOW = 32  # elements


def unroll_windows(graph: Graph, *, elements: int = MAX_WINDOW) -> Graph:
    """The graph with reductions over windows of at most so many elements written out."""
    return rewrite(graph, partial(_rule, most=elements), of=("stablehlo.reduce_window",))


def _rule(op: Op, producer: Producer, *, most: int) -> Replacement | None:
    if "monoid" not in op.attrs:
        return None
    builder = _Builder(op, most)
    if not builder.fits or (builder.pads and not is_identity(op, producer)):
        return None
    return Replacement((builder.build(),), tuple(builder.ops))


def is_identity(op: Op, producer: Producer) -> bool:
    """Whether the initial value, which is also the padding, changes nothing."""
    init, identity = build.splat_value(producer(op.operands[1])), lookup(op.attrs["monoid"]).identity
    return init is not None and identity is not None and bool(init == identity(op.result.tensor.dtype))


@dataclass
class _Builder:
    op: Op
    most: int
    ops: list[Op] = field(default_factory=list)

    def _each(self, name: str) -> tuple[int, ...]:
        """A window attribute; absent ones are all 1."""
        return tuple(self.op.attrs.get(name) or (1,) * self.op.operands[0].tensor.rank)

    @property
    def _edges(self) -> tuple[tuple[int, int], ...]:
        return tuple(self.op.attrs.get("padding") or ((0, 0),) * self.op.operands[0].tensor.rank)

    @property
    def fits(self) -> bool:
        """Whether kernels compute in these types, and the windows are small and no dimension's prefixes."""
        x, result = self.op.operands[0].tensor, self.op.result.tensor
        sizes = self._each("window_dimensions")
        if not (x.size and result.size) or math.prod(sizes) > self.most or self._scalar is None:
            return False
        return not any(map(is_prefix, x.shape, sizes, self._edges))

    @property
    def _scalar(self) -> Formula | None:
        """The combiner's kernel expression."""
        (combiner,) = self.op.regions[0].ops
        rule = lookup(combiner.name).scalar
        return rule(combiner) if rule is not None else None

    @property
    def pads(self) -> bool:
        """Whether a window may hold an element that is not the operand's."""
        return any(max(edge) > 0 for edge in self._edges) or max(self._each("base_dilations"), default=1) > 1

    def build(self) -> Value:
        """The initial value combined with the elements of each window."""
        dtype = self.op.result.tensor.dtype
        x, init = (self._converted(v, dtype.compute) for v in self.op.operands)
        padded = self._padded(x, init)
        offsets = itertools.product(*map(range, self._each("window_dimensions")))
        parts = [self._part(padded, offset) for offset in offsets]
        start = self._emit(build.broadcast(init, self.op.result.shape, ()))
        return self._converted(self._combine(start, self._tree(parts)), dtype)

    def _emit(self, op: Op) -> Value:
        self.ops.append(op)
        return op.result

    def _converted(self, v: Value, dtype: DType) -> Value:
        return v if v.tensor.dtype is dtype else self._emit(build.convert(v, dtype))

    def _padded(self, x: Value, init: Value) -> Value:
        interior = [n - 1 for n in self._each("base_dilations")]
        low, high = ([edge[side] for edge in self._edges] for side in (0, 1))
        if not any((*low, *high, *interior)):
            return x
        return self._emit(build.pad(x, init, low, high, interior))

    def _part(self, padded: Value, offset: Sequence[int]) -> Value:
        """The element at `offset` of every window."""
        strides, shape = self._each("window_strides"), self.op.result.shape
        first = [k * n for k, n in zip(offset, self._each("window_dilations"), strict=True)]
        limit = [a + (n - 1) * s + 1 for a, n, s in zip(first, shape, strides, strict=True)]
        if not any(first) and tuple(limit) == padded.shape and shape == padded.shape:
            return padded
        return self._emit(build.slice_(padded, first, limit, strides))

    def _tree(self, parts: Sequence[Value]) -> Value:
        """All combined. The last op is marked, for the cost model."""
        total = pairwise(parts, self._combine)
        if len(parts) > 1:
            self.ops[-1] = replace(self.ops[-1], attrs={"window": len(parts)})
        return total

    def _combine(self, a: Value, b: Value) -> Value:
        return self._emit(build.elementwise(self.op.attrs["monoid"], a, b))


def is_prefix(extent: int, size: int, edge: tuple[int, int]) -> bool:
    """Whether the windows along a dimension are everything up to, or from, each element: XLA's scans."""
    return size == extent > 2 and edge in ((size - 1, 0), (0, size - 1))
