"""Joining nodes finds what networkx finds, and keeps its order a topological one."""

from __future__ import annotations

from itertools import combinations
from random import Random

import networkx as nx
import pytest

from jstitch.passes.fuse import joined_nodes
from jstitch.passes.fuse.joined_nodes import JoinedNodes

NODES = 24


def random_dag(random: Random) -> nx.DiGraph[int]:
    """Edges from later numbers to earlier ones too, so that the order has to be found."""
    numbers = random.sample(range(NODES), NODES)
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_nodes_from(range(NODES))
    pairs = combinations(numbers, 2)
    graph.add_edges_from(pair for pair in pairs if random.random() < 0.1)
    return graph


def inner_nodes(graph: nx.DiGraph[int], a: int, b: int) -> set[int]:
    """Those on a way from one to the other."""
    ways = ((a, b), (b, a))
    return {n for start, end in ways for n in nx.descendants(graph, start) & nx.ancestors(graph, end)}


def joined(graph: nx.DiGraph[int], a: int, b: int, number: int) -> nx.DiGraph[int]:
    names = {a: number, b: number}
    graph = nx.relabel_nodes(graph, names)
    graph.remove_edges_from(list(nx.selfloop_edges(graph)))
    return graph


@pytest.mark.parametrize("seed", range(30))
def test_like_networkx(seed: int) -> None:
    random = Random(seed)
    graph = random_dag(random)
    nodes = JoinedNodes(range(NODES), graph.edges)
    joins = 0
    for number in range(NODES, 3 * NODES):
        if len(graph) < 2:
            break
        a, b = random.sample(sorted(graph), 2)
        expected, found = inner_nodes(graph, a, b), nodes.between(a, b)
        assert found in expected if expected else found is None
        if found is None:
            nodes.join(a, b, number)
            graph = joined(graph, a, b, number)
            assert nx.is_directed_acyclic_graph(graph)
            joins += 1
    assert joins > 5


def test_a_search_that_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then something is said to be between them."""
    chain = [(n, n + 1) for n in range(9)]
    wide = [(0, n) for n in range(1, 9)]
    nodes = JoinedNodes(range(11), [*chain, *wide, (10, 9)])
    assert nodes.between(0, 10) is None
    assert nodes.between(0, 9) is not None
    monkeypatch.setattr(joined_nodes, "SEARCH", 0)
    other = JoinedNodes([0, 1, 2, 3], [(0, 1), (2, 3)])
    assert other.between(0, 3) == 1


def test_cycles_are_no_error() -> None:
    nodes = JoinedNodes(range(4), [(0, 1), (1, 0), (1, 2), (2, 3), (3, 3)])
    assert nodes.between(0, 2) in (1, None)
    nodes.join(2, 3, 4)
    assert nodes.between(0, 4) in (1, None)
