"""The code of one of many parts, found by halving: nested as deep as the logarithm of their number.

parts that end at 4, 8, 9, 12      ->      if program < 8:
                                               if program < 4: ... else: ...
                                           else:
                                               if program < 9: ... else: ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

Code = TypeVar("Code")


def indent(lines: Iterable[str]) -> list[str]:
    """One step further in."""
    return [f"    {line}" for line in lines]


def choose_branch(branches: Sequence[tuple[int, Code]], below: Callable[[int, Code, Code], Code]) -> Code:
    """The code of the first branch whose end is above some number. branches: (end, code), at least one.

    below: the code that runs its second argument where the number is below its first, else the third.
    """
    if len(branches) == 1:
        return branches[0][1]
    half = len(branches) // 2
    first, rest = choose_branch(branches[:half], below), choose_branch(branches[half:], below)
    return below(branches[half - 1][0], first, rest)
