"""An order in which nodes can run: users after what they use, otherwise as early as they stand.

0 -> 2, 1 -> 2, standing at 0: 5, 1: 3, 2: 1     ->     [1, 0, 2];   with 2 -> 1 besides     ->     None
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import networkx as nx


def run_order(after: Mapping[int, Iterable[int]], place: Mapping[int, int]) -> list[int] | None:
    """Every node of `place` once, None when some wait for each other. after: node -> those that wait."""
    graph: nx.DiGraph = nx.DiGraph()
    graph.add_nodes_from(place)
    graph.add_edges_from((n, m) for n, users in after.items() for m in users)
    try:
        return list(nx.lexicographical_topological_sort(graph, key=place.__getitem__))
    except nx.NetworkXUnfeasible:
        return None
