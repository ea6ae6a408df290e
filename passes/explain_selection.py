"""A reason for every edge that a selection of patterns leaves unfused.

exp -> reduce     ->     selection: the best of 4 patterns with both saves 3.10 us, those chosen instead 5.60
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from jstitch.passes.op_graph import OpGraph
from jstitch.passes.plan import NoFuse
from jstitch.passes.plan_layers import partition_reason
from jstitch.passes.select_patterns import Selection
from jstitch.passes.solve_program import Problem


def explain_selection(problem: Problem, selection: Selection) -> Iterator[NoFuse]:
    """One `NoFuse` for each edge whose ops are not in one chosen pattern."""
    graph, holders = problem.graph, dict[int, list[int]]()
    for n, members in enumerate(problem.patterns):
        for place in members:
            holders.setdefault(place, []).append(n)
    owner = {place: n for n in selection.chosen for place in problem.patterns[n]}
    for consumer, sources in enumerate(graph.before):
        for producer in sources:
            if producer in owner and owner[producer] == owner.get(consumer):
                continue
            both = sorted({*holders.get(producer, ())} & {*holders.get(consumer, ())})
            why = _partition(graph, producer, consumer) or _why(problem, both, owner, selection)
            yield NoFuse(graph.frame.ops[producer], graph.frame.ops[consumer], *why)


def _partition(graph: OpGraph, producer: int, consumer: int) -> tuple[str, str] | None:
    reasons = (partition_reason(op) for op in graph.ops((consumer, producer)))
    reason = next((r for r in reasons if r is not None), None)
    return None if reason is None else ("partition", reason)


def _why(
    problem: Problem, both: Sequence[int], owner: Mapping[int, int], selection: Selection
) -> tuple[str, str]:
    """Why none of the candidates `both`, which hold both ops, was chosen."""
    if not both:
        return "candidates", "no explored pattern holds both"
    scores = problem.scores
    best = max(both, key=scores.__getitem__)
    saves = f"the best of {len(both)} patterns with both saves {scores[best] * 1e6:.2f} us"
    if scores[best] <= 0:
        return "score", saves
    if any(best in cut for cut in selection.cuts):
        return "cycle", f"{saves}, and waits for others that it would be chosen with"
    rivals = {owner[place] for place in problem.patterns[best] if place in owner}
    return "selection", f"{saves}, those chosen instead {sum(scores[n] for n in rivals) * 1e6:.2f} us"
