"""Write the gradient of a pool of maxima as comparisons, which kernels can make, on a CPU.

    %d = select_and_scatter %x, %g, 0.0           %a, %b = slices of %x, from 0 and 1, stride 2
      window 2, stride 2: GE; add           ->    %n = select (GE %a, %b), 0, 1
                                                  %d = add (pad (select (EQ %n, 0), %g, 0.0)), (pad ... 1 ...)

XLA:CPU goes from window to window, one element after the other. Which element of a window is taken is decided
in its order, so that it is the first of equal ones.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import build
from jstitch.ir.types import DType, TensorType
from jstitch.passes.base.context import Context
from jstitch.passes.base.pairwise import pairwise
from jstitch.passes.base.rewrite import Producer, Replacement, rewrite
from jstitch.passes.graph.write_sorts import inlined, is_scalar

SELECTION = "stablehlo.select_and_scatter"
MOST = 16  # elements of a window
LOOP = 100  # what XLA takes for an element of the operand, in elements of a window that was written out


def write_selections(graph: Graph, context: Context) -> Graph:
    """The graph without selections from small windows, whose sources are added up."""
    return graph if context.machine.device is not None else rewrite(graph, _rule, of=(SELECTION,))


def _rule(op: Op, producer: Producer) -> Replacement | None:
    if op.uses != op.operands:
        return None
    (x, source, _), (select, scatter) = op.operands, op.regions
    sums = [(inner.name, inner.operands) for inner in scatter.ops] == [("stablehlo.add", scatter.inputs)]
    starts = build.splat_value(producer(op.operands[2]))
    plain = sums and starts is not None and not starts and not any(map(any, op.attrs.get("padding", ())))
    small = x.tensor.size > 0 and source.tensor.size > 0 and math.prod(_each(op, "window_dimensions")) <= MOST
    if not (plain and small and x.tensor.dtype.is_float and all(map(is_scalar, select.ops))):
        return None
    writer = _Writer(op)
    writer.build()
    return Replacement((writer.ops[-1].result,), tuple(writer.ops))


def _each(op: Op, name: str) -> tuple[int, ...]:
    """A window attribute; absent ones are all 1."""
    return tuple(op.attrs.get(name) or (1,) * len(op.operands[0].shape))


@dataclass
class _Writer:
    op: Op
    ops: list[Op] = field(default_factory=list)

    def build(self) -> None:
        taken, dtype = self._taken(), self.op.result.tensor.dtype
        source = self._emit(build.convert(self.op.operands[1], dtype.compute))
        parts = list(self._scattered(source, taken))
        total = pairwise(parts, lambda a, b: self._emit(build.add(a, b)))
        self.ops[-1] = replace(self.ops[-1], attrs={**self.ops[-1].attrs, "window": LOOP})
        self._emit(build.convert(total, dtype))

    def _emit(self, op: Op) -> Value:
        self.ops.append(op)
        return op.result

    def _places(self) -> Iterator[tuple[int, ...]]:
        return itertools.product(*map(range, _each(self.op, "window_dimensions")))

    def _number(self, n: int) -> Value:
        return self._emit(build.splat(TensorType(self.op.operands[1].shape, DType.S32), n))

    def _taken(self) -> Value:
        """The number of the element that each window takes."""
        elements = [self._slice(place) for place in self._places()]
        value, taken = elements[0], self._number(0)
        for n, element in enumerate(elements[1:], 1):
            ops, (keeps,) = inlined(self.op.regions[0], [value, element])
            self.ops += ops
            taken = self._emit(build.select(keeps, taken, self._number(n)))
            value = self._emit(build.select(keeps, value, element))
        return taken

    def _slice(self, place: Sequence[int]) -> Value:
        """The element at that place of every window."""
        steps = _each(self.op, "window_strides")
        x, shape = self.op.operands[0], self.op.operands[1].shape
        limit = [at + (n - 1) * step + 1 for at, n, step in zip(place, shape, steps, strict=True)]
        return self._emit(build.slice_(x, place, limit, steps))

    def _scattered(self, source: Value, taken: Value) -> Iterator[Value]:
        """What comes to each element of the operand from windows that have it at one place."""
        zeros = self._emit(build.splat(source.tensor, 0))
        zero = self._emit(build.splat(TensorType((), source.tensor.dtype), 0))
        interior = [step - 1 for step in _each(self.op, "window_strides")]
        for n, place in enumerate(self._places()):
            chosen = self._emit(build.compare("EQ", taken, self._number(n)))
            own = self._emit(build.select(chosen, source, zeros))
            spans = [(k - 1) * (apart + 1) + 1 for k, apart in zip(source.shape, interior, strict=True)]
            sizes = zip(self.op.result.shape, place, spans, strict=True)
            high = [size - at - span for size, at, span in sizes]
            yield self._emit(build.pad(own, zero, place, high, interior))
