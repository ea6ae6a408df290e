"""Remember what a function says about an object for as long as the object lives.

@per_object
def relations(op, rows): ...        relations(op, 64) is worked out once; freed with op

What the answer depends on besides the object is an argument: a target's profile, above all.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple
from weakref import WeakKeyDictionary

A = TypeVar("A")
K = TypeVarTuple("K")
T = TypeVar("T")


def per_object(f: Callable[[A, *K], T]) -> Callable[[A, *K], T]:
    """`f(x, *key)` with a memory that forgets x when everybody else does. The result must not refer to x.

    A `functools.lru_cache` would keep ops, graphs and MLIR modules alive.
    """
    known: WeakKeyDictionary[A, dict[tuple[*K], T]] = WeakKeyDictionary()

    @functools.wraps(f)
    def remembered(x: A, *key: *K) -> T:
        found = known.get(x)
        if found is None:
            found = known.setdefault(x, {})
        try:
            return found[key]
        except KeyError:  # rather than `in`: hashing a profile takes as long as all else
            answer = found[key] = f(x, *key)
            return answer

    return remembered
