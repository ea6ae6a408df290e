"""A frame as numbers, for planners that look at many sets of its ops.

%a = exp %in; %b = reduce %a; %c = divide %a, %b     ->     users: 0: (1, 2)  1: (2,)  2: ()

A node is an op, or a group of ops that stay together (`grouped`). Free ops (constants) have no edges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from jstitch.ir.graph import Graph, Op
from jstitch.passes.base.plan import Reason, is_free
from jstitch.passes.fuse.plan_layers import partition_reason

Members = tuple[int, ...]
"""Places in the frame of a pattern's ops, ascending, free ops left out."""


@dataclass(frozen=True, eq=False)
class OpGraph:
    """Nodes 0, 1, ... with their edges, for each node in ascending order.

    members: the ops of each node, by place in the frame. before, after: nodes that it reads from, that read
    from it. depth: longest path from a node that reads nothing. fusible: whether patterns may hold it.
    """

    frame: Graph
    members: tuple[Members, ...]
    before: tuple[tuple[int, ...], ...]
    after: tuple[tuple[int, ...], ...]
    depth: tuple[int, ...]
    fusible: tuple[bool, ...]

    def ops(self, members: Iterable[int]) -> list[Op]:
        """The ops at these places of the frame."""
        return [self.frame.ops[place] for place in members]

    def places(self, nodes: Iterable[int]) -> Members:
        """The ops of these nodes."""
        return tuple(sorted(place for n in nodes for place in self.members[n]))


def op_graph(frame: Graph, partition: Callable[[Op], Reason | None] = partition_reason) -> OpGraph:
    """One node per op. partition: why no pattern may hold an op, or None."""
    place = {v: n for n, op in enumerate(frame.ops) if not is_free(op) for v in op.results}
    before = [sorted({place[v] for v in op.uses if v in place}) for op in frame.ops]
    fusible = [not is_free(op) and partition(op) is None for op in frame.ops]
    return _graph(frame, [(n,) for n in range(len(frame.ops))], before, fusible)


def grouped(graph: OpGraph, groups: Sequence[Members]) -> OpGraph:
    """The graph with every group (of ops, by place) as one node, and every other op as its own.

    Raises ValueError when groups wait for each other.
    """
    owner = {place: n for n, members in enumerate(groups) for place in members}
    alone = [n for n in range(len(graph.frame.ops)) if n not in owner]
    owner.update({place: len(groups) + k for k, place in enumerate(alone)})
    members = [*groups, *((place,) for place in alone)]
    before: list[set[int]] = [set() for _ in members]
    for n, sources in enumerate(graph.before):
        before[owner[n]].update(owner[m] for m in sources if owner[m] != owner[n])
    fusible = [all(graph.fusible[place] for place in places) for places in members]
    return _graph(graph.frame, members, [sorted(sources) for sources in before], fusible)


def _graph(
    frame: Graph, members: Sequence[Members], before: Sequence[Sequence[int]], fusible: Sequence[bool]
) -> OpGraph:
    after: list[list[int]] = [[] for _ in members]
    for n, sources in enumerate(before):
        for m in sources:
            after[m].append(n)
    return OpGraph(
        frame,
        tuple(members),
        tuple(map(tuple, before)),
        tuple(map(tuple, after)),
        tuple(_depths(before, after)),
        tuple(fusible),
    )


def _depths(before: Sequence[Sequence[int]], after: Sequence[Sequence[int]]) -> list[int]:
    """Longest paths by Kahn's algorithm."""
    depth, waiting = [0] * len(before), [len(sources) for sources in before]
    ready = [n for n, count in enumerate(waiting) if count == 0]
    done = 0
    while ready:
        n = ready.pop()
        done += 1
        for m in after[n]:
            depth[m] = max(depth[m], depth[n] + 1)
            waiting[m] -= 1
            if waiting[m] == 0:
                ready.append(m)
    if done < len(before):
        raise ValueError(f"Expected an acyclic graph, found {len(before) - done} nodes on or behind cycles.")
    return depth
