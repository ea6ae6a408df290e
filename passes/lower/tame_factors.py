"""Which factors may be taken out of a sum: those that no sum needs to stay in range.

    sum of x * 0.5        0.5 * sum of x                     a number between 2^-16 and 2^16
    sum of y * r          r * sum of y                       r = rsqrt(variance + 1e-5)
    sum of y * e / s      (sum of y * e) / s                 s = sum of e = exp(x - max of x)
    sum of (x / m)^2      as it is: x is divided so that its square can be computed

What is not known to be finite and away from 0 stays inside: there, 0 * inf is no number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from jstitch.ir.graph import Op, Value
from jstitch.ir.ops.build import splat_value
from jstitch.ir.unwind import Deep, each, unwind

LARGEST = 2.0**16  # of a number, or of all numbers of one product, and its inverse the smallest
LEAST = 2.0**-64  # added to what a root is taken of: its inverse is at most 2^32
MOST_ROOTS = 1  # of one product: squares of 1e-20 are 0, and not small against the square of their deviation
MOST_VARYING = 3  # that a root is taken from, all different: a cotangent, a weight and a deviation
SAME = ("stablehlo.broadcast_in_dim", "stablehlo.reshape", "stablehlo.transpose", "stablehlo.convert")
POSITIVE = ("chlo.square", "stablehlo.abs", "stablehlo.exponential", "stablehlo.sqrt", "stablehlo.logistic")
BOTH = ("stablehlo.add", "stablehlo.multiply", "stablehlo.divide", "stablehlo.minimum")
REDUCE, SELECT = "stablehlo.reduce", "stablehlo.select"


class Kind(Enum):
    """NUMBER: a constant. ROOT: of what is at least some number, or its inverse. TOTAL: of exponentials."""

    NUMBER = auto()
    ROOT = auto()
    TOTAL = auto()


@dataclass(eq=False)
class TameFactors:
    """producers: the pattern's ops by value."""

    producers: Mapping[Value, Op]
    kinds: dict[Value, Kind | None] = field(default_factory=dict)
    positive: dict[Value, bool] = field(default_factory=dict)

    def number(self, v: Value) -> float | None:
        """The constant that the value is everywhere."""
        value = splat_value(self._same(v))
        return None if value is None else float(value)

    def kind(self, v: Value) -> Kind | None:
        """None where the value could have any size."""
        if v not in self.kinds:
            self.kinds[v] = self._kind(v)
        return self.kinds[v]

    def _kind(self, v: Value) -> Kind | None:
        if self.number(v) is not None:
            return Kind.NUMBER if self._is_number(v) else None
        op = self._same(v)
        if self._is_root(op):
            return Kind.ROOT
        return Kind.TOTAL if self._is_total(op) else None

    def _is_number(self, v: Value) -> bool:
        number = self.number(v)
        return number is not None and 1 / LARGEST <= abs(number) <= LARGEST

    def _same(self, v: Value) -> Op | None:
        """The op that makes it, but for those that only move it."""
        op = self.producers.get(v)
        while op is not None and op.name in SAME:
            op = self.producers.get(op.operands[0])
        return op

    def _is_root(self, op: Op | None) -> bool:
        if op is not None and op.name == "stablehlo.divide" and self._is_number(op.operands[0]):
            op = self._same(op.operands[1])
        if op is None or op.name not in ("stablehlo.rsqrt", "stablehlo.sqrt"):
            return False
        return self._is_bounded(self._same(op.operands[0]))

    def _is_bounded(self, op: Op | None) -> bool:
        """Whether it is at least some number above 0."""
        if op is None or op.name not in ("stablehlo.add", "stablehlo.maximum"):
            return False
        for one, other in (op.operands, op.operands[::-1]):
            number = self.number(one)
            if number is not None and LEAST <= number <= LARGEST:
                return op.name == "stablehlo.maximum" or unwind(self._is_positive(other))
        return False

    def _is_positive(self, v: Value) -> Deep[bool]:
        """Whether it is never below 0, and visibly so."""
        if v not in self.positive:
            self.positive[v] = yield from self._looks_positive(v)
        return self.positive[v]

    def _looks_positive(self, v: Value) -> Deep[bool]:
        number, op = self.number(v), self._same(v)
        if number is not None or op is None:
            return number is not None and number >= 0
        kind = op.attrs.get("monoid") if op.name == REDUCE else op.name
        if op.name in POSITIVE or (kind == "stablehlo.multiply" and len({*op.operands}) == 1):
            return True
        if kind != "stablehlo.maximum" and kind != SELECT and kind not in BOTH:
            return False
        taken = op.operands[1:] if kind == SELECT else op.operands
        found = yield from each(self._is_positive(x) for x in taken)
        return any(found) if op.name == "stablehlo.maximum" else all(found)

    def _is_total(self, op: Op | None) -> bool:
        """Whether it is a sum of exponentials of what is at most 0, and somewhere 0."""
        if op is None or op.name != REDUCE or op.attrs.get("monoid") != "stablehlo.add":
            return False
        power = self._same(op.operands[0])
        if power is None or power.name != "stablehlo.exponential":
            return False
        less = self._same(power.operands[0])
        if less is None or less.name != "stablehlo.subtract":
            return False
        x, most = less.operands[0], self._same(less.operands[1])
        if most is None or most.name != REDUCE or most.attrs.get("monoid") != "stablehlo.maximum":
            return False
        same = {*most.attrs["dimensions"]} == {*op.attrs["dimensions"]}  # of others, all could be 0
        return same and most.operands[0] is x
