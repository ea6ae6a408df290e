"""Values of index type: integers over lanes with an interval that spares most checks.

    thread() * 4 + 1   ->   Index(raw=[1 5 9 ...], low=1, high=4 * block - 3, multiple=1)

Compile-time constants are Python ints. The interval and `multiple` (a divisor of every value) hold for the
lanes that were active when the value was made.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from jstitch.codegen.cuda.simulate_lanes import Array

Fail = Callable[[str, str, Array | None], Any]
Compress = Callable[[Array], Array]


@dataclass(frozen=True, eq=False, slots=True)
class Index:
    """raw: int64 over lanes, or of rank 0 when all lanes have the same value."""

    raw: Array
    low: int
    high: int
    multiple: int = 1


Term = Index | int


def raw(term: Term) -> Any:
    return term.raw if isinstance(term, Index) else term


def wrap(term: Term) -> Index:
    """A constant as a value of all lanes."""
    return term if isinstance(term, Index) else Index(np.asarray(term, np.int64), term, term, term)


class IndexMath:
    """Index arithmetic of a launch. fail(expected, found, bad lanes) raises; compress keeps active lanes."""

    def __init__(self, bits: int, fail: Fail, compress: Compress) -> None:
        self.limit = 1 << (bits - 1)
        self.bits, self._fail, self._compress = bits, fail, compress

    def add(self, a: Term, b: Term) -> Term:
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        x, y = wrap(a), wrap(b)
        return self._checked(
            x.raw + y.raw, (x.low + y.low, x.high + y.high), math.gcd(x.multiple, y.multiple)
        )

    def subtract(self, a: Term, b: Term) -> Term:
        if isinstance(a, int) and isinstance(b, int):
            return a - b
        x, y = wrap(a), wrap(b)
        return self._checked(
            x.raw - y.raw, (x.low - y.high, x.high - y.low), math.gcd(x.multiple, y.multiple)
        )

    def multiply(self, a: Term, b: Term) -> Term:
        if isinstance(a, int) and isinstance(b, int):
            return a * b
        x, y = wrap(a), wrap(b)
        corners = [p * q for p in (x.low, x.high) for q in (y.low, y.high)]
        return self._checked(x.raw * y.raw, (min(corners), max(corners)), x.multiple * y.multiple)

    def quotient(self, a: Term, b: Term) -> Term:
        """a // b for a >= 0 and b > 0."""
        first, second = self._divisible(a, b)
        if isinstance(a, int) and isinstance(b, int):
            return a // b
        multiple = first.multiple // second.low if _divides(second, first) else 1
        found = first.raw // second.raw
        return Index(found, first.low // max(second.high, 1), first.high // max(second.low, 1), multiple)

    def remainder(self, a: Term, b: Term) -> Term:
        """a % b for a >= 0 and b > 0."""
        first, second = self._divisible(a, b)
        if isinstance(a, int) and isinstance(b, int):
            return a % b
        multiple = math.gcd(first.multiple, second.multiple) if second.low == second.high else 1
        return Index(first.raw % second.raw, 0, min(first.high, second.high - 1), multiple)

    def of(self, values: Array) -> Index:
        """Any int64 values as an index."""
        active = self._compress(values)
        low, high = (int(active.min()), int(active.max())) if active.size else (0, 0)
        return self._checked(values, (low, high), 1)

    def _divisible(self, a: Term, b: Term) -> tuple[Index, Index]:
        first, second = self._at_least(wrap(a), 0), self._at_least(wrap(b), 1)
        return first, second

    def _at_least(self, term: Index, least: int) -> Index:
        if term.low >= least:
            return term
        below = term.raw < least
        if self._compress(below).any():
            what = "a dividend >= 0" if least == 0 else "a divisor > 0"
            self._fail(f"{what} in quotient and remainder_pos", "a smaller one", below)
        return Index(np.maximum(term.raw, least), least, max(term.high, least), 1)

    def _checked(self, values: Array, interval: tuple[int, int], multiple: int) -> Index:
        low, high = interval
        if -self.limit <= low and high < self.limit:
            return Index(values, low, high, multiple)
        active = self._compress(values)
        low, high = (int(active.min()), int(active.max())) if active.size else (0, 0)
        if low < -self.limit or high >= self.limit:
            bad = (values < -self.limit) | (values >= self.limit)
            self._fail(f"indices of {self.bits} bits", f"values from {low} to {high}", bad)
        return Index(values, low, high, multiple)


def _divides(b: Index, a: Index) -> bool:
    return b.low == b.high and a.multiple % max(b.low, 1) == 0
