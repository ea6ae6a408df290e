"""Cycles among patterns once each of them is one node.

a -> b -> c, a -> c      {a, c} chosen     ->     the cycle {a, c} -> b -> {a, c}: [{0}]
a -> b, c -> d           {a, d}, {b, c}    ->     {a, d} -> {b, c} -> {a, d}: [{0, 1}]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from jstitch.passes.explore.op_graph import Members, OpGraph

MOST_CYCLES = 8  # reported of one tangle of patterns at a time


@dataclass(eq=False)
class Contraction:
    """What `graph` (one node per op) looks like with some of `patterns` contracted."""

    graph: OpGraph
    patterns: Sequence[Members]
    sources: np.ndarray = field(init=False)
    targets: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        edges = [(n, m) for n, users in enumerate(self.graph.after) for m in users]
        self.sources, self.targets = np.array(edges, np.int64).reshape(-1, 2).T

    def cycles(self, chosen: Sequence[int]) -> list[frozenset[int]]:
        """Short cycles, as the numbers of the chosen patterns on them; [] when there is none."""
        found: dict[frozenset[int], None] = {}
        for tangle in self._tangles(chosen):
            found.update(dict.fromkeys(tangle.cycles()))
        return list(found)

    def waiting(self, chosen: Sequence[int]) -> set[int]:
        """The chosen patterns that are on cycles."""
        return {n for tangle in self._tangles(chosen) for n in tangle.patterns}

    def _tangles(self, chosen: Sequence[int]) -> Iterator[_Tangle]:
        """Strongly connected components of more than one node; all their nodes are on cycles."""
        size = len(self.graph.members)
        node = np.arange(size)
        for n in chosen:
            node[list(self.patterns[n])] = size + n
        a, b = node[self.sources], node[self.targets]
        kept = a != b
        a, b = a[kept], b[kept]
        names, short = np.unique(np.concatenate([a, b]), return_inverse=True)
        a, b = short[: len(a)], short[len(a) :]
        matrix = csr_array((np.ones(len(a), np.int8), (a, b)), shape=(len(names), len(names)))
        count, label = connected_components(matrix, directed=True, connection="strong")
        if count == len(names):
            return
        inside = label[a] == label[b]
        by_label: dict[int, dict[int, list[int]]] = {}
        for u, v in zip(a[inside].tolist(), b[inside].tolist(), strict=True):
            by_label.setdefault(int(label[u]), {}).setdefault(int(names[u]), []).append(int(names[v]))
        for edges in by_label.values():
            yield _Tangle({u: sorted(set(vs)) for u, vs in edges.items()}, size)


@dataclass(frozen=True, eq=False)
class _Tangle:
    """A strongly connected part: node -> nodes that read from it. Nodes from `first` on are patterns."""

    after: dict[int, list[int]]
    first: int

    @property
    def patterns(self) -> list[int]:
        return [n - self.first for n in sorted(self.after) if n >= self.first]

    def cycles(self) -> Iterator[frozenset[int]]:
        """A shortest cycle through each of the first few patterns."""
        for n in self.patterns[:MOST_CYCLES]:
            yield frozenset(m - self.first for m in self._shortest(n + self.first) if m >= self.first)

    def _shortest(self, start: int) -> list[int]:
        came_from = {m: start for m in self.after[start]}
        todo = list(came_from)
        for n in todo:
            if n == start:
                break
            for m in self.after[n]:
                if m not in came_from:
                    came_from[m] = n
                    todo.append(m)
        path = [start]
        while (step := came_from[path[-1]]) != start:
            path.append(step)
        return path
