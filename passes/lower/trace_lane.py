"""What a lane's loops compute, given what is kept: its nodes, how many barriers come before each, and who
computes which value in which loops.

    kept: e              m = max(x)          node, depth 0
                         e = exp(x - m)      node, depth 1            x - m: inlined in e's loops
                         y = e / sum(e)      node, depth 2

Three passes over the ops, whatever depends on what.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from jstitch.ir.graph import Op, Value
from jstitch.ir.ops import lookup
from jstitch.passes.base.row_access import data_operands, is_reduction
from jstitch.passes.lower.recompute_cost import PARTIAL

Shape = tuple[int, ...]
Loops = tuple[int, Shape]
"""Loops of a node: after how many barriers, over which shape."""


@dataclass(frozen=True, eq=False)
class Node:
    """Something a lane makes: a reduction, a partial reduction, or a value to store or keep."""

    op: Op
    value: Value

    @property
    def is_partial(self) -> bool:
        return self.op.name == PARTIAL

    @property
    def is_reduction(self) -> bool:
        return is_reduction(self.op)

    @property
    def domain(self) -> Shape:
        """The shape of the tensor that the node's loops run over."""
        return self.op.operands[0].shape if self.is_partial or self.is_reduction else self.value.shape

    @property
    def roots(self) -> tuple[Value, ...]:
        """Values its loops compute; empty for an elementwise node, which computes its own."""
        return self.op.operands if self.is_partial or self.is_reduction else ()


@dataclass(frozen=True, eq=False)
class _Step:
    """An op of the lane, or one that is computed again in it.

    same: its operands that are reached at the very index of its loops; the others are reached anywhere.
    """

    op: Op
    in_lane: bool
    reduces: bool
    same: tuple[Value, ...]
    others: tuple[Value, ...]


@dataclass(frozen=True, eq=False)
class Cone:
    """The ops that a lane is made of, makers first. stored: what it must write."""

    steps: tuple[_Step, ...]
    stored: Collection[Value]


def cone(
    ops: Sequence[Op], producers: Mapping[Value, Op], known: Collection[Value], stored: Collection[Value]
) -> Cone:
    """The ops of a lane and what they are computed from. known: values that are read from memory."""
    own, done = set(ops), dict[Op, None]()
    for op in ops:
        todo = [op]
        while todo:
            makers = (producers.get(v) for v in todo[-1].operands if v not in known)
            waits = [maker for maker in makers if maker is not None and maker not in done]
            if todo[-1] in done or not waits:
                done[todo.pop()] = None
            else:
                todo += waits
    return Cone(tuple(_step(op, op in own, known) for op in done), stored)


def _step(op: Op, in_lane: bool, known: Collection[Value]) -> _Step:
    reduces = in_lane and is_reduction(op)
    same: tuple[Value, ...] = ()
    if reduces or op.name == PARTIAL:
        same = data_operands(op)
    elif lookup(op.name).op_class.is_elementwise:
        same = op.operands
    others = op.operands[len(same) :]
    read = (tuple(v for v in operands if v not in known) for operands in (same, others))
    return _Step(op, in_lane, reduces, *read)


@dataclass(eq=False)
class _Wait:
    """What the loops that compute a value wait for.

    others: barriers before them. same: shape of a kept value read at the very index -> barriers before it.
    """

    others: int = 0
    same: dict[Shape, int] = field(default_factory=dict)

    def take(self, other: _Wait, aligned: bool) -> None:
        self.others = max(self.others, other.others)
        for shape, depth in other.same.items():
            if aligned:
                self.same[shape] = max(self.same.get(shape, 0), depth)
            else:
                self.others = max(self.others, depth + 1)

    def before(self, domain: Shape) -> int:
        """Barriers before loops over that shape."""
        within = (depth + (shape != domain) for shape, depth in self.same.items())
        return max(self.others, *within, 0)


class Trace:
    """The nodes of a lane that keeps these values. users: the loops that compute a value."""

    def __init__(self, cone: Cone, kept: Collection[Value]) -> None:
        self.cone, self.kept = cone, kept
        self.node_of: dict[Value, Node] = {}
        self.depth: dict[Node, int] = {}
        self._loops: list[Loops] = []
        self._users: dict[Value, int] = {}  # bits: numbers of loops
        self._find_nodes()
        self._find_depths()
        self._find_users()

    def users(self, v: Value) -> set[Loops]:
        bits = self._users.get(v, 0)
        return {loops for n, loops in enumerate(self._loops) if bits >> n & 1}

    def _nodes(self, step: _Step) -> list[Node]:
        return [self.node_of[v] for v in step.op.results if v in self.node_of]

    def _stops(self, step: _Step, v: Value) -> bool:
        """Whether loops read the value from the arena rather than compute it."""
        return step.reduces or (step.in_lane and v in self.kept)

    def _find_nodes(self) -> None:
        """What is stored, and of what that reaches, reductions and what is kept."""
        reached: set[Value] = set()
        for step in reversed(self.cone.steps):
            op = step.op
            wanted = [v for v in op.results if v in reached]
            if op.name == PARTIAL and step.in_lane:
                self._node(op, op.results[0])
            for v in op.results if step.in_lane and op.name != PARTIAL else ():
                if v in self.cone.stored or (v in reached and self._stops(step, v)):
                    self._node(op, op.results[0] if step.reduces else v)
            if self._nodes(step) or any(not self._stops(step, v) for v in wanted):
                reached.update(step.same, step.others)

    def _node(self, op: Op, key: Value) -> None:
        self.node_of.setdefault(key, Node(op, key))

    def _find_depths(self) -> None:
        waits: dict[Value, _Wait] = {}
        nothing = _Wait()
        for step in self.cone.steps:
            wait = _Wait()
            for v in step.same:
                wait.take(waits.get(v, nothing), aligned=True)
            for v in step.others:
                wait.take(waits.get(v, nothing), aligned=False)
            for node in self._nodes(step):
                self.depth[node] = wait.before(node.domain)
            for v in step.op.results:
                waits[v] = self._wait(step, v, wait)

    def _wait(self, step: _Step, v: Value, wait: _Wait) -> _Wait:
        """What a reader of the value waits for."""
        node = self.node_of.get(step.op.results[0] if step.reduces else v)
        if node is None or not self._stops(step, v):
            return wait
        return _Wait(self.depth[node] + 1) if step.reduces else _Wait(same={v.shape: self.depth[node]})

    def _find_users(self) -> None:
        number: dict[Loops, int] = {}
        for step in reversed(self.cone.steps):
            bits = 0
            for v in step.op.results:
                bits |= 0 if self._stops(step, v) else self._users.get(v, 0)
            for node in self._nodes(step):
                bits |= 1 << number.setdefault((self.depth[node], node.domain), len(number))
            for u in (*step.same, *step.others) if bits else ():
                self._users[u] = self._users.get(u, 0) | bits
        self._loops = list(number)
