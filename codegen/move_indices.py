"""The indices of an instruction, and the same instruction with others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any, TypeVar

from jstitch.codegen.kernel_ir import Accumulator, Instr
from jstitch.ir.expr import Call, Const, Number, Ref, move_numbers, numbers
from jstitch.ir.index import Index

Part = TypeVar("Part", bound=Instr | Accumulator)


def indices(part: Instr | Accumulator) -> Iterator[Index]:
    """Every index of it, those in its expression too."""
    for f in fields(part):
        match getattr(part, f.name):
            case Index() as index:
                yield index
            case Const() | Ref() | Number() | Call() as value:
                yield from numbers(value)


def changed(part: Part, moved: Callable[[Index], Index], depth: int) -> Part:
    """The same at another depth, with all its indices moved."""
    found: dict[str, Any] = {"depth": depth}
    for f in fields(part):
        match getattr(part, f.name):
            case Index() as index:
                found[f.name] = moved(index)
            case Const() | Ref() | Number() | Call() as value:
                found[f.name] = move_numbers(value, moved)
    return replace(part, **found)
