"""From a function that writes LLVM IR to a function of kernel text: the typing half.

    exp = floats("exp", 1, lambda x: libdevice("exp", x))

Operands of one function have one kind; an integer literal takes the kind of the others. A function is called
with the builder and the operands, and raises Misuse for operands that it does not take.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from jstitch.codegen.cpu.expression import Value
from jstitch.codegen.cuda.builder import Builder
from jstitch.codegen.cuda.scalar import BOOL, Argument, Kind, Operand, constant, describe, index_kind

Build = Callable[..., Value]
Emit = Callable[[Builder, Sequence[Any]], Argument | None]


class Misuse(Exception):
    """Kernel text that is outside the contract. expected, found: one line each."""

    def __init__(self, expected: str, found: str) -> None:
        super().__init__(f"Expected {expected}, found {found}.")
        self.expected, self.found = expected, found


@dataclass(frozen=True)
class Function:
    """A function of kernel text: how many arguments it takes, and what writes its code."""

    name: str
    arity: int
    emit: Emit

    def __call__(self, builder: Builder, arguments: Sequence[Argument]) -> Argument | None:
        if len(arguments) != self.arity:
            raise Misuse(f"{self.arity} arguments of {self.name}", str(len(arguments)))
        return self.emit(builder, arguments)


def scalar(name: str, argument: Argument) -> Operand:
    if not isinstance(argument, Operand):
        raise Misuse(f"a scalar in {name}", describe(argument))
    return argument


def coerce(operand: Operand, kind: Kind) -> Operand:
    """A literal as any integer kind; every other operand as it is."""
    number, takes = operand.number, kind.is_integral and kind != BOOL
    if takes and operand.kind.name == "index" and isinstance(number, int):
        return constant(kind, number)
    return operand


def require(name: str, argument: Argument, kind: Kind) -> Operand:
    """The argument as that kind."""
    operand = coerce(scalar(name, argument), kind)
    if operand.kind != kind:
        raise Misuse(f"{kind.name} in {name}", operand.kind.name)
    return operand


def common(name: str, arguments: Sequence[Argument]) -> tuple[Kind, list[Operand]]:
    """The one kind of the operands, and the operands as that kind; s64 where an index meets s64."""
    operands = [scalar(name, a) for a in arguments]
    firm = {o.kind for o in operands if o.kind.name != "index" or o.number is None}
    kinds = firm or {operands[0].kind}
    if len(kinds) != 1:
        raise Misuse(f"operands of one type in {name}", ", ".join(o.kind.name for o in operands))
    (kind,) = kinds
    return kind, [require(name, o, kind) for o in operands]


def _typed(name: str, arity: int, accepts: Callable[[Kind], bool], expected: str, build: Any) -> Function:
    """build(values, kind) -> (kind of the result, value)."""

    def emit(builder: Builder, arguments: Sequence[Argument]) -> Operand:
        kind, operands = common(name, arguments)
        if not accepts(kind):
            raise Misuse(f"{expected} in {name}", kind.name)
        result, value = build([o.value(builder) for o in operands], kind)
        return Operand(result, value.raw)

    return Function(name, arity, emit)


def floats(name: str, arity: int, build: Build, predicate: bool = False) -> Function:
    """A function of f32 or f64 operands; the result has their kind, or is bool for a predicate."""

    def typed(values: Sequence[Value], kind: Kind) -> tuple[Kind, Value]:
        return BOOL if predicate else kind, build(*values)

    return _typed(name, arity, lambda kind: kind.is_float, "f32 or f64", typed)


def integers(name: str, arity: int, build: Build, booleans: bool = False) -> Function:
    """A function of integers of one kind (bool too when `booleans`); build(*values, signed)."""

    def accepts(kind: Kind) -> bool:
        return kind.is_integral and (booleans or kind != BOOL)

    return _typed(name, arity, accepts, "an integer", lambda v, kind: (kind, build(*v, kind.signed)))


def anything(name: str, arity: int, build: Build) -> Function:
    """A function of scalars of one kind; build(*values, signed)."""
    return _typed(name, arity, lambda _: True, "a scalar", lambda v, kind: (kind, build(*v, kind.signed)))


def widen(builder: Builder, name: str, argument: Argument, kind: Kind) -> Operand:
    """An index or s64 operand as `kind`, one of the two."""
    operand = scalar(name, argument)
    if operand.number is not None:
        return require(name, operand, kind)
    if operand.kind.name not in ("index", "s64"):
        raise Misuse(f"an index in {name}", operand.kind.name)
    return Operand(kind, operand.value(builder).resize(kind.bits, signed=True).raw)


def index_common(builder: Builder, name: str, arguments: Sequence[Argument]) -> tuple[Kind, list[Operand]]:
    """Index operands as one kind: s64 where any of them is, else index."""
    kinds = [scalar(name, a).kind for a in arguments]
    kind = next((k for k in kinds if k.name != "index"), index_kind(builder))
    return kind, [widen(builder, name, a, kind) for a in arguments]
