"""Combine many values by an op of two: neighbours, halving until one is left; it rounds less than in order.

a, b, c, d, e    ->    ((a + b) + (c + d)) + e
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jstitch.ir.graph import Value


def pairwise(parts: Sequence[Value], combine: Callable[[Value, Value], Value]) -> Value:
    """The parts, at least one, combined."""
    while len(parts) > 1:
        pairs = [combine(a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
        parts = [*pairs, *parts[len(pairs) * 2 :]]
    return parts[0]
