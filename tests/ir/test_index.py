"""Index arithmetic: whatever form it gives to quotients and remainders, they are what integers say."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jstitch.ir.index import (
    Atom,
    Clamp,
    FloorDiv,
    Index,
    Mod,
    Var,
    add,
    bounds,
    const,
    delinearize,
    floordiv,
    linearize,
    mod,
    mul,
    var,
)

EXTENTS = {"a": 3, "b": 7, "c": 12, "d": 5}
VARS = {name: var(Var(name, extent)) for name, extent in EXTENTS.items()}


def value(e: Index, at: Mapping[str, int]) -> int:
    return e.const + sum(k * _atom(atom, at) for atom, k in e.terms)


def _atom(atom: Atom, at: Mapping[str, int]) -> int:
    match atom:
        case Var(name, _):
            return at[name]
        case FloorDiv(of, by):
            return value(of, at) // by
        case Mod(of, by):
            return value(of, at) % by
        case Clamp(of, lo, hi):
            return min(max(value(of, at), lo), hi)
    raise AssertionError(atom)


Step = tuple[str, int, str]
STEPS = st.tuples(
    st.sampled_from(["add", "mul", "floordiv", "mod"]),
    st.sampled_from([1, 2, 3, 4, 5, 6, 7, 8, 12, 21, 35, 36, 60, 84]),
    st.sampled_from(sorted(EXTENTS)),
)


@settings(max_examples=600, deadline=None, derandomize=True)
@given(steps=st.lists(STEPS, min_size=1, max_size=7), first=st.integers(-40, 40))
def test_arithmetic(steps: list[Step], first: int) -> None:
    """Of sums, multiples, quotients and remainders of loop variables and negative numbers."""
    places = [dict(zip(EXTENTS, at, strict=True)) for at in itertools.product(*map(range, EXTENTS.values()))][
        ::7
    ]
    e, expected = const(first), [first] * len(places)
    for kind, k, name in steps:
        match kind:
            case "add":
                e = add(e, mul(VARS[name], k))
                expected = [x + k * at[name] for x, at in zip(expected, places, strict=True)]
            case "mul":
                e, expected = mul(e, k), [x * k for x in expected]
            case "floordiv":
                e, expected = floordiv(e, k), [x // k for x in expected]
            case _:
                e, expected = mod(e, k), [x % k for x in expected]
    assert [value(e, at) for at in places] == expected
    lo, hi = bounds(e)
    assert all(lo <= x <= hi for x in expected)


A, B = VARS["a"], VARS["b"]


@pytest.mark.parametrize(
    ("e", "same"),
    [
        (floordiv(add(mul(A, 7), B), 21), floordiv(A, 3)),  # a group norm's channels of 7 pixels
        (floordiv(add(mul(A, 7), B), 14), floordiv(A, 2)),
        (mod(add(mul(A, 7), B), 14), add(mul(mod(A, 2), 7), B)),
        (floordiv(add(mul(A, 4), floordiv(B, 2)), 3), floordiv(add(mul(A, 8), B), 6)),
        (floordiv(floordiv(B, 2), 3), floordiv(B, 6)),
        (floordiv(add(mul(A, 7), add(B, const(-7))), 14), floordiv(add(A, const(-1)), 2)),
    ],
)
def test_forms(e: Index, same: Index) -> None:
    assert e == same


@pytest.mark.parametrize("shape", [(3, 7), (21,), (3, 7, 1), (1, 21), (7, 3)])
def test_another_shape_and_back(shape: tuple[int, ...]) -> None:
    offset = add(mul(A, 7), B)
    assert linearize(delinearize(offset, shape), shape) == offset
