"""Nodes of an acyclic graph that are joined two by two, never so that a cycle arises.

a -> b -> c, a -> c     ->     b is between a and c; a and b may become one node

The nodes are kept in a topological order, so that a search for what is between two of them looks at nothing
outside the places from one to the last that the other waits for; joining two reorders only what a search
found there (Pearce and Kelly, "A dynamic topological sort algorithm for directed acyclic graphs", 2007).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping

SEARCH = 2000  # nodes looked at for a way; then there is said to be one

_Edges = dict[int, set[int]]


class JoinedNodes:
    """nodes: numbers. edges: (from, to), those of a node to itself are ignored. Cycles stay what they are."""

    def __init__(self, nodes: Iterable[int], edges: Iterable[tuple[int, int]]) -> None:
        self._successors: _Edges = {n: set() for n in nodes}
        self._predecessors: _Edges = {n: set() for n in self._successors}
        for a, b in edges:
            if a != b:
                self._successors[a].add(b)
                self._predecessors[b].add(a)
        self._place = _topological(self._successors, self._predecessors)

    def between(self, a: int, b: int) -> int | None:
        """A node on a way from one to the other (or where the search was given up), or None."""
        start, end = sorted((a, b), key=self._place.__getitem__)
        first, past = self._place[start], self._place[end]
        last = max((p for n in self._predecessors[end] if (p := self._place[n]) < past), default=first)
        todo = [n for n in self._successors[start] if self._place[n] <= last]
        seen = set(todo)
        while todo:
            node = todo.pop()
            successors = self._successors[node]
            if end in successors or len(seen) > SEARCH:
                return node
            new = [n for n in successors if n not in seen and self._place[n] <= last]
            seen.update(new)
            todo += new
        return None

    def join(self, a: int, b: int, joined: int) -> None:
        """Two nodes that nothing is between become one with a number of its own."""
        start, end = sorted((a, b), key=self._place.__getitem__)
        self._reorder(start, end, joined)
        pairs = (self._successors, self._predecessors), (self._predecessors, self._successors)
        for table, back in pairs:
            table[joined] = (table[a] | table[b]) - {a, b}
            for n in table[joined]:
                back[n] -= {a, b}
                back[n].add(joined)
        for old in (a, b):
            del self._successors[old], self._predecessors[old], self._place[old]

    def _reorder(self, start: int, end: int, joined: int) -> None:
        """What `end` waits for, then the joined node, then what waits for `start`, in the places of all."""
        before = self._within(start, end, end, self._predecessors)
        after = self._within(start, end, start, self._successors)
        places = sorted(self._place[n] for n in (*before, start, end, *after))
        self._place.update(zip((*before, joined), places, strict=False))
        self._place.update(zip(after, places[len(before) + 2 :], strict=True))

    def _within(self, start: int, end: int, origin: int, table: _Edges) -> list[int]:
        """What is reached from one of two nodes, and has its place between theirs, in order."""
        first, last = self._place[start], self._place[end]
        todo, seen = [origin], set[int]()
        while todo:
            new = [n for n in table[todo.pop()] if n not in seen and first < self._place[n] < last]
            seen.update(new)
            todo += new
        return sorted(seen, key=self._place.__getitem__)


def _topological(successors: Mapping[int, set[int]], predecessors: Mapping[int, set[int]]) -> dict[int, int]:
    """A place for each node; the given order where nothing speaks against it, and on cycles."""
    given = {node: place for place, node in enumerate(successors)}
    waiting = {node: len(before) for node, before in predecessors.items()}
    ready = [given[node] for node, count in waiting.items() if not count]
    nodes, order = list(given), dict[int, int]()
    heapq.heapify(ready)
    while ready:
        node = nodes[heapq.heappop(ready)]
        order[node] = len(order)
        for after in successors[node]:
            waiting[after] -= 1
            if not waiting[after]:
                heapq.heappush(ready, given[after])
    for node in nodes:
        order.setdefault(node, len(order))
    return order
