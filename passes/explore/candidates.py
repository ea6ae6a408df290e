"""Patterns that a planner chooses from, each made, trimmed and numbered once.

(0, 3, 4), (3, 4), (0, 3, 4)     ->     0: {exp, reduce, divide}   1: {reduce, divide}
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from jstitch.ir.graph import Op
from jstitch.passes.base.plan import FusionPattern, FusionPlan, is_free, make_patterns
from jstitch.passes.explore.op_graph import Members, OpGraph
from jstitch.passes.fuse.trim_patterns import trim


@dataclass(eq=False)
class Candidates:
    """patterns and members: the same sets of ops, by number. graph: one node per op of the frame."""

    graph: OpGraph
    origin: str
    patterns: list[FusionPattern] = field(default_factory=list)
    members: list[Members] = field(default_factory=list)
    _made: dict[Members, int | None] = field(default_factory=dict)
    _number: dict[Members, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._place = {op: n for n, op in enumerate(self.graph.frame.ops)}
        self._producers = self.graph.frame.producers()
        self._empty = FusionPlan(self.graph.frame, ())

    def add(self, groups: Sequence[Members]) -> list[int]:
        """The numbers of these sets of ops, trimmed; what has nothing left is gone."""
        new = [g for g in dict.fromkeys(groups) if g not in self._made]
        made = make_patterns(self.graph.frame, [self._with_free(g) for g in new], self.origin)
        self._made.update((g, self._enter(p)) for g, p in zip(new, made, strict=True))
        numbers = (self._made[g] for g in groups)
        return list(dict.fromkeys(n for n in numbers if n is not None))

    def of_plan(self, plan: FusionPlan) -> list[Members]:
        """The sets of ops of another plan of the frame."""
        return [self._members(p) for p in plan.patterns]

    def _members(self, pattern: FusionPattern) -> Members:
        return tuple(self._place[op] for op in pattern.ops if not is_free(op))

    def _enter(self, pattern: FusionPattern) -> int | None:
        trimmed = trim(self._empty, pattern)
        if trimmed is None:
            return None
        members = self._members(trimmed)
        if members not in self._number:
            self._number[members] = len(self.members)
            self.members.append(members)
            self.patterns.append(trimmed)
        return self._number[members]

    def _with_free(self, members: Members) -> list[Op]:
        """The ops at these places, and the free ops that they use."""
        ops = self.graph.ops(members)
        found = (self._producers.get(v) for op in ops for v in op.operands)
        return [*dict.fromkeys(op for op in found if op is not None and is_free(op)), *ops]
