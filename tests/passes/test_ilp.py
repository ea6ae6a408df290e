"""B3: the integer program against brute force, its cycle cuts, and its bounds."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from jstitch.passes.explore.contracted_cycles import Contraction
from jstitch.passes.explore.op_graph import Members, op_graph
from jstitch.passes.explore.select_patterns import Selection, SelectOptions, greedy, select_patterns
from jstitch.passes.explore.solve_program import Problem
from tests.passes import small_dags
from tests.passes.small_dags import Dag, best_total


def problem_of(dag: Dag, seed: int) -> tuple[Problem, dict[int, float], dict[int, float]]:
    """All convex connected patterns with random scores; every other time with random charges, too."""
    random = Random(seed)
    scores = small_dags.random_scores(dag, random)
    charges = {n: random.uniform(0, 1) for n in range(len(dag)) if random.random() < 0.5} if seed % 2 else {}
    graph = op_graph(small_dags.frame_of(dag))
    patterns = [small_dags.members(s) for s in scores]
    return Problem(graph, patterns, list(scores.values()), charges), scores, charges


def selected(problem: Problem, selection: Selection) -> tuple[float, tuple[int, ...]]:
    sets = (sum(1 << place for place in problem.patterns[n]) for n in selection.chosen)
    return problem.total(selection.chosen), tuple(sets)


def differs(dag: Dag, seed: int) -> str | None:
    """What is wrong with the selection, by brute force."""
    problem, scores, charges = problem_of(dag, seed)
    selection = select_patterns(problem)
    total, chosen = selected(problem, selection)
    best, _ = best_total(dag, scores, charges)
    if sum(s.bit_count() for s in chosen) != len({n for s in chosen for n in small_dags.members(s)}):
        return "overlap"
    if not small_dags.is_acyclic(dag, chosen):
        return "cycle"
    if not selection.optimal:
        return "not optimal"
    return None if abs(total - best) < 1e-6 else f"{total} instead of {best}"


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_the_program_is_as_good_as_brute_force(size: int) -> None:
    """On every connected DAG, over all selections of all convex connected patterns."""
    for seed, dag in enumerate(small_dags.connected_dags(size)):
        assert differs(dag, seed) is None, dag


def test_the_program_is_as_good_as_brute_force_on_some_of_six_ops() -> None:
    dags = small_dags.with_a_sink(6)
    some = [dag for n, dag in enumerate(dags) if n % 97 == 0 and small_dags.is_connected(dag)]
    assert len(some) > 50
    for seed, dag in enumerate(some):
        assert differs(dag, seed) is None, dag


@pytest.mark.slow
@pytest.mark.parametrize("shard", range(50))
@pytest.mark.parametrize("size", [6, 7])
def test_the_program_is_as_good_as_brute_force_on_larger_dags(size: int, shard: int) -> None:
    for seed, dag in enumerate(small_dags.with_a_sink(size)):
        if seed % 50 == shard and small_dags.is_connected(dag):
            assert differs(dag, seed) is None, dag


@pytest.mark.parametrize(
    ("part", "broken", "what"),
    [
        ("solve_program._disjoint", lambda holders: (), "overlap"),
        ("contracted_cycles.Contraction.cycles", lambda self, chosen: [], "cycle"),
        ("solve_program._asked", lambda *_: (), "instead of"),
    ],
)
def test_brute_force_catches_a_program_without(
    part: str, broken: Callable[..., object], what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"jstitch.passes.explore.{part}", broken)
    found = {differs(dag, seed) for seed, dag in enumerate(small_dags.connected_dags(5))}
    assert any(f is not None and what in f for f in found)


# -- cycles ---------------------------------------------------------------------------------------------

FIGURE_3 = (0b000, 0b001, 0b011)  # a -> b -> c, a -> c


def test_figure_3_takes_the_cut() -> None:
    """Fusing a and c around b is the best of all, and impossible."""
    graph = op_graph(small_dags.frame_of(FIGURE_3))
    problem = Problem(graph, [(0, 2), (0, 1), (1, 2)], [5.0, 2.0, 3.0])
    assert select_patterns(problem) == Selection((2,), (frozenset({0}),))


def test_two_patterns_that_wait_for_each_other_take_the_cut() -> None:
    """a -> b, c -> d: {a, d} and {b, c} are fine apart."""
    graph = op_graph(small_dags.frame_of((0, 0b1, 0, 0b100)))
    problem = Problem(graph, [(0, 3), (1, 2), (0, 1)], [5.0, 4.0, 2.0])
    assert select_patterns(problem) == Selection((0,), (frozenset({0, 1}),))


def test_programs_that_meet_on_a_cycle_are_solved_together() -> None:
    """The second best of either program breaks the cycle; the cheaper way is taken."""
    graph = op_graph(small_dags.frame_of((0, 0b1, 0, 0b100)))
    patterns: list[Members] = [(0, 3), (0,), (1, 2), (1,)]
    assert select_patterns(Problem(graph, patterns, [5.0, 4.5, 4.0, 1.0])).chosen == (1, 2)
    assert select_patterns(Problem(graph, patterns, [5.0, 1.0, 4.0, 3.5])).chosen == (0, 3)


def test_a_charge_is_for_what_nobody_makes() -> None:
    graph = op_graph(small_dags.frame_of((0, 0b1)))
    patterns: list[Members] = [(0,), (1,)]
    assert select_patterns(Problem(graph, patterns, [0.5, 2.0], {0: 3.0})).chosen == (0, 1)
    assert select_patterns(Problem(graph, patterns[1:], [2.0], {0: 3.0})).chosen == ()
    assert select_patterns(Problem(graph, patterns[1:], [2.0], {0: 1.0})).chosen == (0,)


@pytest.mark.parametrize("options", [SelectOptions(seconds=0), SelectOptions(rounds=0)])
@pytest.mark.parametrize("seed", range(10))
def test_a_search_that_ends_early_is_valid_and_no_worse_than_what_was_known(
    seed: int, options: SelectOptions
) -> None:
    dag = small_dags.connected_dags(5)[seed * 25]
    problem, _, _ = problem_of(dag, seed)
    contraction = Contraction(problem.graph, problem.patterns)
    known = [n for n in problem.useful if len(problem.patterns[n]) == 1]
    selection = select_patterns(problem, [known], options)
    best = max(problem.total(known), problem.total(greedy(problem, contraction)))
    total, chosen = selected(problem, selection)
    assert total >= best
    assert small_dags.is_acyclic(dag, chosen)
    assert len({n for s in chosen for n in small_dags.members(s)}) == sum(s.bit_count() for s in chosen)
