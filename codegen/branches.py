"""The code of one of many parts, found by halving: nested as deep as the logarithm of their number.

parts that end at 4, 8, 9, 12      ->      if program < 8:
                                               if program < 4: ... else: ...
                                           else:
                                               if program < 9: ... else: ...
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def indent(lines: Iterable[str]) -> list[str]:
    """One step further in."""
    return [f"    {line}" for line in lines]


def choose_branch(branches: Sequence[tuple[int, list[str]]], number: str) -> list[str]:
    """The body of the first branch whose end is above `number`. branches: (end, body), at least one."""
    if len(branches) == 1:
        return branches[0][1]
    half = len(branches) // 2
    return [
        f"if {number} < {branches[half - 1][0]}:",
        *indent(choose_branch(branches[:half], number)),
        "else:",
        *indent(choose_branch(branches[half:], number)),
    ]
