"""Comparisons and choices: setp, set, selp, slct.

An ordered comparison with a NaN is false, an unordered one (`ltu`) true.
"""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np

from jstitch.codegen.cuda.ptx.form import Form, Match, form
from jstitch.codegen.cuda.ptx.scalar import DTYPES, UNSIGNED, Array, width

_ORDERED: dict[str, Callable[..., Array]] = {
    "eq": operator.eq,
    "ne": lambda a, b: (a < b) | (a > b),
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "lo": operator.lt,
    "ls": operator.le,
    "hi": operator.gt,
    "hs": operator.ge,
    "num": lambda a, b: ~(np.isnan(a) | np.isnan(b)),
}
_OPPOSITE = {"equ": "ne", "neu": "eq", "ltu": "ge", "leu": "gt", "gtu": "le", "geu": "lt", "nan": "num"}
_TEST = rf"(?P<test>{'|'.join([*_OPPOSITE, *_ORDERED])})"
_ANY = r"(?P<t>[bus](?:16|32|64)|f16|bf16|f32|f64)"
_WITH = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}


def _tester(test: str) -> Callable[..., Array]:
    if test in _ORDERED:
        return _ORDERED[test]
    ordered = _ORDERED[_OPPOSITE[test]]
    return lambda a, b: ~ordered(a, b)


@form(rf"setp\.{_TEST}(?:\.(?P<with>and|or|xor))?(?:\.ftz)?\.{_ANY}")
def _setp(m: Match) -> Form:
    test = _tester(m["test"])
    if m["with"] is None:
        return Form("pred", (m["t"],) * 2, test)
    combine = _WITH[m["with"]]
    return Form("pred", (m["t"], m["t"], "pred"), lambda a, b, c: combine(test(a, b), c))


@form(rf"set\.{_TEST}(?:\.ftz)?\.(?P<result>[us]32|f32)\.{_ANY}")
def _set(m: Match) -> Form:
    test, dtype = _tester(m["test"]), DTYPES[m["result"]]
    true = np.array([1.0], dtype) if m["result"] == "f32" else np.array([-1]).astype(dtype)
    return Form(m["result"], (m["t"],) * 2, lambda a, b: np.where(test(a, b), true, dtype.type(0)))


@form(rf"selp\.{_ANY}")
def _selp(m: Match) -> Form:
    # Chosen as bits: a NaN keeps its payload.
    bits = UNSIGNED[width(m["t"])]
    return Form(m["t"], (m["t"], m["t"], "pred"), lambda a, b, p: np.where(p, a.view(bits), b.view(bits)))


@form(rf"slct(?:\.ftz)?\.{_ANY}\.(?P<c>s32|f32)")
def _slct(m: Match) -> Form:
    bits = UNSIGNED[width(m["t"])]
    return Form(
        m["t"], (m["t"], m["t"], m["c"]), lambda a, b, c: np.where(c >= 0, a.view(bits), b.view(bits))
    )
