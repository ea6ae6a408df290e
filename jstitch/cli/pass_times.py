"""Where the time of a command goes: a tree, the largest parts first, as `mlir-opt --mlir-timing` has it.

seconds     share   part
 0.0841    100.0%   all
 0.0512     60.9%     passes on plans
 0.0301     35.8%       merge_patterns         3 patterns
 0.0018      2.1%     Rest
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from rich.table import Table
from rich.text import Text

REST = "Rest"


@dataclass(frozen=True)
class Part:
    """note: what it left. parts: what it is made of, with what is in none of them as the last."""

    name: str
    seconds: float
    note: str = ""
    parts: tuple[Part, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """{"name", "seconds", "note", "parts": [part]}"""
        parts = [part.to_json() for part in self.parts]
        return {"name": self.name, "seconds": self.seconds, "note": self.note, "parts": parts}


def part_of(name: str, seconds: float, parts: Iterable[Part], note: str = "") -> Part:
    """A part of that many seconds, or of all that its parts take where these are more."""
    inner = sorted(parts, key=lambda part: -part.seconds)
    if not inner:
        return Part(name, seconds, note)
    known = sum(part.seconds for part in inner)
    rest = max(0.0, seconds - known)
    return Part(name, known + rest, note, (*inner, Part(REST, rest)))


def sum_of(name: str, parts: Iterable[Part]) -> tuple[Part, ...]:
    """Parts that have nothing around them, as one; none of none."""
    inner = tuple(sorted(parts, key=lambda part: -part.seconds))
    return (Part(name, sum(part.seconds for part in inner), "", inner),) if inner else ()


def time_table(all_of_it: Part) -> Table:
    """Seconds of wall time, and shares of all."""
    table = Table(title="time by part", title_justify="left")
    for name in ("seconds", "share"):
        table.add_column(name, justify="right")
    table.add_column("part")
    table.add_column("left", justify="right")
    for depth, part in _walk(all_of_it, 0):
        share = part.seconds / all_of_it.seconds if all_of_it.seconds else 0.0
        told = Text(f"{'  ' * depth}{part.name}")
        table.add_row(f"{part.seconds:.4f}", f"{share:.1%}", told, Text(part.note))
    return table


def _walk(part: Part, depth: int) -> Iterator[tuple[int, Part]]:
    yield depth, part
    for inner in part.parts:
        yield from _walk(inner, depth + 1)
