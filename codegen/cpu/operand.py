"""What the names of a kernel's text stand for while it is lowered."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Operand:
    """A scalar: its Numba type (a literal's keeps the value), its LLVM value."""

    type: Any
    raw: Any


@dataclass(frozen=True)
class Slot:
    """A variable that is assigned more than once: memory that LLVM turns into registers."""

    type: Any
    pointer: Any


@dataclass
class Scope:
    """One block of statements: what it defines, and how often it assigns each name (inner blocks too)."""

    counts: Counter[str]
    names: dict[str, Operand | Slot] = field(default_factory=dict)
