"""Patterns that look alike cost the same: remember what a function says about the structure of a pattern.

{%3 = exp %1; %4 = add %3, %2} -> %4     ==     {%8 = exp %7; %9 = add %8, %6} -> %9

A network repeats its layers, and a planner looks at the same pattern in each of them.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Hashable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from jstitch.ir.graph import Op
from jstitch.ir.ops.build import is_splat
from jstitch.passes.base.plan import FREE_ELEMENTS, FusionPattern

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")
MOST = 1 << 20  # numbers in remembered structures; then all are forgotten
MOST_KINDS = 1 << 15  # of ops that are told apart; then they get new numbers, and nothing else happens

_numbers = itertools.count()
_kinds: dict[Hashable, int] = {}
_kind_of: WeakKeyDictionary[Op, int] = WeakKeyDictionary()


def per_structure(f: Callable[[FusionPattern, K], T]) -> Callable[[FusionPattern, K], T]:
    """`f(pattern, key)` with a memory by structure and key, such as the target's profile.

    The result must not be None, nor refer to ops or values.
    """
    known: dict[tuple[K, tuple[int, ...]], T] = {}
    numbers = 0

    @functools.wraps(f)
    def remembered(pattern: FusionPattern, key: K) -> T:
        nonlocal numbers
        like = structure(pattern)
        if like is None:
            return f(pattern, key)
        found = known.get((key, like))
        if found is None:
            found = f(pattern, key)
            if numbers > MOST:
                known.clear()
                numbers = 0
            known[key, like] = found
            numbers += len(like)
        return found

    return remembered


def structure(pattern: FusionPattern) -> tuple[int, ...] | None:
    """Equal for patterns that differ in the identity of ops and values only; None: only like itself."""
    number: dict[object, int] = {}
    parts: list[int] = []
    for op in pattern.ops:
        kind = _kind(op)
        if kind < 0:
            return None
        parts.append(kind)
        parts += [number.setdefault(v, len(number)) for v in op.operands]
        for v in op.results:
            number[v] = len(number)
    return None if pattern.updates else (*parts, -1, *(number[v] for v in pattern.outputs))


def _kind(op: Op) -> int:
    """A number for name, types and attributes; negative for ops that are like no other."""
    found = _kind_of.get(op)
    if found is None:
        found = _kind_of[op] = _new_kind(op)
    return found


def _new_kind(op: Op) -> int:
    if op.regions and "monoid" not in op.attrs:
        return -1
    types = (tuple(v.type for v in op.operands), tuple(v.type for v in op.results))
    try:
        attrs = tuple(sorted((name, _hashable(value)) for name, value in op.attrs.items()))
        if len(_kinds) >= MOST_KINDS:
            _kinds.clear()
        return _kinds.setdefault((op.name, attrs, types), next(_numbers))
    except TypeError:
        return -1


def _hashable(value: Any) -> Hashable:
    """The value as part of a key. Raises TypeError for what cannot be one, such as large constants."""
    if not isinstance(value, np.ndarray):
        return (type(value).__name__, value)
    if is_splat(value):
        return ("splat", value.dtype.str, value.shape, value[(0,) * value.ndim].tobytes())
    if value.size > FREE_ELEMENTS:
        raise TypeError(f"Expected at most {FREE_ELEMENTS} elements, found {value.size}.")
    return ("dense", value.dtype.str, value.shape, value.tobytes())
