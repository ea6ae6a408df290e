"""Every DAG of a few ops, and what can be selected on it by brute force: the oracle of the planners."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from random import Random

from jstitch.ir.graph import Graph, Op, Value
from jstitch.passes.explore.op_graph import Members
from tests.passes.random_dags import MATRIX

Dag = tuple[int, ...]
"""For each node the nodes that it reads from, as bits; all of them smaller than itself."""


@cache
def dags(size: int) -> tuple[Dag, ...]:
    """Every DAG of so many nodes up to isomorphism: each has a sink, without which it is a smaller one."""
    if size == 0:
        return ((),)
    found: dict[Dag, Dag] = {}
    for smaller in dags(size - 1):
        for before in range(1 << (size - 1)):
            dag = (*smaller, before)
            found.setdefault(_canonical(dag), dag)
    return tuple(found.values())


def with_a_sink(size: int) -> Iterator[Dag]:
    """Every DAG of so many nodes, some of them more than once."""
    for smaller in dags(size - 1):
        for before in range(1 << (size - 1)):
            yield (*smaller, before)


def _canonical(dag: Dag) -> Dag:
    """The smallest relabelling; nodes are only exchanged with nodes of the same degrees."""
    out = [sum(before >> n & 1 for before in dag) for n in range(len(dag))]
    kind = [(before.bit_count(), out[n]) for n, before in enumerate(dag)]
    classes = [[n for n in range(len(dag)) if kind[n] == k] for k in sorted(set(kind))]
    orders = itertools.product(*map(itertools.permutations, classes))
    return min(_relabelled(dag, [n for part in order for n in part]) for order in orders)


def _relabelled(dag: Dag, order: Sequence[int]) -> Dag:
    new = {n: k for k, n in enumerate(order)}
    return tuple(sum(1 << new[m] for m in new if dag[n] >> m & 1) for n in order)


def is_connected(dag: Dag, nodes: int | None = None) -> bool:
    """Whether these nodes (bits; None = all) hang together when edges have no direction."""
    nodes = (1 << len(dag)) - 1 if nodes is None else nodes
    reached, last = nodes & -nodes, 0
    while reached != last:
        last = reached
        for n, before in enumerate(dag):
            if nodes >> n & 1 and (reached >> n & 1 or reached & before):
                reached |= (1 << n) | (before & nodes)
    return reached == nodes


def connected_dags(size: int) -> list[Dag]:
    return [dag for dag in dags(size) if is_connected(dag)]


def is_acyclic(dag: Dag, groups: Sequence[int]) -> bool:
    """Whether the DAG stays one when each group of nodes (bits) becomes one node."""
    alone = ((1 << n) for n in range(len(dag)) if not any(g >> n & 1 for g in groups))
    left = [*groups, *alone]
    while left:
        waiting = 0
        for g in left:
            waiting |= g
        ready = [g for g in left if not _reads(dag, g) & waiting & ~g]
        if not ready:
            return False
        left = [g for g in left if g not in ready]
    return True


def _reads(dag: Dag, nodes: int) -> int:
    read = 0
    for n, before in enumerate(dag):
        if nodes >> n & 1:
            read |= before
    return read


def patterns(dag: Dag) -> list[int]:
    """Every connected convex set of nodes, as bits."""
    sets = range(1, 1 << len(dag))
    return [s for s in sets if is_connected(dag, s) and is_acyclic(dag, (s,))]


def best_total(
    dag: Dag, scores: Mapping[int, float], charges: Mapping[int, float] | None = None
) -> tuple[float, tuple[int, ...]]:
    """The highest sum over all acyclic choices of disjoint sets, and that choice.

    charges: node -> lost when a chosen set reads it and none holds it.
    """
    charges = charges or {}
    best: tuple[float, tuple[int, ...]] = (0.0, ())
    useful = [s for s in scores if scores[s] > 0]

    def visit(first: int, chosen: tuple[int, ...], held: int, total: float) -> None:
        nonlocal best
        lost = sum(c for n, c in charges.items() if (_reads(dag, held) & ~held) >> n & 1)
        if total - lost > best[0] and is_acyclic(dag, chosen):
            best = total - lost, chosen
        for k in range(first, len(useful)):
            if not useful[k] & held:
                visit(k + 1, (*chosen, useful[k]), held | useful[k], total + scores[useful[k]])

    visit(0, (), 0, 0.0)
    return best


def members(nodes: int) -> Members:
    return tuple(n for n in range(nodes.bit_length()) if nodes >> n & 1)


def frame_of(dag: Dag) -> Graph:
    """Op n reads the ops of dag[n]; an op that reads none reads the input."""
    x = Value(MATRIX)
    results = [Value(MATRIX) for _ in dag]
    ops = []
    for n, before in enumerate(dag):
        operands = tuple(results[m] for m in members(before)) or (x,)
        ops.append(Op("stablehlo.add", operands, (results[n],)))
    used = 0
    for before in dag:
        used |= before
    outputs = (v for n, v in enumerate(results) if not used >> n & 1)
    return Graph((x,), tuple(ops), tuple(outputs))


def random_scores(dag: Dag, random: Random) -> dict[int, float]:
    """Large patterns save more, most of the time, so that cycles are tempting."""
    return {s: random.uniform(-0.5, 1.5) * s.bit_count() for s in patterns(dag)}
