"""Remember what a function says about an op for as long as the op lives.

@per_op
def relations(op, rows): ...        relations(op, 64) is worked out once; freed with op
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import TypeVar
from weakref import WeakKeyDictionary

from jstitch.ir.graph import Op

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


def per_op(f: Callable[[Op, K], T]) -> Callable[[Op, K], T]:
    """`f(op, key)` with a memory. A `functools.lru_cache` would keep ops, graphs and MLIR modules alive."""
    known: WeakKeyDictionary[Op, dict[K, T]] = WeakKeyDictionary()

    @functools.wraps(f)
    def remembered(op: Op, key: K) -> T:
        found = known.get(op)
        if found is None:
            found = known.setdefault(op, {})
        if key not in found:
            found[key] = f(op, key)
        return found[key]

    return remembered


A = TypeVar("A")


def per_object(f: Callable[[A], T]) -> Callable[[A], T]:
    """`f(x)` with a memory that forgets x when everybody else does. The result must not refer to x."""
    known: WeakKeyDictionary[A, T] = WeakKeyDictionary()

    @functools.wraps(f)
    def remembered(x: A) -> T:
        found = known.get(x)
        if found is None:
            found = known[x] = f(x)
        return found

    return remembered
