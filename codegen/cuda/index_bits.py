"""The width of a launch's plain integers: the smallest in which all of them provably fit.

softmax of [2147483712, 2]   ->   64: r * 2 + e may reach 4294967423
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from jstitch.codegen.bound_integers import ADDRESS, bound_integers
from jstitch.codegen.cuda.homes import NoRoom
from jstitch.codegen.interval import Interval
from jstitch.codegen.parse_text import functions_of


def index_bits(text: str, grid: int, block: int) -> Literal[32, 64]:
    """For the text of one function. Raises NoRoom where 64 bits do not do."""
    if not unproven(text, grid, block, 32):
        return 32
    problems = unproven(text, grid, block, 64)
    if problems:
        raise NoRoom(f"integers that may not fit: {problems[0]}")
    return 64


@lru_cache(maxsize=1 << 6)
def unproven(text: str, grid: int, block: int, bits: int) -> tuple[str, ...]:
    """What may not fit in so many bits, in the text of one function; equal texts are looked at once."""
    (function,) = functions_of(text).values()
    known = {"block()": Interval(0, grid - 1), "thread()": Interval(0, block - 1)}
    pointers = {a.arg: ADDRESS for a in function.args.args}
    return bound_integers(function, {**known, **pointers}, bits)
