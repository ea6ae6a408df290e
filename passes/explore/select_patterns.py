"""Which of many overlapping patterns become kernels: FS-2019's integer program (section 4.1).

    maximise    sum of X_j f(P_j) - sum of Y_o c(o),          X_j in {0, 1}, Y_o >= 0
    subject to  sum of X_j <= 1                               over the patterns that hold an op
                sum of X_j <= their number - 1                over the patterns on a cycle met so far
                sum of X_j - sum of X_k <= Y_o                for every edge o -> u with a charge: P_j hold u,
                                                              not o, and P_k hold o, not u

Figure 3:  a -> b -> c, a -> c:  {a, c} with b outside would wait for b, and b for it.
The program is solved without cycles in mind; a cycle in the contracted frame adds its cut and the program is
solved again. Charges are what the paper leaves out: c(o) is lost when a chosen pattern reads o and no chosen
pattern makes it, but XLA would have fused o into what reads it. Sets of patterns that have nothing to do with
the others are programs of their own; programs whose patterns meet on a cycle become one. One of very many
patterns is solved in slices, in program order, each given the choices before it: near the best, and fast.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from jstitch.passes.explore.contracted_cycles import Contraction
from jstitch.passes.explore.solve_program import Problem, solve


@dataclass(frozen=True)
class SelectOptions:
    """What bounds the search: seconds in all, nodes of one branch-and-bound tree, rounds of cuts, patterns of
    one program."""

    seconds: float = 10.0
    nodes: int = 2000
    rounds: int = 40
    patterns: int = 2000


DEFAULT = SelectOptions()


@dataclass(frozen=True)
class Selection:
    """chosen: numbers of patterns, ascending. cuts: cycles that were ruled out, as pattern numbers.

    optimal: no other acyclic choice scores higher; else the best one found in the bounds.
    """

    chosen: tuple[int, ...]
    cuts: tuple[frozenset[int], ...] = ()
    optimal: bool = True


def select_patterns(
    problem: Problem, incumbents: Sequence[Sequence[int]] = (), options: SelectOptions = DEFAULT
) -> Selection:
    """The choice of disjoint patterns, acyclic together, that saves most.

    Patterns that score 0 or less are never chosen. incumbents: choices known to be disjoint and acyclic; the
    result is never worse than any of them.
    """
    return _Selector(problem, options).run(incumbents)


@dataclass(eq=False)
class _Program:
    """Patterns that no others have to know of, the cycles among them, and the choice."""

    patterns: tuple[int, ...]
    cuts: tuple[frozenset[int], ...] = ()
    chosen: tuple[int, ...] = ()
    optimal: bool = True


@dataclass(eq=False)
class _Selector:
    problem: Problem
    options: SelectOptions
    program_of: dict[int, _Program] = field(default_factory=dict)

    def run(self, incumbents: Sequence[Sequence[int]]) -> Selection:
        problem = self.problem
        self.end = time.monotonic() + self.options.seconds
        self.contraction = Contraction(problem.graph, problem.patterns)
        self.solve([_Program(part) for part in independent(problem)])
        chosen, acyclic = self.cut()
        cuts = tuple(cut for program in self.programs() for cut in program.cuts)
        if acyclic and all(p.optimal for p in self.programs()):
            return Selection(chosen, cuts)
        waiting = () if acyclic else self.contraction.waiting(chosen)
        kept = [n for n in chosen if n not in waiting]
        others = (greedy(problem, self.contraction, start) for start in ((), kept))
        best = max([*incumbents, kept, *others], key=problem.total)
        return Selection(tuple(sorted(best)), cuts, optimal=False)

    def programs(self) -> list[_Program]:
        return list(dict.fromkeys(self.program_of[n] for n in sorted(self.program_of)))

    def chosen(self) -> tuple[int, ...]:
        return tuple(sorted(n for program in self.programs() for n in program.chosen))

    def solve(self, programs: Sequence[_Program]) -> None:
        for program in programs:
            self.program_of.update(dict.fromkeys(program.patterns, program))
            if len(program.patterns) <= self.options.patterns:
                program.chosen, program.optimal = self.solved(program.patterns, program.cuts)
            else:
                program.chosen, program.optimal = self.sliced(program), False

    def solved(self, patterns: Sequence[int], cuts: Sequence[frozenset[int]]) -> tuple[tuple[int, ...], bool]:
        return solve(self.problem, patterns, cuts, self.end - time.monotonic(), self.options.nodes)

    def sliced(self, program: _Program) -> tuple[int, ...]:
        """The choice of a program that is too large to be solved at once."""
        members = self.problem.patterns
        waiting = sorted(program.patterns, key=lambda n: members[n])
        chosen: set[int] = set()
        taken: set[int] = set()
        for first in range(0, len(waiting), self.options.patterns):
            part = waiting[first : first + self.options.patterns]
            free = tuple(n for n in part if taken.isdisjoint(members[n]))
            cuts = (cut & {*free} for cut in program.cuts if cut <= chosen | {*free})
            new, _ = self.solved(free, tuple(cut for cut in cuts if cut))
            chosen.update(new)
            taken.update(place for n in new for place in members[n])
        return tuple(sorted(chosen))

    def cut(self) -> tuple[tuple[int, ...], bool]:
        """The choice after enough cuts, and whether it is acyclic (else the bounds were reached)."""
        chosen = self.chosen()
        for _ in range(self.options.rounds):
            cycles = self.contraction.cycles(chosen)
            if not cycles or time.monotonic() > self.end:
                return chosen, not cycles
            self.solve(self.joined(cycles))
            chosen = self.chosen()
        return chosen, not self.contraction.cycles(chosen)

    def joined(self, cycles: Sequence[frozenset[int]]) -> list[_Program]:
        """The programs that share a cycle, as one each, with the cuts added."""
        changed: dict[_Program, None] = {}
        for cycle in cycles:
            olds = list(dict.fromkeys(self.program_of[n] for n in sorted(cycle)))
            patterns = tuple(sorted(n for old in olds for n in old.patterns))
            new = _Program(patterns, (*(cut for old in olds for cut in old.cuts), cycle))
            self.program_of.update(dict.fromkeys(patterns, new))
            for old in olds:
                changed.pop(old, None)
            changed[new] = None
        return list(changed)


def independent(problem: Problem) -> list[tuple[int, ...]]:
    """The useful patterns in parts: those of different parts share no op, and no charge."""
    leader: dict[int, int] = {}

    def find(n: int) -> int:
        while leader[n] != n:
            leader[n] = n = leader[leader[n]]
        return n

    def join(n: int, m: int) -> None:
        leader[find(n)] = find(m)

    holder: dict[int, int] = {}  # op -> a pattern that holds it
    for n in problem.useful:
        leader[n] = n
        for place in problem.patterns[n]:
            join(holder.setdefault(place, n), n)
    for op in problem.charges:
        tied = [holder[place] for place in (op, *problem.graph.after[op]) if place in holder]
        for n in tied[1:]:
            join(tied[0], n)
    parts: dict[int, list[int]] = {}
    for n in leader:
        parts.setdefault(find(n), []).append(n)
    return [tuple(part) for part in parts.values()]


def greedy(problem: Problem, contraction: Contraction, kept: Iterable[int] = ()) -> list[int]:
    """`kept`, then the best that overlaps nothing before it; of every cycle the worst pattern is left out."""
    scores = problem.scores
    taken: set[int] = set()
    chosen = []
    for n in (*kept, *sorted(problem.useful, key=lambda n: -scores[n])):
        if taken.isdisjoint(problem.patterns[n]):
            taken.update(problem.patterns[n])
            chosen.append(n)
    while cycles := contraction.cycles(chosen):
        worst = {min(cycle, key=lambda n: (scores[n], n)) for cycle in cycles}
        chosen = [n for n in chosen if n not in worst]
    return sorted(chosen)
