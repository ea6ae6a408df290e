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

from jstitch.passes.base.context import Span

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


def parts_of(spans: Iterable[Span]) -> tuple[Part, ...]:
    """Passes by the form that they give; those inside others are parts of these, and alike ones are one."""
    found: list[tuple[Span, list[Any]]] = []
    for span in spans:  # inner ones come first
        first = len(found)
        while first and found[first - 1][0].begun >= span.begun:
            first -= 1
        found[first:] = [(span, found[first:])]
    groups = {form: [s for s in found if s[0].gives == form] for form in ("graph", "plan", "kernel")}
    return tuple(part for form, own in groups.items() for part in sum_of(f"passes on {form}s", _alike(own)))


def _alike(spans: Iterable[tuple[Span, list[Any]]]) -> Iterator[Part]:
    """spans: with those inside each."""
    groups: dict[str, list[tuple[Span, list[Any]]]] = {}
    for span, inner in spans:
        groups.setdefault(span.name, []).append((span, inner))
    for name, own in groups.items():
        seconds = sum(span.ended - span.begun for span, _ in own)
        inside = _alike(one for _, inner in own for one in inner)
        yield part_of(name, seconds, inside, f"{len(own)} times" if len(own) > 1 else "")


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
