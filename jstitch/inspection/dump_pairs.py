"""Two dumps of one program, matched: calls and stages by name, kernels by what they do.

A version or an option may number kernels differently; the kernel that does most of the same is the partner.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, TypeVar

from jstitch.inspection.dump_changes import Changes, compare
from jstitch.inspection.dumps import Call, DumpedKernel, Stage

ALIKE = 0.3  # share of lines below which two kernels have nothing to do with each other
T = TypeVar("T")
Pair = tuple[T | None, T | None]
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class Row:
    """A stage or kernel of two dumps. changes: None where one of them has none."""

    title: str
    before: str | None
    after: str | None
    changes: Changes | None

    @property
    def titles(self) -> tuple[str | None, ...]:
        """What one may call it."""
        return (self.title, self.title.rpartition(".")[0], self.before, self.after)

    @property
    def is_same(self) -> bool:
        return self.changes is not None and self.changes.is_empty

    def fields(self) -> dict[str, Any]:
        found: dict[str, Any] = {"before": self.before, "after": self.after, "same": self.is_same}
        if self.changes is not None:
            ops = self.changes.ops
            found |= {"came": dict(ops.came), "went": dict(ops.went), "changed": dict(ops.changed)}
        return found


@dataclass(frozen=True)
class CallPair:
    """A call of two dumps; without partner, it has no rows."""

    title: str
    stages: tuple[Row, ...]
    kernels: tuple[Row, ...]
    alone: bool

    @property
    def is_same(self) -> bool:
        return not self.alone and all(row.is_same for row in (*self.stages, *self.kernels))

    def fields(self) -> dict[str, Any]:
        """As JSON has it."""
        rows = {"stages": self.stages, "kernels": self.kernels}
        named = {what: [row.fields() for row in found] for what, found in rows.items()}
        return {"call": self.title, "only_one": self.alone, **named}


def pair_calls(before: Sequence[Call], after: Sequence[Call], exact: bool) -> list[CallPair]:
    """exact: names of values count."""
    pairs = pair_by_name([(c.name, c) for c in before], [(c.name, c) for c in after])
    return [_pair(a, b, exact) for a, b in pairs]


def _pair(a: Call | None, b: Call | None, exact: bool) -> CallPair:
    title = " <-> ".join(c.folder.name if c else "(none)" for c in (a, b))
    if a is None or b is None:
        return CallPair(title, (), (), True)
    named = [[(s.name, s) for s in _common(c)] for c in (a, b)]
    stages = tuple(_stage_row(x, y, exact) for x, y in pair_by_name(*named))
    old, new = ([k for k in c.kernels.values() if "kernel.txt" in k.files] for c in (a, b))
    kernels = pair_by_content(old, new, _text)
    return CallPair(title, stages, tuple(_kernel_row(x, y, exact) for x, y in kernels), False)


def _common(call: Call) -> list[Stage]:
    """Stages that are not about one kernel."""
    own = {s for k in call.kernels.values() for s in k.files.values()}
    return [s for s in call.stages if s not in own]


def _stage_row(a: Stage | None, b: Stage | None, exact: bool) -> Row:
    changes = compare(a.read(), b.read(), exact) if a and b else None
    name = next(s.name for s in (a, b) if s)
    return Row(name, a.path.name if a else None, b.path.name if b else None, changes)


def _kernel_row(a: DumpedKernel | None, b: DumpedKernel | None, exact: bool) -> Row:
    changes = compare(_text(a), _text(b), exact) if a and b else None
    name = next(k.name for k in (a, b) if k)
    return Row(name, a.name if a else None, b.name if b else None, changes)


def _text(kernel: DumpedKernel) -> str:
    """Its Kernel IR without its name."""
    return kernel.read("kernel.txt").partition("\n")[2]


def pair_by_name(before: Sequence[tuple[str, T]], after: Sequence[tuple[str, T]]) -> list[Pair[T]]:
    """The first of a name with the first of that name."""
    where: dict[str, tuple[list[T], list[T]]] = {}
    for side, named in enumerate((before, after)):
        for name, thing in named:
            where.setdefault(name, ([], []))[side].append(thing)
    return [pair for sides in where.values() for pair in zip_longest(*sides)]


def pair_by_content(before: Sequence[T], after: Sequence[T], text: Callable[[T], str]) -> list[Pair[T]]:
    """The most alike first, of those that are equally alike the nearest in order. text: of one."""
    exact = [[text(k) for k in side] for side in (before, after)]
    words = [[Counter(_NUMBER.sub("", line) for line in t.splitlines()) for t in side] for side in exact]
    likeness = {
        (i, k): (exact[0][i] == exact[1][k], _likeness(a, b))
        for i, a in enumerate(words[0])
        for k, b in enumerate(words[1])
    }
    partner: dict[int, int] = {}
    order = sorted(likeness, key=lambda x: (-likeness[x][0], -likeness[x][1], abs(x[0] - x[1]), x))
    for i, k in order:
        if i not in partner and k not in partner.values() and likeness[i, k][1] >= ALIKE:
            partner[i] = k
    found: list[Pair[T]] = [
        (kernel, after[partner[i]] if i in partner else None) for i, kernel in enumerate(before)
    ]
    return found + [(None, k) for n, k in enumerate(after) if n not in partner.values()]


def _likeness(a: Counter[str], b: Counter[str]) -> float:
    return 2 * (a & b).total() / max(1, a.total() + b.total())
