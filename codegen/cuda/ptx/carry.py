"""Additions and subtractions that read or write the carry flag: add.cc, addc, sub.cc, subc, mad.cc, madc.

The flag is one more register of 32 bits, named %cc: forms with `sets` give it as a second result.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from jstitch.codegen.cuda.ptx.integer import high
from jstitch.codegen.cuda.ptx.scalar import UNSIGNED, Array, width

_PATTERN = re.compile(
    r"(?P<name>add|sub|mad)(?P<uses>c)?(?:\.(?P<half>lo|hi))?(?P<sets>\.cc)?\.(?P<t>[su](?:32|64))"
)


@dataclass(frozen=True)
class CarryForm:
    """uses, sets: the flag is a last source, a second result."""

    type_name: str
    name: str
    half: str | None
    uses: bool
    sets: bool

    @property
    def arity(self) -> int:
        """Number of sources without the flag."""
        return 3 if self.name == "mad" else 2

    def apply(self, *sources: Array) -> tuple[Array, Array]:
        """(result, carry or borrow out). sources: as written, then the flag."""
        unsigned = UNSIGNED[width(self.type_name)]
        *values, flag = sources
        carry = flag.astype(unsigned)
        if self.name == "mad":
            a, b, addend = values
            values = [a * b if self.half == "lo" else high(a, b), addend]
        x, y = (value.view(unsigned) for value in values)
        if self.name == "sub":
            first = x - y
            return first - carry, ((x < y) | (first < carry)).astype(np.uint32)
        first = x + y
        second = first + carry
        return second, ((first < x) | (second < first)).astype(np.uint32)


def find_carry_form(opcode: str) -> CarryForm | None:
    """The form of an opcode that touches the flag, else None."""
    found = _PATTERN.fullmatch(opcode)
    if (
        found is None
        or not (found["uses"] or found["sets"])
        or (found["name"] == "mad") != bool(found["half"])
    ):
        return None
    return CarryForm(found["t"], found["name"], found["half"], bool(found["uses"]), bool(found["sets"]))
