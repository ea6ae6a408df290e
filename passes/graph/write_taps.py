"""Write convolutions of few terms as multiplications and additions, which kernels can index, on a CPU.

    %y = convolution %x, %k                 %p = pad %x, 0.0, low = [1], high = [1]
      window 3, padding 1,            ->    %a, %b, %c = multiply (slice %p), (broadcast (slice %k)), each
      a group for each feature              %y = add (add %a, %b), %c

Depthwise convolutions, blurs of one channel and small groups: XLA:CPU's library has none of them, and takes
10 to 70 times as long as memory does. The gradient of one by its kernel has a sum for each place of a window:

    %k = convolution %x, %y                 %a = reduce (multiply (slice %x), %y), for each of the places
      window [56, 56], 9 places,      ->    %k = concatenate %a, %b, ...
      a group of the batch for each feature

Narrow floats are added up in float32 and rounded once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import build
from jstitch.ir.types import TensorType
from jstitch.passes.base.context import Context
from jstitch.passes.base.convolution import CONVOLUTION, Convolution
from jstitch.passes.base.pairwise import pairwise
from jstitch.passes.base.rewrite import Producer, Replacement, rewrite

MOST_TERMS = 64  # of an element of the result; places of the window in a gradient
MOST_PRODUCTS = 512  # of an element of the operand, above which XLA's library is quick
MOST_FEATURES = 4  # of a gradient, made of the same feature
# What XLA takes, in elements of a window that was written out: for a group's element, for each of its terms;
# and for each term of a gradient. From 68 convolutions.
GROUP, TERM, GRADIENT_TERM = 90, 5, 9


def write_taps(graph: Graph, context: Context) -> Graph:
    """The graph without convolutions of few terms, and gradients of such by their kernels."""
    return graph if context.machine.device is not None else rewrite(graph, _rule, of=(CONVOLUTION,))


def _rule(op: Op, _: Producer) -> Replacement | None:
    conv = Convolution(op)
    writer = _Taps(conv) if conv.batch_groups == 1 else _KernelTaps(conv)
    if not (conv.makes_floats and writer.fits):
        return None
    writer.build()
    return Replacement((writer.ops[-1].result,), tuple(writer.ops))


@dataclass
class _Writer:
    conv: Convolution
    ops: list[Op] = field(default_factory=list)

    def emit(self, op: Op) -> Value:
        self.ops.append(op)
        return op.result

    def turned(self, v: Value, order: Sequence[int]) -> Value:
        """An operand in the order and the type of what is computed."""
        wide = self.emit(build.convert(v, self.conv.compute))
        return self.emit(build.transpose(wide, order))

    def spread(self, v: Value, dim: int) -> Value:
        """Each feature once for all that are made of it."""
        count, shape = self.conv.multiplier, v.shape
        if count == 1:
            return v
        apart = (*shape[: dim + 1], count, *shape[dim + 1 :])
        repeated = self.emit(build.broadcast(v, apart, [d + (d > dim) for d in range(len(shape))]))
        return self.emit(build.reshape(repeated, (*shape[:dim], shape[dim] * count, *shape[dim + 1 :])))

    def padded(self, x: Value, dims: Sequence[int]) -> Value:
        """The operand with zeros around it and between its elements. dims: its spatial dimensions."""
        low, high, interior = ([0] * len(x.shape) for _ in range(3))
        for d, edge, apart in zip(dims, self.conv.edges, self.conv.each("lhs_dilation"), strict=True):
            low[d], high[d], interior[d] = *edge, apart - 1
        if not any((*low, *high, *interior)):
            return x
        return self.emit(build.pad(x, self.zero(), low, high, interior))

    def zero(self) -> Value:
        return self.emit(build.splat(TensorType((), self.conv.compute), 0))

    def windows(
        self, x: Value, dims: Sequence[int], first: Sequence[int], count: Sequence[int], step: Sequence[int]
    ) -> Value:
        """So many elements of each spatial dimension, the first one first, `step` apart."""
        start, limit, steps = [0] * len(x.shape), list(x.shape), [1] * len(x.shape)
        for d, at, n, apart in zip(dims, first, count, step, strict=True):
            start[d], limit[d], steps[d] = at, at + (n - 1) * apart + 1, apart
        return self.emit(build.slice_(x, start, limit, steps))

    def mark(self, window: int) -> None:
        """For the cost model: what the last op ends, if XLA ran it as it stood."""
        self.ops[-1] = replace(self.ops[-1], attrs={**self.ops[-1].attrs, "window": window})


class _Taps(_Writer):
    """In the result's order of dimensions: a product for each feature of a group and place of its window."""

    @property
    def fits(self) -> bool:
        terms = self.conv.terms
        return terms <= MOST_TERMS and terms * self.conv.multiplier <= MOST_PRODUCTS

    def build(self) -> None:
        conv = self.conv
        order = [left for _, left in sorted(zip(conv.out, conv.left, strict=True))]
        x = self.padded(self.turned(conv.op.operands[0], order), conv.out[2:])
        kernel = self.emit(build.convert(conv.op.operands[1], conv.compute))
        parts = [part for k in range(conv.features) for part in self._of_feature(x, kernel, k)]
        total = pairwise(parts, lambda a, b: self.emit(build.add(a, b)))
        self.mark((GROUP + TERM * conv.terms) // conv.multiplier)
        self.emit(build.convert(total, conv.op.result.tensor.dtype))

    def _of_feature(self, x: Value, kernel: Value, number: int) -> Iterator[Value]:
        conv, dim = self.conv, self.conv.out[1]
        first = [number if d == dim else 0 for d in range(len(x.shape))]
        steps = [conv.features if d == dim else 1 for d in range(len(x.shape))]
        own = self.spread(self.emit(build.slice_(x, first, x.shape, steps)), dim)
        for place in itertools.product(*map(range, conv.window)):
            first = [at * apart for at, apart in zip(place, conv.each("rhs_dilation"), strict=True)]
            part = self.windows(own, conv.out[2:], first, conv.places, conv.each("window_strides"))
            weight = self.emit(build.broadcast(self._weight(kernel, number, place), part.shape, [dim]))
            yield self.emit(build.elementwise("stablehlo.multiply", part, weight))

    def _weight(self, kernel: Value, number: int, place: Sequence[int]) -> Value:
        """What the kernel has for each feature of the result."""
        conv, turned = self.conv, zip(place, self.conv.window, self.conv.reversed, strict=True)
        first = [number, *(n - 1 - at if back else at for at, n, back in turned)]
        part = self.windows(kernel, conv.kernel[1:], first, [1] * len(first), [1] * len(first))
        return self.emit(build.reshape(part, (kernel.shape[conv.kernel[0]],)))


class _KernelTaps(_Writer):
    """In the kernel's order of dimensions: a sum of all elements for each place of a large window."""

    @property
    def fits(self) -> bool:
        conv = self.conv
        alone = conv.op.operands[0].shape[conv.left[0]] == conv.batch_groups and conv.groups == 1
        few = math.prod(conv.places) <= MOST_TERMS and conv.multiplier <= MOST_FEATURES
        return alone and few and not any(conv.reversed)

    def build(self) -> None:
        conv = self.conv
        order = [left for _, left in sorted(zip(conv.kernel, conv.left, strict=True))]
        x = self.spread(self.turned(conv.op.operands[0], order), conv.kernel[0])
        x, y = self.padded(x, conv.kernel[2:]), self.emit(build.convert(conv.op.operands[1], conv.compute))
        sums = [self._sum(x, y, place) for place in itertools.product(*map(range, conv.places))]
        flat = [self.emit(build.reshape(v, (1, *v.shape))) for v in sums]
        joined = self.emit(build.concatenate(flat, 0)) if len(flat) > 1 else flat[0]
        made = self.emit(build.reshape(joined, (*conv.places, joined.shape[1], 1)))
        roles = [len(conv.places) + 1, len(conv.places), *range(len(conv.places))]
        order = [role for _, role in sorted(zip(conv.out, roles, strict=True))]
        turned = self.emit(build.transpose(made, order))
        self.emit(build.convert(turned, conv.op.result.tensor.dtype))

    def _sum(self, x: Value, y: Value, place: Sequence[int]) -> Value:
        conv = self.conv
        first = [at * step for at, step in zip(place, conv.each("window_strides"), strict=True)]
        moved = self.windows(x, conv.kernel[2:], first, conv.window, conv.each("rhs_dilation"))
        product = self.emit(build.elementwise("stablehlo.multiply", moved, y))
        dims = [d for d in range(len(y.shape)) if d != conv.kernel[0]]
        total = self.emit(build.reduce("stablehlo.add", product, self.zero(), dims))
        self.mark(GRADIENT_TERM * (y.tensor.size // total.tensor.size))
        return total
