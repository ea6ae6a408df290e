"""Choose what a lane keeps in its arena, and the stage of everything it makes.

    softmax, one row:   stage 0   max                          (reduction: must)
                        stage 1   exp -> arena; sum            (expensive, two users: kept)
                        stage 2   exp / sum -> result

Size requirements follow FS-2018 section 5.1: reductions must be kept; an elementwise chain that several
stages use is kept when computing it again costs more than a store and a load.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from jstitch.ir.graph import Op, Value
from jstitch.ir.ops import OpClass, lookup
from jstitch.passes.base.plan import is_free
from jstitch.passes.base.profile import current
from jstitch.passes.base.row_access import data_operands, is_reduction
from jstitch.passes.lower.build_nest import Place
from jstitch.passes.lower.form_groups import PARTIAL, Group


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
    def domain(self) -> tuple[int, ...]:
        """The shape of the tensor that the node's loops run over."""
        return self.op.operands[0].shape if self.is_partial or self.is_reduction else self.value.shape

    @property
    def roots(self) -> tuple[Value, ...]:
        """Values its loops compute; empty for an elementwise node, which computes its own."""
        return self.op.operands if self.is_partial or self.is_reduction else ()


@dataclass(eq=False)
class Placement:
    """Nodes of one lane in program order, with the depth (number of barriers before) of each."""

    nodes: list[Node]
    depth: dict[Node, int]
    kept: set[Value]


@dataclass(eq=False)
class LaneView:
    """What a lane sees. stored: values it must write. places: values it can read from memory.

    budget: most bytes of kept values per program. refused: values that must not be kept. shared: the values
    to keep, of all patterns' lanes; None: to be chosen.
    """

    group: Group
    ops: list[Op]
    producers: Mapping[Value, Op]
    places: Mapping[Value, Place]
    stored: set[Value]
    budget: int
    refused: frozenset[Value] = frozenset()
    shared: frozenset[Value] | None = None
    in_lane: set[Op] = field(init=False)

    def __post_init__(self) -> None:
        self.in_lane = set(self.ops)

    def slab(self, v: Value) -> int:
        return v.tensor.size // self.group.rows


def place_values(lane: LaneView) -> Placement:
    """Nodes, depths and kept values of a lane.

    A value that was kept first may have become cheap by what was kept later: it is let go again.
    """
    if lane.shared is not None:
        return _Search(lane, _asked_for(lane, lane.shared)).run()
    kept: set[Value] = set()
    for _ in range(32):
        search = _Search(lane, kept)
        search.run()
        candidate = search.worth_keeping() if not lane.group.flat else None
        if candidate is None:
            break
        kept.add(candidate)
    for v in [v for op in reversed(lane.ops) for v in op.results if v in kept]:
        search = _Search(lane, kept - {v})
        search.run()
        if search.is_cheap(v):
            kept.remove(v)
    return _Search(lane, kept).run()


def _asked_for(lane: LaneView, shared: frozenset[Value]) -> set[Value]:
    """What a template wants kept in this lane, and can be."""
    if lane.group.flat:
        return set()
    made = {v for op in lane.ops if not is_reduction(op) and op.name != PARTIAL for v in op.results}
    return {v for v in made & shared - lane.refused if lane.slab(v) > 1}


class _Search:
    """One round: find the nodes that stores need, their depths, and who uses what where."""

    def __init__(self, lane: LaneView, kept: set[Value]) -> None:
        self.lane = lane
        self.kept = kept
        self.node_of: dict[Value, Node] = {}
        self.depth: dict[Node, int] = {}
        self.users: dict[Value, set[tuple[int, tuple[int, ...]]]] = {}
        self.order = {op: n for n, op in enumerate(lane.ops)}

    def run(self) -> Placement:
        for op in self.lane.ops:
            if op.name == PARTIAL:
                self.depth_of(self.node(op, op.results[0]))
            else:
                for v in op.results:
                    if v in self.lane.stored:
                        self.depth_of(self.node(op, v))
        nodes = sorted(self.depth, key=lambda n: self.order[n.op])
        return Placement(nodes, self.depth, self.kept)

    def node(self, op: Op, value: Value) -> Node:
        key = op.results[0] if is_reduction(op) else value
        return self.node_of.setdefault(key, Node(op, key))

    def depth_of(self, node: Node) -> int:
        if node in self.depth:
            return self.depth[node]
        needs: dict[tuple[Node, bool], None] = {}
        if node.roots:
            inits = len(data_operands(node.op))
            seen: set[tuple[Value, bool]] = set()
            inlined: list[Value] = []
            for n, v in enumerate(node.roots):
                self._collect(v, n < inits, node, needs, seen, inlined)
        else:
            seen, inlined = set(), []
            self._collect_operands(node.op, True, node, needs, seen, inlined)
        depth = max((self.depth_of(m) + (0 if same else 1) for m, same in needs), default=0)
        self.depth[node] = depth
        for v in inlined:
            self.users.setdefault(v, set()).add((depth, node.domain))
        return depth

    def _collect(
        self,
        v: Value,
        same: bool,
        node: Node,
        needs: dict[tuple[Node, bool], None],
        seen: set[tuple[Value, bool]],
        inlined: list[Value],
    ) -> None:
        """Nodes that computing `v` needs first; `same`: reached at the very index of the node's loops."""
        op = self.lane.producers.get(v)
        if (v, same) in seen or v in self.lane.places or op is None:
            return
        seen.add((v, same))
        if is_reduction(op) and op in self.lane.in_lane:
            needs[self.node(op, v), False] = None
            return
        inlined.append(v)
        if v in self.kept and op in self.lane.in_lane:
            here = same and v.shape == node.domain
            needs[self.node(op, v), here] = None
            return
        self._collect_operands(op, same, node, needs, seen, inlined)

    def _collect_operands(
        self,
        op: Op,
        same: bool,
        node: Node,
        needs: dict[tuple[Node, bool], None],
        seen: set[tuple[Value, bool]],
        inlined: list[Value],
    ) -> None:
        elementwise = lookup(op.name).op_class.is_elementwise
        for u in op.operands:
            self._collect(u, same and elementwise, node, needs, seen, inlined)

    def worth_keeping(self) -> Value | None:
        """The last value in program order that is computed twice and is dear, if it can fit.

        Twice: by two stages, or by a loop over more elements than it has.
        """
        cost: dict[Value, float] = {}
        given = self.kept | self.lane.refused
        for op in reversed(self.lane.ops):
            for v in op.results:
                users = set(self.users.get(v, ()))
                if v in self.node_of:
                    node = self.node_of[v]
                    users.add((self.depth[node], node.domain))
                repeated = any(math.prod(domain) > v.tensor.size for _, domain in users)
                if v in given or is_reduction(op) or self.lane.slab(v) <= 1:
                    continue
                if len(users) < 2 and not repeated:
                    continue
                bound = current().keep_cost / (2 if repeated else 1)
                size = self.lane.slab(v) * self.lane.group.step * v.tensor.dtype.compute.itemsize
                if self._cost(v, cost) > bound and size <= self.lane.budget:
                    return v
        return None

    def is_cheap(self, v: Value) -> bool:
        """Whether computing `v` from what is kept costs no more than keeping it."""
        repeated = any(math.prod(domain) > v.tensor.size for _, domain in self.users.get(v, ()))
        return not repeated and self._cost(v, {}) <= current().keep_cost

    def _cost(self, v: Value, known: dict[Value, float]) -> float:
        if v not in known:
            known[v] = 0.0
            op = self.lane.producers.get(v)
            if v in self.lane.places or v in self.kept or op is None:
                known[v] = 1.0
            elif is_reduction(op) or is_free(op) or self.lane.slab(v) <= 1:
                known[v] = 0.0
            else:
                definition = lookup(op.name)
                own = definition.cpi if definition.op_class.is_elementwise else 0.0
                own += current().look_up if definition.op_class is OpClass.INDEX else 0.0
                known[v] = own + sum(self._cost(u, known) for u in dict.fromkeys(op.operands))
        return known[v]


def last_stage(placement: Placement) -> dict[Node, tuple[int, bool]]:
    """(stage depth, by columns) of every node: leaves join the last stage that has their loops.

    Partial reductions whose minor-most dimension is kept run by columns: rows of a step inside, so that an
    accumulator is loaded and stored once per step; plain stores over the same domain join them.
    """
    needed = placement.kept
    depth = placement.depth
    columns: dict[tuple[int, ...], int] = {}
    leaves = [n for n in placement.nodes if not n.is_reduction and n.value not in needed]
    for n in leaves:
        if n.is_partial and _keeps_minor(n.op):
            columns[n.domain] = 0
    for n in leaves:
        if n.domain in columns:
            columns[n.domain] = max(columns[n.domain], depth[n])
    latest: dict[tuple[int, ...], int] = {}
    for n in placement.nodes:
        latest[n.domain] = max(latest.get(n.domain, 0), depth[n])
    result: dict[Node, tuple[int, bool]] = {}
    for n in placement.nodes:
        stepped = current().row_step > 1 and n in leaves and n.domain in columns
        by_columns = stepped and (not n.is_partial or _keeps_minor(n.op))
        if by_columns:
            result[n] = (columns[n.domain], True)
        else:
            result[n] = (latest[n.domain] if n in leaves else depth[n], False)
    return result


def _keeps_minor(op: Op) -> bool:
    """Whether the last dimension of size > 1 of the operand is kept."""
    shape = op.operands[0].shape
    minor = max((d for d, n in enumerate(shape) if n > 1), default=-1)
    return minor >= 0 and minor not in op.attrs["dimensions"] and op.results[0].tensor.size > 1
