"""Instructions without memory or lanes of their own: the table of their forms.

@form(r"add\\.(?P<t>[su]\\d+)")
def _add(m): return pure(m["t"], lambda a, b: a + b, 2)
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from jstitch.codegen.cuda.ptx.scalar import Array

Match = re.Match[str]


@dataclass(frozen=True)
class Form:
    """result = apply(*sources): the types that the operands are read as, and the result's."""

    result: str
    sources: tuple[str, ...]
    apply: Callable[..., Array]


_FORMS: list[tuple[re.Pattern[str], Callable[[Match], Form]]] = []


def form(pattern: str) -> Callable[[Callable[[Match], Form]], Callable[[Match], Form]]:
    """Registers the maker of the form that opcodes matching `pattern` have."""

    def register(make: Callable[[Match], Form]) -> Callable[[Match], Form]:
        _FORMS.append((re.compile(pattern), make))
        return make

    return register


def find_form(opcode: str) -> Form | None:
    """The form of an opcode, None where no pattern matches it whole."""
    for pattern, make in _FORMS:
        if found := pattern.fullmatch(opcode):
            return make(found)
    return None


def pure(type_name: str, apply: Callable[..., Array], arity: int) -> Form:
    """A form whose operands and result are all of one type."""
    return Form(type_name, (type_name,) * arity, apply)
