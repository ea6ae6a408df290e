"""Several elements as one, by pairs: in a row each addition would wait for the one before.

((a + b) + (c + d)) + e        instead of        (((a + b) + c) + d) + e
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

Part = TypeVar("Part")


def by_pairs(parts: Sequence[Part], both: Callable[[Part, Part], Part]) -> Part:
    """The parts' combination, in their order."""
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=False)
        parts = [*(both(a, b) for a, b in pairs), *parts[len(parts) // 2 * 2 :]]
    return parts[0]
