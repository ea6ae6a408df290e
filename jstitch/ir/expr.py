"""Scalar expressions: what one element of a kernel is computed from.

    Expr ::= Const(value, dtype) | Ref(name) | Number(index) | Call(function, args)

    call("exp", call("sub", Ref("v0"), Ref("v1")))          exp(v0 - v1)

A Ref is a value that the kernel has given a name to; a Number is a place in memory, or a part of one, used as
a number; a function is one row of `codegen.intrinsics`. Expressions are values: equal ones are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from jstitch.ir.index import Atom, Clamp, Dynamic, FloorDiv, Index, Mod, Var, atoms, const, substitute, var
from jstitch.ir.types import DType


@dataclass(frozen=True, eq=False)
class Const:
    """A number of a type that kernels compute with."""

    value: bool | int | float
    dtype: DType

    # -0.0 is another number than 0.0, and nan is the same as nan.

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Const) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[str, DType]:
        return repr(self.value), self.dtype


@dataclass(frozen=True)
class Ref:
    """A value with a name."""

    name: str


@dataclass(frozen=True)
class Number:
    """An index as a 64-bit integer."""

    index: Index


@dataclass(frozen=True)
class Call:
    """A function of `codegen.intrinsics` of scalars."""

    function: str
    args: tuple[Expr, ...]


Expr = Const | Ref | Number | Call
Atomic = Const | Ref
"""What an operand is."""

Formula = Callable[..., Expr]
"""From operands to the expression of one element."""


def call(function: str, *args: Expr) -> Call:
    """function(*args)"""
    return Call(function, args)


def formula(function: str) -> Formula:
    """The function of all operands, in order."""
    return lambda *args: Call(function, args)


def itself(x: Expr) -> Expr:
    """The formula of an op that changes nothing."""
    return x


def calls(e: Expr) -> Iterator[Call]:
    """Every call in the expression, from the outside in."""
    todo = [e]
    while todo:
        found = todo.pop()
        if isinstance(found, Call):
            yield found
            todo.extend(reversed(found.args))


def numbers(e: Expr) -> Iterator[Index]:
    """Every index that is used as a number."""
    match e:
        case Number(index):
            yield index
        case Call(_, args):
            for arg in args:
                yield from numbers(arg)


def refs(e: Expr) -> Iterator[str]:
    """Names of values that the expression reads, those of its indices included."""
    match e:
        case Ref(name):
            yield name
        case Number(index):
            yield from index_refs(index)
        case Call(_, args):
            for arg in args:
                yield from refs(arg)


def index_refs(e: Index) -> Iterator[str]:
    """Names of values that an index reads: integers that the kernel computed."""
    return (str(a.operand) for a in sorted(atoms([e]), key=str) if isinstance(a, Dynamic))


def variables(e: Expr) -> Iterator[str]:
    """Names of loop variables that the expression reads."""
    return (a.name for index in numbers(e) for a in atoms([index]) if isinstance(a, Var))


def replace_refs(e: Expr, value: Callable[[str], Expr | None]) -> Expr:
    """The expression with other expressions for some of its values.

    Inside an index, a value can only become another value, or a number.
    """
    match e:
        case Ref(name):
            return value(name) or e
        case Number(index):
            return Number(rename_index(index, value))
        case Call(function, args):
            return Call(function, tuple(replace_refs(a, value) for a in args))
    return e


def move_numbers(e: Expr, moved: Callable[[Index], Index]) -> Expr:
    """The expression with other indices for those that it reads as numbers."""
    match e:
        case Number(index):
            return Number(moved(index))
        case Call(function, args):
            return Call(function, tuple(move_numbers(a, moved) for a in args))
    return e


def rename_index(e: Index, value: Callable[[str], Expr | None]) -> Index:
    """The index with other values for some of those that it reads."""

    def other(atom: Atom) -> Index | None:
        match value(str(atom.operand)) if isinstance(atom, Dynamic) else None:
            case None:
                return None
            case Ref(name):
                return var(Dynamic(name, ()))
            case Const(int() as number, _):
                return const(number)
        raise TypeError(f"expected a value or a number in the place of {atom}")

    return substitute(e, other)


def index_operations(e: Index) -> tuple[int, int, int]:
    """(additions and multiplications, divisions by numbers, clamps) that an index takes."""
    simple = sum(abs(k) != 1 for _, k in e.terms) + max(0, len(e.terms) - (not e.const))
    divisions = clamps = 0
    for atom, _ in e.terms:
        match atom:
            case FloorDiv(of, _) | Mod(of, _) | Clamp(of, _, _):
                inner = index_operations(of)
                divides = not isinstance(atom, Clamp)
                simple, divisions, clamps = (
                    simple + inner[0],
                    divisions + inner[1] + divides,
                    clamps + inner[2] + (not divides),
                )
    return simple, divisions, clamps
