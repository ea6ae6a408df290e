"""Integers between two bounds, and what arithmetic makes of them.

[0, 198] * 24000000   ->   [0, 4752000000]
clamp([0, 263], [0, 0], [99, 99])   ->   [0, 99]
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Interval:
    """Every integer from `low` to `high`; none where low is above high."""

    low: int
    high: int

    def __str__(self) -> str:
        return f"[{self.low}, {self.high}]"

    def __add__(self, other: Interval) -> Interval:
        return Interval(self.low + other.low, self.high + other.high)

    def __sub__(self, other: Interval) -> Interval:
        return Interval(self.low - other.high, self.high - other.low)

    def __mul__(self, other: Interval) -> Interval:
        corners = [a * b for a in (self.low, self.high) for b in (other.low, other.high)]
        return Interval(min(corners), max(corners))

    def __contains__(self, other: Interval) -> bool:
        return self.low <= other.low and other.high <= self.high

    def __or__(self, other: Interval) -> Interval:
        """What lies in either, and between them."""
        return Interval(min(self.low, other.low), max(self.high, other.high))

    def __and__(self, other: Interval) -> Interval:
        """What lies in both."""
        return Interval(max(self.low, other.low), min(self.high, other.high))

    @property
    def empty(self) -> bool:
        return self.low > self.high

    def quotient(self, by: Interval) -> Interval:
        """self // by, of numbers that are not negative by positive ones."""
        return Interval(self.low // by.high, self.high // by.low)

    def remainder(self, by: Interval) -> Interval:
        """self % by, of the same."""
        return self if self.high < by.low else Interval(0, min(self.high, by.high - 1))

    def clamp(self, low: Interval, high: Interval) -> Interval:
        """min(max(self, low), high)."""
        first, last = max(self.low, low.low), max(self.high, low.high)
        return Interval(min(first, high.low), min(last, high.high))


def point(number: int) -> Interval:
    return Interval(number, number)


def of_bits(bits: int, signed: bool = True) -> Interval:
    """Every integer of that width."""
    return Interval(-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else Interval(0, (1 << bits) - 1)
