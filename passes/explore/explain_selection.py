"""A reason for every edge that a selection of patterns leaves unfused.

exp -> reduce     ->     selection: the best of 4 patterns with both saves 3.10 us, those chosen instead 5.60
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from jstitch.passes.base.plan import NoFuse, Reason
from jstitch.passes.explore.op_graph import OpGraph
from jstitch.passes.explore.select_patterns import Selection
from jstitch.passes.explore.solve_program import Problem
from jstitch.passes.fuse.plan_layers import partition_reason
from jstitch.passes.fuse.trim_patterns import MOVES, moves_data
from jstitch.passes.fuse.ways_between import Ways, waits


def explain_selection(problem: Problem, selection: Selection) -> Iterator[NoFuse]:
    """One `NoFuse` for each edge whose ops are not in one chosen pattern."""
    graph, holders = problem.graph, dict[int, list[int]]()
    for n, members in enumerate(problem.patterns):
        for place in members:
            holders.setdefault(place, []).append(n)
    owner = {place: n for n in selection.chosen for place in problem.patterns[n]}
    frame = graph.frame
    ways = Ways(frame, {frame.ops[place]: n for place, n in owner.items()})
    for consumer, sources in enumerate(graph.before):
        for producer in sources:
            if producer in owner and owner[producer] == owner.get(consumer):
                continue
            both = sorted({*holders.get(producer, ())} & {*holders.get(consumer, ())})
            ends = frame.ops[producer], frame.ops[consumer]
            why = _partition(graph, producer, consumer)
            if why is None and not both and (between := ways.between(*ends)) is not None:
                why = waits(between)
            if why is None and not both and consumer not in owner and moves_data(ends[1]):
                why = MOVES
            yield NoFuse(*ends, why or _why(problem, both, owner, selection))


def _partition(graph: OpGraph, producer: int, consumer: int) -> Reason | None:
    reasons = (partition_reason(op) for op in graph.ops((consumer, producer)))
    return next((r for r in reasons if r is not None), None)


def _why(problem: Problem, both: Sequence[int], owner: Mapping[int, int], selection: Selection) -> Reason:
    """Why none of the candidates `both`, which hold both ops, was chosen."""
    if not both:
        return Reason("candidates", "{found} of the patterns that were explored hold both", 0)
    scores = problem.scores
    best = max(both, key=scores.__getitem__)
    found = scores[best] * 1e6
    saves = f"the best of {len(both)} patterns with both saves {{found}} us"
    if found <= 0:
        return Reason("score", f"{saves}, more than {{bound}} is wanted", found, 0)
    if any(best in cut for cut in selection.cuts):
        return Reason("cycle", f"{saves}, and waits for others that it would be chosen with", found)
    rivals = {owner[place] for place in problem.patterns[best] if place in owner}
    instead = sum(scores[n] for n in rivals) * 1e6
    return Reason("selection", f"{saves}, those chosen instead {{bound}} us", found, instead)
