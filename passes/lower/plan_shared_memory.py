"""Shared-memory planning: who gets bytes, who shares them, who is recomputed (FS-2018 section 5.1).

    emission order      requests               offsets (dominance-tree sharing)
    max   = reduce      max 4 B, must          max 0..4
    exp                 exp 512 B, expensive   exp 64..576
    sum   = reduce      sum 4 B, must          sum 0..4       exp dominates max: nobody reads max after it
    div   -> dot        div 512 B, into dot    div 64..576    div dominates exp and reads it in place

A value without bytes is inlined: computed again inside each of its readers, which then read its operands.
When the requests do not fit, values are inlined in the order of `Priority`, the one nearest to the outputs
first. Used for a block's arena on a GPU and for a task's cache-resident scratch on a CPU alike.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from jstitch.ir.node_graph import immediate_dominators

Node = TypeVar("Node", bound=Hashable)


class Priority(enum.IntEnum):
    """Who keeps its bytes longest: the smallest."""

    MUST = 0  # a reduction or contraction that is not an output
    EXPENSIVE_INTO_DOT = 1
    EXPENSIVE_SHARED = 2
    LIGHT_SHARED = 3


@dataclass(frozen=True)
class Request:
    """What a value asks for. No bytes: a point in the order that ends the life of what it reads."""

    nbytes: int
    priority: Priority


@dataclass(frozen=True)
class Stages(Generic[Node]):
    """A pattern as the planner sees it.

    order: nodes in emission order, producers first. edges: (producer, consumer). outputs: nodes written to
    global memory (always computed); nodes without consumers count as outputs. in_place: pairs (operand,
    node) where `node` may overwrite `operand` while it reads it, element by element.
    """

    order: tuple[Node, ...]
    edges: tuple[tuple[Node, Node], ...]
    outputs: frozenset[Node] = frozenset()
    in_place: frozenset[tuple[Node, Node]] = frozenset()


@dataclass(frozen=True)
class SharedMemoryPlan(Generic[Node]):
    """offsets: byte offset per node that has a buffer. nbytes: peak. dropped: requests given up, in that
    order, to be recomputed. shares: node -> the node whose buffer it takes over."""

    offsets: Mapping[Node, int]
    nbytes: int
    dropped: tuple[Node, ...]
    shares: Mapping[Node, Node]


@dataclass(frozen=True)
class DoesNotFit(Generic[Node]):
    """Even with everything else recomputed, these requests need `nbytes` > `budget`: fuse less."""

    remaining: Mapping[Node, int]
    nbytes: int
    budget: int

    def __str__(self) -> str:
        needs = ", ".join(f"{node}: {n} B" for node, n in self.remaining.items())
        return f"shared memory: {self.nbytes} B needed, {self.budget} B allowed, after shrinking ({needs})"


def plan_shared_memory(
    stages: Stages[Node],
    requests: Mapping[Node, Request],
    budget: int,
    *,
    alignment: int = 16,
    share: bool = True,
    span: Mapping[Node, int] | None = None,
) -> SharedMemoryPlan[Node] | DoesNotFit[Node]:
    """Give every request an offset below `budget`, or inline it, or say what does not fit.

    span: distance to the outputs, for ties (worked out from the edges when not given).
    Raises ValueError when `stages.order` is not topological or a request names an unknown node.
    """
    _check(stages, requests)
    dominators = _post_dominators(stages)
    spans = span or _spans(stages)
    kept, dropped = dict(requests), list[Node]()
    candidates = _shrink_order(stages, requests, spans)
    while True:
        offsets, peak, shares = _allocate(stages, kept, dominators, alignment, share)
        if peak <= budget:
            return SharedMemoryPlan(offsets, peak, tuple(dropped), shares)
        if not candidates:
            return DoesNotFit({n: r.nbytes for n, r in kept.items()}, peak, budget)
        dropped.append(candidates.pop(0))
        del kept[dropped[-1]]


def _check(stages: Stages[Node], requests: Mapping[Node, Request]) -> None:
    place = {node: i for i, node in enumerate(stages.order)}
    for a, b in stages.edges:
        if place[a] >= place[b]:
            raise ValueError(f"Expected '{a}' before its consumer '{b}' in the emission order.")
    unknown = [n for n in requests if n not in place]
    if unknown:
        raise ValueError(f"Requests for nodes that are not in the emission order: {unknown}.")


def _shrink_order(
    stages: Stages[Node], requests: Mapping[Node, Request], spans: Mapping[Node, int]
) -> list[Node]:
    """Least important first; among equals the one nearest to the outputs, then the last emitted."""
    free = [n for n in reversed(stages.order) if n in requests and requests[n].priority != Priority.MUST]
    return sorted(free, key=lambda n: (-requests[n].priority, spans[n]))


def _spans(stages: Stages[Node]) -> dict[Node, int]:
    spans = dict.fromkeys(stages.order, 0)
    users = _users(stages)
    for node in reversed(stages.order):
        spans[node] = max((spans[u] + 1 for u in users[node]), default=0)
    return spans


def _users(stages: Stages[Node]) -> dict[Node, list[Node]]:
    users: dict[Node, list[Node]] = {node: [] for node in stages.order}
    for a, b in stages.edges:
        users[a].append(b)
    return users


class _Sink:
    """The virtual root behind all outputs."""


def _post_dominators(stages: Stages[Node]) -> dict[Node, Node]:
    """The nearest node that all paths from a node to the outputs go through; absent when there is none."""
    users, sink = _users(stages), _Sink()
    flow: list[tuple[Node | _Sink, Node | _Sink]] = [(b, a) for a, b in stages.edges]
    flow += [(sink, n) for n in stages.order if n in stages.outputs or not users[n]]
    parent = immediate_dominators(sink, flow)
    return {n: above for n in stages.order if not isinstance(above := parent[n], _Sink)}


def _releases(dominators: Mapping[Node, Node], buffered: Collection[Node]) -> dict[Node, Node]:
    """The node after which nobody reads a buffer: its nearest dominator that has a buffer itself.

    Whoever comes later reads that one instead; a dominator that is inlined hands the reads on.
    """
    found: dict[Node, Node] = {}
    for node in buffered:
        above = dominators.get(node)
        while above is not None and above not in buffered:
            above = dominators.get(above)
        if above is not None:
            found[node] = above
    return found


@dataclass(frozen=True)
class _Reads(Generic[Node]):
    """The buffers a node's evaluation reads: its operands' own, and those its inlined operands read."""

    direct: frozenset[Node] = frozenset()
    through: frozenset[Node] = frozenset()

    @property
    def all(self) -> frozenset[Node]:
        return self.direct | self.through


def _read_buffers(stages: Stages[Node], buffered: Collection[Node]) -> dict[Node, _Reads[Node]]:
    operands: dict[Node, list[Node]] = {node: [] for node in stages.order}
    for a, b in stages.edges:
        operands[b].append(a)
    reads: dict[Node, _Reads[Node]] = {}
    for node in stages.order:
        direct = frozenset(a for a in operands[node] if a in buffered)
        through = frozenset[Node]().union(*(reads[a].all for a in operands[node] if a not in buffered))
        reads[node] = _Reads(direct, through)
    return reads


@dataclass
class _Slot(Generic[Node]):
    offset: int
    nbytes: int
    owner: Node


def _allocate(
    stages: Stages[Node],
    requests: Mapping[Node, Request],
    dominators: Mapping[Node, Node],
    alignment: int,
    share: bool,
) -> tuple[dict[Node, int], int, dict[Node, Node]]:
    """Offsets in emission order: the smallest slot that may be taken over, else a new one at the end."""
    reads = _read_buffers(stages, requests)
    releases = _releases(dominators, requests)
    slots: list[_Slot[Node]] = []
    offsets: dict[Node, int] = {}
    shares: dict[Node, Node] = {}
    end = 0
    for node in (n for n in stages.order if n in requests):
        need = -(-requests[node].nbytes // alignment) * alignment
        free = [
            s
            for s in slots
            if s.nbytes >= need > 0 and _is_free(s.owner, node, offsets, releases, reads, stages)
        ]
        slot = _best(free, reads[node]) if share else None
        if slot is None:
            slot = _Slot(end, need, node)
            slots.append(slot)
            end += need
        else:
            shares[node], slot.owner = slot.owner, node
        offsets[node] = slot.offset
    return offsets, end, shares


def _is_free(
    owner: Node,
    node: Node,
    emitted: Collection[Node],
    releases: Mapping[Node, Node],
    reads: Mapping[Node, _Reads[Node]],
    stages: Stages[Node],
) -> bool:
    """Whether `node`, about to be emitted, may take over the owner's buffer."""
    release = releases.get(owner)
    if release is None or release in emitted:
        return release is not None
    return release == node and (owner not in reads[node].all or _overwrites(owner, node, reads[node], stages))


def _best(free: Collection[_Slot[Node]], reads: _Reads[Node]) -> _Slot[Node] | None:
    """The smallest; among equals one that is overwritten in place, which is in the nearest cache."""
    return min(free, key=lambda s: (s.nbytes, s.owner not in reads.direct, s.offset), default=None)


def _overwrites(operand: Node, node: Node, reads: _Reads[Node], stages: Stages[Node]) -> bool:
    """In place is safe when the declared edge is the only way `node` reads the operand."""
    return (operand, node) in stages.in_place and operand not in reads.through
