"""Which of several things in a row are in one loop: neighbours that have the same one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def in_turns(turns: Sequence[T | None]) -> list[tuple[T | None, range]]:
    """Numbers of neighbours that are in one loop, in order, or of one that is in none. turns: of each."""
    found: list[tuple[T | None, range]] = []
    for n, turn in enumerate(turns):
        last, numbers = found[-1] if found else (None, range(0))
        if turn is not None and turn == last:
            found[-1] = last, range(numbers.start, n + 1)
        else:
            found.append((turn, range(n, n + 1)))
    return found
