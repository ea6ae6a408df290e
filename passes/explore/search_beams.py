"""The plan: of all candidate patterns, disjoint ones that save most together (FS-2021 section 5.3).

From the first op to the last, a few partial plans are kept; at an op, each goes on without it and with each
candidate that begins there, if it overlaps nothing and closes no cycle:

    plans {}               at 8, candidates {8, 5, 2} and {8, 6}     {}, {8 5 2}, {8 6}
    plans {}, {8 5 2} ..   at 7, candidate {7, 2}                    {7 2}, {8 5 2}, {8 6} {7 2}

Plans that have taken the same ops among those to come have the same future, so only the best of them goes on.
What a plan is worth, among the few, is what it saves less what the ops that it has taken ahead of its turn
could save otherwise; without that term, the paper's, a small pattern now beats a large one two ops later.

Cycles: every node of the contracted frame has a time, an op at first its place. A pattern gets one after all
that it reads and before all that reads it, or is not taken; so every edge leads forward in time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from jstitch.passes.explore.explore_patterns import Candidate

HORIZON = 24  # choices after which the best plan's oldest is final


@dataclass(frozen=True)
class SearchOptions:
    """width: plans that are kept at each op. ahead: whether what ops taken ahead of their turn could save
    otherwise counts against a plan. merged: of plans with one future, whether only the best goes on.
    """

    width: int = 8
    ahead: bool = True
    merged: bool = True


DEFAULT = SearchOptions()
AS_PUBLISHED = SearchOptions(width=3, ahead=False, merged=False)
"""The paper's, which loses the best plan of a batch norm's gradient and others."""


@dataclass(frozen=True)
class _Plan:
    """A partial plan: choices that are not final yet, when their ops run, and the ops to come that they hold.

    taken: bits, from the current place on. saved: seconds of the choices. ahead: what ops taken ahead of
    their turn could save otherwise.
    """

    choices: tuple[Candidate, ...] = ()
    times: Mapping[int, float] = field(default_factory=dict)
    taken: int = 0
    saved: float = 0.0
    ahead: float = 0.0

    @property
    def worth(self) -> float:
        return self.saved - self.ahead


def search_beams(
    candidates: Sequence[Sequence[Candidate]], options: SearchOptions = DEFAULT
) -> list[list[Candidate]]:
    """The best plans: chosen candidates. candidates: those that begin at each op, by place."""
    return _Search(candidates, options).run()


class _Search:
    def __init__(self, candidates: Sequence[Sequence[Candidate]], options: SearchOptions) -> None:
        self.candidates, self.options = candidates, options
        self.share = _shares(candidates) if options.ahead else [0.0] * len(candidates)
        self.time: list[float] = list(range(len(candidates)))
        self.final: list[Candidate] = []
        self.plans = [_Plan()]

    def run(self) -> list[list[Candidate]]:
        for place, found in enumerate(self.candidates):
            if found:
                self._choose(place)
            self.plans = [self._passed(plan, place) for plan in self.plans]
            if len(self.plans) > 1:
                self._keep(self.plans)
        return [[*self.final, *plan.choices] for plan in self.plans]

    def _choose(self, place: int) -> None:
        """Every plan with none or one of the candidates at this op; the best of each future stay."""
        self._keep([new for old in self.plans for new in self._options(old, place)])

    def _keep(self, plans: Sequence[_Plan]) -> None:
        """The best, no two with one future where that is all that matters of them."""
        best: dict[object, _Plan] = {}
        for plan in plans:
            key = plan.taken if self.options.merged else plan.choices
            if key not in best or best[key].saved < plan.saved:
                best[key] = plan
        ordered = sorted(best.values(), key=lambda plan: -plan.worth)
        self.plans = ordered[: self.options.width]
        self._settle()

    def _options(self, plan: _Plan, place: int) -> Iterator[_Plan]:
        yield plan
        if plan.taken & 1:
            return
        for found in self.candidates[place]:
            mask = 0
            for member in found.members:
                mask |= 1 << (member - place)
            if not mask & plan.taken:
                time = self._slot(plan, found)
                if time is not None:
                    yield self._with(plan, found, mask, time)

    def _slot(self, plan: _Plan, found: Candidate) -> float | None:
        """When the pattern can run, as near to its last op as it may; or None."""
        times, time = plan.times, self.time
        low = max((times.get(p, time[p]) for p in found.before), default=-1.0)
        high = min((times.get(p, time[p]) for p in found.after), default=low + len(time))
        if low >= high:
            return None
        slot = min(max(low, float(found.members[-1])), high)
        return slot if low < slot < high else (low + high) / 2 if low < (low + high) / 2 < high else None

    def _with(self, plan: _Plan, found: Candidate, mask: int, time: float) -> _Plan:
        return _Plan(
            (*plan.choices, found),
            {**plan.times, **dict.fromkeys(found.members, time)},
            plan.taken | mask,
            plan.saved + found.seconds,
            plan.ahead + sum(self.share[m] for m in found.members),
        )

    def _passed(self, plan: _Plan, place: int) -> _Plan:
        """The plan once it is the next op's turn."""
        ahead = plan.ahead - self.share[place] if plan.taken & 1 else plan.ahead
        return _Plan(plan.choices, plan.times, plan.taken >> 1, plan.saved, ahead)

    def _settle(self) -> None:
        """Choices that all plans begin with are final; so is the oldest of many."""
        while self.plans[0].choices:
            first = self.plans[0].choices[0]
            agree = [plan for plan in self.plans if plan.choices and plan.choices[0] is first]
            if len(agree) < len(self.plans) and len(self.plans[0].choices) <= HORIZON:
                return
            self.final.append(first)
            for member in first.members:
                self.time[member] = self.plans[0].times[member]
            self.plans = [_without_first(plan, first) for plan in agree]


def _without_first(plan: _Plan, first: Candidate) -> _Plan:
    gone = set(first.members)
    times = {p: t for p, t in plan.times.items() if p not in gone}
    return _Plan(plan.choices[1:], times, plan.taken, plan.saved - first.seconds, plan.ahead)


def _shares(candidates: Sequence[Sequence[Candidate]]) -> list[float]:
    """Of every op: its share of what the best pattern that holds it saves."""
    share, most = [0.0] * len(candidates), [0.0] * len(candidates)
    for found in (c for at in candidates for c in at):
        for member in found.members:
            if found.seconds > most[member]:
                most[member] = found.seconds
                share[member] = found.seconds / len(found.members)
    return share
