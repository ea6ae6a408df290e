"""Tuning over schedules (FS-2018 section 4.3).

    roots %a: (64, 32), %b: (64,)   blocks sets {1, 2, ..., 2048} and {1, ..., 64}   ->   search only 1 ... 64
    cost(schedules) = sum of evaluate(op, schedule) over the ops that are not trivial    ->   the cheapest

With several roots the sets of block counts are intersected first; the search over what is left stops
following a choice as soon as its running sum passes the best one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from jstitch.ir.graph import Op
from jstitch.ir.schedule import Schedule, same_spread
from jstitch.passes.lower.propagate_schedule import Refusal, Schedules, is_trivial, resolve
from jstitch.passes.lower.schedule import by_blocks, distinct_schedules

Evaluate = Callable[[Op, Schedule], float]


@dataclass(frozen=True, eq=False)
class Tuned:
    """The cheapest schedules: of the roots, of every op (None: inlined), and their cost."""

    roots: dict[Op, Schedule]
    schedules: Schedules
    blocks: int
    cost: float


def tune_schedule(
    ops: Sequence[Op],
    roots: Sequence[Op],
    evaluate: Evaluate,
    outputs: Collection[Op] = (),
    bypass: Callable[[Op], bool] = is_trivial,
) -> Tuned | Refusal:
    """The cheapest schedule that all roots can take, or a refusal when there is none.

    evaluate: (op, schedule) -> cost; asked once per op that is neither bypassed nor inlined.
    """
    spaces = [_valid(ops, root, outputs, bypass) for root in roots]
    shared = set(spaces[0]).intersection(*spaces[1:])
    best: Tuned | None = None
    for count in sorted(shared):
        search = _Search(roots, [space[count] for space in spaces], evaluate, bypass, count)
        best = search.run(best)
    return best or Refusal(roots[0], "no number of blocks that all roots can take")


Choice = tuple[Schedule, Schedules]


def _valid(
    ops: Sequence[Op], root: Op, outputs: Collection[Op], bypass: Callable[[Op], bool]
) -> dict[int, list[Choice]]:
    """Number of blocks -> the satisfiable schedules of one root, each with what it means for the others."""
    shape = root.results[0].shape
    valid: dict[int, list[Choice]] = {}
    for count, schedules in by_blocks(shape, distinct_schedules(shape)).items():
        for schedule in schedules:
            found = resolve(ops, {root: schedule}, outputs, bypass)
            if not isinstance(found, Refusal):
                valid.setdefault(count, []).append((schedule, found))
    return valid


class _Search:
    """Choose one schedule per root for one number of blocks, with early cut-off."""

    def __init__(
        self,
        roots: Sequence[Op],
        spaces: Sequence[list[Choice]],
        evaluate: Evaluate,
        bypass: Callable[[Op], bool],
        blocks: int,
    ) -> None:
        self.roots, self.spaces, self.evaluate = roots, spaces, evaluate
        self.bypass, self.blocks = bypass, blocks

    def run(self, best: Tuned | None) -> Tuned | None:
        self.best = best
        self._choose({}, {}, 0.0)
        return self.best

    def _choose(self, chosen: dict[Op, Schedule], schedules: Schedules, cost: float) -> None:
        if self.best is not None and cost >= self.best.cost:
            return
        if len(chosen) == len(self.roots):
            self.best = Tuned(chosen, schedules, self.blocks, cost)
            return
        root = self.roots[len(chosen)]
        for schedule, wanted in self.spaces[len(chosen)]:
            merged = _merge(schedules, wanted)
            if merged is not None:
                added = self._cost(merged, schedules, cost)
                self._choose({**chosen, root: schedule}, merged, added)

    def _cost(self, schedules: Schedules, known: Schedules, cost: float) -> float:
        """The running sum after the ops that `known` lacks; stops early when it passes the best."""
        for op, schedule in schedules.items():
            if op in known or schedule is None or self.bypass(op):
                continue
            cost += self.evaluate(op, schedule)
            if self.best is not None and cost >= self.best.cost:
                break
        return cost


def _merge(a: Schedules, b: Schedules) -> Schedules | None:
    """Both, or None when they spread one op differently."""
    for op in a.keys() & b.keys():
        if not same_spread(op.results[0].shape, a[op], b[op]):
            return None
    return {**a, **b}
