"""The integer program of one set of patterns, by HiGHS (FS-2019 section 4.1; see select_patterns)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from jstitch.passes.explore.op_graph import Members, OpGraph

MICROSECONDS = 1e6  # the solver's tolerances are absolute, and made for numbers around 1
Row = tuple[tuple[int, ...], tuple[int, ...], int, float]
"""Columns of coefficient 1, of coefficient -1, the charge's column (or -1), and the upper bound."""


@dataclass(frozen=True, eq=False)
class Problem:
    """patterns: of ops, by place, of a graph with one node per op. scores: seconds that each saves.

    charges: op -> seconds lost when a chosen pattern reads its result and no chosen pattern holds it.
    """

    graph: OpGraph
    patterns: Sequence[Members]
    scores: Sequence[float]
    charges: Mapping[int, float] = field(default_factory=dict)

    @cached_property
    def useful(self) -> tuple[int, ...]:
        """The patterns that save anything."""
        return tuple(n for n, score in enumerate(self.scores) if score > 0)

    def total(self, chosen: Sequence[int]) -> float:
        """Seconds that these patterns save together."""
        owned = {place for n in chosen for place in self.patterns[n]}
        asked = {op for place in owned for op in self.graph.before[place] if op not in owned}
        lost = sum(self.charges.get(op, 0.0) for op in sorted(asked))
        return float(sum(self.scores[n] for n in chosen)) - lost


def solve(
    problem: Problem, program: Sequence[int], cuts: Sequence[frozenset[int]], seconds: float, nodes: int
) -> tuple[tuple[int, ...], bool]:
    """The chosen of the patterns `program`, and whether nothing better exists under these cuts."""
    if seconds <= 0:
        return (), False
    holders = _holders(problem, program)
    charged = [op for op in problem.charges if any(u in holders for u in problem.graph.after[op])]
    rows = [*_disjoint(holders), *_cuts(program, cuts), *_asked(problem, holders, charged, len(program))]
    if not rows:
        return tuple(program), True
    scores = [problem.scores[n] for n in program] + [-problem.charges[op] for op in charged]
    matrix, limits = _matrix(rows, len(scores))
    result = milp(
        -MICROSECONDS * np.array(scores),
        integrality=np.array([1] * len(program) + [0] * len(charged), np.int64),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(matrix, -np.inf, limits),
        options={"time_limit": seconds, "node_limit": nodes, "mip_rel_gap": 0.0},
    )
    if result.x is None:
        return (), False
    chosen = tuple(n for n, x in zip(program, result.x, strict=False) if x > 0.5)
    return chosen, bool(result.status == 0)


def _holders(problem: Problem, program: Sequence[int]) -> dict[int, tuple[int, ...]]:
    """op -> columns of the patterns that hold it."""
    found: dict[int, list[int]] = {}
    for column, n in enumerate(program):
        for place in problem.patterns[n]:
            found.setdefault(place, []).append(column)
    return {place: tuple(columns) for place, columns in found.items()}


def _disjoint(holders: Mapping[int, tuple[int, ...]]) -> Iterator[Row]:
    for columns in dict.fromkeys(holders.values()):
        if len(columns) > 1:
            yield columns, (), -1, 1.0


def _cuts(program: Sequence[int], cuts: Sequence[frozenset[int]]) -> Iterator[Row]:
    column_of = {n: column for column, n in enumerate(program)}
    for cut in cuts:
        yield tuple(sorted(column_of[n] for n in cut)), (), -1, len(cut) - 1.0


def _asked(
    problem: Problem, holders: Mapping[int, tuple[int, ...]], charged: Sequence[int], first: int
) -> Iterator[Row]:
    """At most one pattern holds a consumer, so one row does for all that read the op through it."""
    for k, op in enumerate(charged):
        makers = set(holders.get(op, ()))
        for user in problem.graph.after[op]:
            readers = holders.get(user, ())
            askers = tuple(c for c in readers if c not in makers)
            if askers:
                yield askers, tuple(sorted(makers.difference(readers))), first + k, 0.0


def _matrix(rows: Sequence[Row], width: int) -> tuple[csr_array, np.ndarray]:
    columns, values, ends = list[int](), list[float](), [0]
    for plus, minus, charge, _ in rows:
        columns += [*plus, *minus, *((charge,) if charge >= 0 else ())]
        values += [1.0] * len(plus) + [-1.0] * (len(columns) - ends[-1] - len(plus))
        ends.append(len(columns))
    limits = np.array([row[3] for row in rows], float)
    return csr_array((values, columns, ends), shape=(len(rows), width)), limits
