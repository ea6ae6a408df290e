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

LARGEST = 2.0**16  # of a number, or of all numbers of one product, and its inverse the smallest
LEAST = 2.0**-64  # added to what a root is taken of: its inverse is at most 2^32
MOST_ROOTS = 2  # of one product: cubes of 1e13 overflow, and are small against the cube of their deviation
DEEPEST = 32  # ops from a factor to what shows its range
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
        number = self.number(v)
        if number is not None:
            return Kind.NUMBER if 1 / LARGEST <= abs(number) <= LARGEST else None
        op = self._same(v)
        if self._is_root(op):
            return Kind.ROOT
        return Kind.TOTAL if self._is_total(op) else None

    def _same(self, v: Value) -> Op | None:
        """The op that makes it, but for those that only move it."""
        op = self.producers.get(v)
        while op is not None and op.name in SAME:
            op = self.producers.get(op.operands[0])
        return op

    def _is_root(self, op: Op | None) -> bool:
        match (op.name, op.operands) if op is not None else ("", ()):
            case ("stablehlo.rsqrt" | "stablehlo.sqrt", (x,)):
                return self._is_bounded(self._same(x))
            case ("stablehlo.divide", (a, b)):
                return self.kind(a) is Kind.NUMBER and self._is_root(self._same(b))
        return False

    def _is_bounded(self, op: Op | None) -> bool:
        """Whether it is at least some number above 0."""
        if op is None or op.name not in ("stablehlo.add", "stablehlo.maximum"):
            return False
        for one, other in (op.operands, op.operands[::-1]):
            number = self.number(one)
            if number is not None and LEAST <= number <= LARGEST:
                return op.name == "stablehlo.maximum" or self._is_positive(other)
        return False

    def _is_positive(self, v: Value, depth: int = 0) -> bool:
        """Whether it is never below 0, and visibly so."""
        number, op = self.number(v), self._same(v)
        if number is not None:
            return number >= 0
        if op is None or depth > DEEPEST:
            return False
        match op.name, op.operands:
            case ("stablehlo.multiply", (a, b)) if a is b:
                return True
            case (name, _) if name in POSITIVE:
                return True
            case ("stablehlo.maximum", both):
                return any(self._is_positive(x, depth + 1) for x in both)
            case (name, both) if name in BOTH:
                return all(self._is_positive(x, depth + 1) for x in both)
            case ("stablehlo.select", (_, *both)):
                return all(self._is_positive(x, depth + 1) for x in both)
            case ("stablehlo.reduce", both) if op.attrs.get("monoid") in BOTH:
                return all(self._is_positive(x, depth + 1) for x in both)
        return False

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
        x, most = less.operands
        return self._is_maximum(most, x)

    def _is_maximum(self, v: Value, x: Value, depth: int = 0) -> bool:
        """Whether it is the maximum of x, or another number where that is infinite."""
        op = self._same(v)
        if op is None or depth > DEEPEST:
            return False
        if op.name == REDUCE:
            return op.attrs.get("monoid") == "stablehlo.maximum" and op.operands[0] is x
        if op.name in (SELECT, "stablehlo.maximum"):
            return any(self._is_maximum(other, x, depth + 1) for other in op.operands)
        return False
