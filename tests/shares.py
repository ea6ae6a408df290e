"""Cases of a test of which CI runs a share, always the same one; the others are slow tests.

one_in(3, "abcd")              ->   [a, slow b, slow c, d]
one_in(3, "abcd", first=1)     ->   [slow a, b, slow c, slow d], where two tests share their cases
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def one_in(count: int, cases: Iterable[Any], first: int = 0) -> list[Any]:
    """Parameters, in order: of `count` neighbours one is quick."""
    return [case if n % count == first else slow(case) for n, case in enumerate(cases)]


def one_tuple_in(count: int, cases: Iterable[tuple[Any, ...]]) -> list[Any]:
    """The same where a case has several parameters."""
    return [case if n % count == 0 else slow(*case) for n, case in enumerate(cases)]


def slow(*case: Any) -> Any:
    """A case that CI leaves out."""
    return pytest.param(*case, marks=pytest.mark.slow)
