"""How much a function does, counted: the same number on every machine, however busy it is."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any


def calls(function: Callable[..., Any], *args: Any) -> int:
    """How many functions a call of `function` calls, Python's own in C included."""
    count = 0

    def seen(_frame: Any, event: str, _arg: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        function(*args)
    finally:
        sys.setprofile(before)
    return count


def exponent(sizes: tuple[int, int], counts: tuple[int, int]) -> float:
    """The power of the size that the counts grow with."""
    return math.log(counts[1] / counts[0]) / math.log(sizes[1] / sizes[0])
