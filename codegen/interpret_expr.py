"""Expressions and indices as Python functions of the names in force, made once for all turns of a loop.

    place of 4 * i + 1, where i is 3      ->  13
    value of a + 0.5, where a is 1.0      ->  1.5

All programs of a kernel that is interpreted share one `Formulas`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from jstitch.codegen.intrinsics import INTRINSICS
from jstitch.ir.expr import Call, Const, Expr, Number, Ref
from jstitch.ir.index import Atom, Clamp, Dynamic, FloorDiv, Index, Mod, Var
from jstitch.ir.types import DType

Names = Mapping[str, Any]
Place = Callable[[Names], int]
Scalar = Callable[[Names], Any]


class Formulas:
    """What was made is known by the object, which is kept: to hash a deep one takes as long as to run it."""

    def __init__(self) -> None:
        self._places: dict[int, tuple[Index, Place]] = {}
        self._values: dict[int, tuple[Expr, Scalar]] = {}

    def place(self, e: Index) -> Place:
        """An index, as a Python int."""
        found = self._places.get(id(e))
        if found is None:
            found = self._places[id(e)] = e, self._sum(e)
        return found[1]

    def value(self, e: Expr) -> Scalar:
        """A value, as a NumPy scalar."""
        found = self._values.get(id(e))
        if found is None:
            found = self._values[id(e)] = e, self._function(e)
        return found[1]

    def _sum(self, e: Index) -> Place:
        const = e.const
        match [(self._atom(atom), k) for atom, k in e.terms]:
            case []:
                return lambda names: const
            case [(atom, k)]:
                return lambda names: const + k * atom(names)
            case [(a, k), (b, l)]:
                return lambda names: const + k * a(names) + l * b(names)
            case terms:
                return lambda names: const + sum([k * atom(names) for atom, k in terms])

    def _atom(self, atom: Atom) -> Place:
        match atom:
            case Var(name, _):
                return lambda names: int(names[name])
            case Dynamic(operand, _):
                return lambda names: int(names[str(operand)])
            case FloorDiv(of, by):
                inner = self.place(of)
                return lambda names: inner(names) // by
            case Mod(of, by):
                inner = self.place(of)
                return lambda names: inner(names) % by
            case Clamp(of, low, high):
                inner = self.place(of)
                return lambda names: min(max(inner(names), low), high)

    def _function(self, e: Expr) -> Scalar:
        match e:
            case Const(value, dtype):
                scalar = np.bool_(value) if dtype is DType.BOOL else np.asarray(value).astype(dtype.numpy)[()]
                return lambda names: scalar
            case Ref(name):
                return lambda names: names[name]
            case Number(index):
                place = self.place(index)
                return lambda names: np.int64(place(names))
            case Call(function, args):
                return _applied(INTRINSICS[function].reference, [self.value(a) for a in args])


def _applied(f: Callable[..., Any], args: list[Scalar]) -> Scalar:
    match args:
        case [x]:
            return lambda names: f(x(names))
        case [x, y]:
            return lambda names: f(x(names), y(names))
    return lambda names: f(*[x(names) for x in args])
