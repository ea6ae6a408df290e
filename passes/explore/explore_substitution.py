"""Patterns between partition ops (FS-2019 section 4.2.1, Algorithm 1).

    partition ops: dot      {mul, reduce, sub} dot {add, tanh}        one pattern on each side of the dot
    + row reductions        {mul} reduce {sub} dot {add, tanh}        the reduction, too, stays alone

The ops are sorted topologically; what stands between two consecutive partition ops is a pattern (each
connected piece of it). Step by step more kinds of ops become partition ops, and every step adds patterns for
the selection. Those of one step are cut out of one topological order, so together they never form a cycle.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence

from jstitch.ir.graph import Op
from jstitch.passes.base.row_access import is_reduction
from jstitch.passes.explore.op_graph import Members, OpGraph

Partition = Callable[[Op], bool]
MAX_OPS = 400


class ReductionKind(enum.Enum):
    """Which dimensions a reduction reduces; each wants its own parallelisation."""

    ROW = "minor ones"
    COLUMN = "others"
    SCALAR = "all"


def reduction_kind(op: Op) -> ReductionKind:
    """The kind of a reduction. Dimensions of size 1 do not count."""
    shape = op.operands[0].shape
    kept = [d for d, n in enumerate(shape) if n > 1 and d not in op.attrs["dimensions"]]
    reduced = [d for d, n in enumerate(shape) if n > 1 and d in op.attrs["dimensions"]]
    if not kept:
        return ReductionKind.SCALAR
    return ReductionKind.ROW if not reduced or min(reduced) > max(kept) else ReductionKind.COLUMN


def _reduces(kind: ReductionKind) -> Partition:
    return lambda op: is_reduction(op) and reduction_kind(op) is kind


STEPS: tuple[Partition, ...] = (
    lambda op: False,  # only what no kernel can hold: the contractions among it
    _reduces(ReductionKind.COLUMN),
    _reduces(ReductionKind.SCALAR),
    _reduces(ReductionKind.ROW),
)
"""What each step adds to the partition ops."""


def explore_substitution(
    graph: OpGraph, steps: Sequence[Partition] = STEPS, max_ops: int = MAX_OPS
) -> list[tuple[Members, ...]]:
    """For each step and each of two topological orders: disjoint patterns that are acyclic together.

    The orders put an op as early, and as late, between partition ops as its producers, and users, allow.
    Pieces of more than `max_ops` ops are left to a later step.
    """
    partition = [not fusible for fusible in graph.fusible]
    found = []
    for step in steps:
        kinds = (any(map(step, graph.ops(members))) for members in graph.members)
        partition = [p or kind for p, kind in zip(partition, kinds, strict=True)]
        for levels in (_early(graph, partition), _late(graph, partition)):
            pieces = _pieces(graph, partition, levels)
            found.append(tuple(p for p in pieces if len(p) <= max_ops))
    return list(dict.fromkeys(found))


def _order(graph: OpGraph) -> list[int]:
    return sorted(range(len(graph.depth)), key=graph.depth.__getitem__)


def _early(graph: OpGraph, partition: Sequence[bool]) -> list[int]:
    """For each node, the most partition ops on a path to it."""
    level = [0] * len(partition)
    for n in _order(graph):
        for m in graph.after[n]:
            level[m] = max(level[m], level[n] + partition[n])
    return level


def _late(graph: OpGraph, partition: Sequence[bool]) -> list[int]:
    """For each node, minus the most partition ops on a path from it."""
    level = [0] * len(partition)
    for n in reversed(_order(graph)):
        for m in graph.before[n]:
            level[m] = min(level[m], level[n] - partition[n])
    return level


def _pieces(graph: OpGraph, partition: Sequence[bool], levels: Sequence[int]) -> Iterator[Members]:
    """Connected sets of nodes of one level, without partition ops: what is between two of them.

    No path leads through a partition op back to the level that it started from.
    """
    seen = [*partition]
    for first in range(len(seen)):
        if seen[first]:
            continue
        seen[first], piece = True, [first]
        for n in piece:
            for m in (*graph.before[n], *graph.after[n]):
                if not seen[m] and levels[m] == levels[first]:
                    seen[m] = True
                    piece.append(m)
        yield graph.places(piece)
