"""Reductions of several values at once: scalar programs that combine two partial results.

    moments      (count, origin, sum of x - origin, sum of (x - origin)^2; for each weight y: sum of y,
                 sum of y * (x - origin))
    soft_maximum (maximum, sum of exponentials of what is left after subtracting it)

Both are commutative monoids up to rounding. The origin is the first element that a part has seen, and moves
to the part's mean when the part joins another one, as in T. F. Chan, G. H. Golub, R. J. LeVeque, "Updating
formulae and a pairwise algorithm for computing sample variances" (1979). Since the origin is one of n
elements, the sum of squares is at most n + 1 times what it is around the mean, however large the mean is.
The exponentials are as in M. Milakov, N. Gimelshein, "Online normalizer calculation for softmax".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import build
from jstitch.ir.types import DType, TensorType


@dataclass(frozen=True)
class JointMonoid:
    """A reduction's region of 2k scalar inputs, and its k identities.

    uniform: numbers of results that depend on no element, only on how many there are.
    """

    region: Graph
    identities: tuple[float, ...]
    uniform: tuple[int, ...] = ()


@dataclass(eq=False)
class _Body:
    """Scalar ops, one after another."""

    dtype: DType
    ops: list[Op] = field(default_factory=list)

    def values(self, count: int) -> list[Value]:
        return [Value(TensorType((), self.dtype)) for _ in range(count)]

    def emit(self, op: Op) -> Value:
        self.ops.append(op)
        return op.result

    def number(self, value: float) -> Value:
        return self.emit(build.splat(TensorType((), self.dtype), value))

    def do(self, name: str, *operands: Value) -> Value:
        return self.emit(build.elementwise(f"stablehlo.{name}", *operands))

    def compare(self, direction: str, a: Value, b: Value) -> Value:
        return self.emit(build.compare(direction, a, b))

    def select(self, predicate: Value, on_true: Value, on_false: Value) -> Value:
        return self.emit(build.select(predicate, on_true, on_false))

    def is_finite(self, x: Value) -> Value:
        return self.compare("LT", self.do("abs", x), self.number(math.inf))

    def graph(self, inputs: Sequence[Value], outputs: Sequence[Value]) -> Graph:
        return Graph(tuple(inputs), tuple(self.ops), tuple(outputs))


def moments(weights: int, dtype: DType) -> JointMonoid:
    """4 + 2 * weights values. An element x with weights y is (1, x, 0, 0, y, 0, ...)."""
    width = 4 + 2 * weights
    body = _Body(dtype)
    left, right = body.values(width), body.values(width)
    count, origin, total, squares, *weighted = _centred(body, right)
    some = body.compare("GT", left[0], body.number(0.0))
    start = body.select(body.is_finite(origin), origin, body.number(0.0))
    found = [body.do("add", left[0], count), body.select(some, left[1], start)]
    moved = body.do("subtract", origin, found[1])
    all_moved = body.do("multiply", count, moved)
    found.append(body.do("add", left[2], body.do("add", total, all_moved)))
    twice = body.do("add", body.do("add", total, total), all_moved)
    more = body.do("add", squares, body.do("multiply", moved, twice))
    found.append(body.do("add", left[3], more))
    for k, (y, product) in enumerate(zip(weighted[::2], weighted[1::2], strict=True)):
        more = body.do("add", product, body.do("multiply", y, moved))
        found += [body.do("add", left[4 + 2 * k], y), body.do("add", left[5 + 2 * k], more)]
    return JointMonoid(body.graph([*left, *right], found), (0.0,) * width, uniform=(0,))


def _centred(body: _Body, part: Sequence[Value]) -> list[Value]:
    """Moments with their origin moved to the mean; those of one element as they are."""
    count, origin, total, squares, *weighted = part
    shift = body.do("divide", total, count)
    several = body.compare("GT", count, body.number(1.0))
    moves = body.emit(build.logical_and(several, body.is_finite(shift)))
    near = body.do("add", origin, shift)
    shift = body.do("subtract", near, origin)
    all_moved = body.do("multiply", count, shift)
    less = body.do("multiply", shift, body.do("subtract", body.do("add", total, total), all_moved))
    found = [count, body.select(moves, near, origin)]
    found.append(body.select(moves, body.do("subtract", total, all_moved), total))
    finite = body.emit(build.logical_and(moves, body.is_finite(squares)))
    found.append(body.select(finite, body.do("subtract", squares, less), squares))
    for y, product in zip(weighted[::2], weighted[1::2], strict=True):
        moved = body.do("subtract", product, body.do("multiply", y, shift))
        found += [y, body.select(moves, moved, product)]
    return found


def soft_maximum(dtype: DType) -> JointMonoid:
    """Two values. An element x is (x, 1)."""
    body = _Body(dtype)
    a, s, b, t = inputs = body.values(4)
    distance = body.do("negate", body.do("abs", body.do("subtract", a, b)))
    equal = body.compare("EQ", a, b)  # infinities too, whose distance is not a number
    factor = body.select(equal, body.number(1.0), body.do("exponential", distance))
    above = body.compare("GE", a, b)
    large, small = body.select(above, s, t), body.select(above, t, s)
    total = body.do("add", large, body.do("multiply", small, factor))
    return JointMonoid(body.graph(inputs, [body.do("maximum", a, b), total]), (-math.inf, 0.0))
