"""Functions that call themselves as deep as a program is long, without Python's stack.

def height(v: Value) -> int:                      def height(v: Value) -> Deep[int]:
    below = [height(u) for u in operands(v)]  ->      below = yield from each(height(u) for u in operands(v))
    return 1 + max(below, default=0)                  return 1 + max(below, default=0)

height(v)                                         unwind(height(v))

Such a function yields the calls that it waits for, in the order in which they were made.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any, TypeVar

T = TypeVar("T")

Deep = Generator[Any, Any, T]
"""A call that has not been made yet: it yields other such calls, and is sent what they return."""


def unwind(call: Deep[T]) -> T:
    """What the call returns, with all the calls that it waits for on a list instead of the stack."""
    waiting: list[Deep[Any]] = [call]
    result: Any = None
    while waiting:
        try:
            waiting.append(waiting[-1].send(result))
            result = None
        except StopIteration as stop:
            waiting.pop()
            result = stop.value
    found: T = result
    return found


def each(calls: Iterable[Deep[T]]) -> Deep[list[T]]:
    """The results of several calls, one after the other."""
    found: list[T] = []
    for call in calls:
        found.append((yield call))
    return found
