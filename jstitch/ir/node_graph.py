"""What NetworkX knows of nodes that hash and their edges: parts, orders, dominators.

Importing it takes a fifth of a second, which a process that plans nothing (`jstitch.frontend.kept_call`) need
not spend: so each function does.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar

N = TypeVar("N", bound=Hashable)


def connected_parts(nodes: Iterable[N], edges: Iterable[tuple[N, N]]) -> list[set[N]]:
    """Nodes that edges connect, whichever way, in the order of the first of each; those of edges, too."""
    import networkx as nx

    graph: nx.Graph[N] = nx.Graph()
    graph.add_nodes_from(nodes)
    graph.add_edges_from(edges)
    return list(nx.connected_components(graph))


def topological_order(
    nodes: Iterable[N], edges: Iterable[tuple[N, N]], key: Callable[[N], Any]
) -> list[N] | None:
    """Each node behind those with an edge to it, otherwise by its key; None when some wait for each other."""
    import networkx as nx

    graph: nx.DiGraph[N] = nx.DiGraph()
    graph.add_nodes_from(nodes)
    graph.add_edges_from(edges)
    try:
        return list(nx.lexicographical_topological_sort(graph, key=key))
    except nx.NetworkXUnfeasible:
        return None


def strong_parts(edges: Iterable[tuple[N, N]]) -> list[set[N]]:
    """Nodes that lead to each other, those of each cycle together; others alone."""
    import networkx as nx

    graph: nx.DiGraph[N] = nx.DiGraph(edges)
    return list(nx.strongly_connected_components(graph))


def immediate_dominators(root: N, edges: Iterable[tuple[N, N]]) -> dict[N, N]:
    """The nearest other node on all paths from the root to each that it leads to."""
    import networkx as nx

    graph: nx.DiGraph[N] = nx.DiGraph()
    graph.add_node(root)
    graph.add_edges_from(edges)
    found: dict[N, N] = nx.immediate_dominators(graph, root)
    return found
