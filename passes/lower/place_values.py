"""Choose what a lane keeps in its arena, and the stage of everything it makes.

    softmax, one row:   stage 0   max                          (reduction: must)
                        stage 1   exp -> arena; sum            (expensive, two users: kept)
                        stage 2   exp / sum -> result

Size requirements follow FS-2018 section 5.1: reductions must be kept; an elementwise chain that several
stages use is kept when computing it again costs more than a store and a load.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from jstitch.ir.graph import Op, Value
from jstitch.ir.index import Index
from jstitch.ir.ops import OpClass, build, lookup
from jstitch.passes.base.plan import is_free
from jstitch.passes.base.profile import Profile
from jstitch.passes.base.row_access import ROWS, is_reduction
from jstitch.passes.lower.cut_rows import RowsPart
from jstitch.passes.lower.form_groups import HELD
from jstitch.passes.lower.group import Group
from jstitch.passes.lower.recompute_cost import PARTIAL
from jstitch.passes.lower.trace_lane import Loops, Node, Trace, cone
from jstitch.passes.lower.write_products import left_of
from jstitch.passes.lower.written import Place

GATHER = "stablehlo.gather"
PARTS = 4.0  # how much dearer than others values are that are computed for each of their parts
ONE_BY_ONE = 32  # values that are kept after a look at each; then so many more at a time


@dataclass(eq=False)
class Placement:
    """Nodes of one lane in program order, with the depth (number of barriers before) of each."""

    nodes: list[Node]
    depth: dict[Node, int]
    kept: set[Value]


@dataclass(eq=False)
class LaneView:
    """What a lane sees. stored: values it must write. places: values it can read from memory.

    order: of all ops of the kernel. budget: most bytes of kept values per program. refused: values that must
    not be kept. shared: the values to keep, of all patterns' lanes; None: to be chosen. numbers: integer
    scalars that are no values but numbers of turns. part: of a lane of elements; None: all.
    """

    group: Group
    ops: list[Op]
    producers: Mapping[Value, Op]
    order: Mapping[Op, int]
    places: Mapping[Value, Place]
    stored: set[Value]
    budget: int
    refused: frozenset[Value] = frozenset()
    shared: frozenset[Value] | None = None
    numbers: Mapping[Value, Index] = field(default_factory=dict)
    part: RowsPart | None = None

    def slab(self, v: Value) -> int:
        return v.tensor.size // self.group.rows


def place_values(lane: LaneView) -> Placement:
    """Nodes, depths and kept values of a lane.

    A value that was kept first may have become cheap by what was kept later: it is let go again.
    """
    search = _Search(lane)
    if lane.shared is not None:
        return search.placement(_asked_for(lane, lane.shared))
    kept: set[Value] = set()
    if not lane.group.flat:
        kept |= _left_operands(lane)
        search.keep(kept)
        search.let_go(kept)
        kept |= _left_operands(lane)
    return search.placement(kept)


def _left_operands(lane: LaneView) -> set[Value]:
    """What a product of this lane takes from it: its micro-kernel reads tiles."""
    made = {v for op in lane.ops if not is_reduction(op) for v in op.results}
    return (
        made
        & {left_of(op, lane.producers) for op in lane.ops if ROWS in op.attrs and is_reduction(op)}
        - lane.refused
    )


def _asked_for(lane: LaneView, shared: frozenset[Value]) -> set[Value]:
    """What a template wants kept in this lane, and can be."""
    if lane.group.flat:
        return set()
    made = {v for op in lane.ops if not is_reduction(op) and op.name != PARTIAL for v in op.results}
    return {v for v in made & shared - lane.refused if lane.slab(v) > 1}


class _Search:
    """What a lane is made of, with what it costs to compute."""

    def __init__(self, lane: LaneView) -> None:
        self.lane, self.profile = lane, lane.group.profile
        self.cone = cone(lane.ops, lane.producers, {*lane.places, *lane.numbers}, lane.stored)
        self.own = [self._own_cost(step.op) for step in self.cone.steps]
        loops = self.profile.most_threads == 1
        self.rows = lane.group.step if loops else 1  # of which vectors are made
        self.apart = _read_apart(lane.ops, lane.producers) if loops else set()
        self.looked_up = {op.operands[0] for op in lane.ops if loops and _looks_up_most(op)}

    def placement(self, kept: set[Value]) -> Placement:
        trace = Trace(self.cone, kept)
        return Placement(sorted(trace.depth, key=lambda n: self.lane.order[n.op]), trace.depth, kept)

    def keep(self, kept: set[Value]) -> None:
        """Add what is worth keeping: the last value first, since it may make others worthless.

        In a very long lane, which keeps a value for every few ops, more and more at once.
        """
        while found := list(itertools.islice(self._worth_keeping(kept), max(1, len(kept) - ONE_BY_ONE))):
            kept.update(found)

    def _worth_keeping(self, kept: set[Value]) -> Iterator[Value]:
        """Values that are computed twice and are dear, if they can fit, the last in program order first.

        Twice: by two stages, or by a loop over more elements than it has. On a CPU also what is looked up:
        its elements are made by vectors where they are in order, and one by one at places from memory; and
        what is read in parts: it is computed for each of them, and what it is computed from as well.
        """
        trace, costs = Trace(self.cone, kept), self._costs(lambda v, _: v in kept)
        given = kept | self.lane.refused
        for op in reversed(self.lane.ops):
            for v in op.results:
                if v in given or is_reduction(op) or not self._is_many(v):
                    continue
                users = trace.users(v)
                if v in trace.node_of:
                    node = trace.node_of[v]
                    users.add((trace.depth[node], node.domain))
                repeated = _is_repeated(v, users)
                again = len(users) > 1 or repeated or v in self.looked_up
                if not (again or v in self.apart):
                    continue
                bound = self.profile.keep_cost * (0.5 if repeated else 1.0 if again else PARTS)
                size = self.lane.slab(v) * self.lane.group.step * v.tensor.dtype.compute.itemsize
                if costs[v] > bound and size <= self.lane.budget:
                    yield v

    def let_go(self, kept: set[Value]) -> None:
        """Take out what costs no more to compute, from what is still kept behind it, than to keep."""
        trace = Trace(self.cone, kept)
        stays = {v for v in kept if _is_repeated(v, trace.users(v))}

        def is_kept(v: Value, cost: float) -> bool:
            if v in kept and cost > self.profile.keep_cost:
                stays.add(v)
            return v in stays

        self._costs(is_kept)
        kept &= stays

    def _costs(self, is_kept: Callable[[Value, float], bool]) -> dict[Value, float]:
        """Of every value, in cycles per element, from what is kept or in memory. is_kept: (value, cost)."""
        costs: dict[Value, float] = {}
        for step, own in zip(self.cone.steps, self.own, strict=True):
            for v in step.op.results:
                cost = 0.0
                if own is not None and self._is_many(v):
                    given = 1.0 if self.lane.slab(v) > 1 else 0.0
                    cost = own + self._behind(step.op, costs, given)
                costs[v] = 1.0 if is_kept(v, cost) else cost
        return costs

    def _behind(self, op: Op, costs: Mapping[Value, float], given: float) -> float:
        """What an element of the result costs before the op: of what is concatenated, one of the parts'.

        given: of values with no cost.
        """
        if self.profile.seams and build.is_concatenate(op):
            parts = ((costs.get(u, given), u.tensor.size) for u in op.operands)
            return sum(cost * size for cost, size in parts) / op.result.tensor.size
        return sum(costs.get(u, given) for u in dict.fromkeys(op.operands))

    def _is_many(self, v: Value) -> bool:
        """Whether vectors can make it: a row has several elements of it, or a step has several rows."""
        return self.lane.slab(v) * self.rows > 1

    def _own_cost(self, op: Op) -> float | None:
        """None: nothing behind the op counts either. Of a row's one number nothing counts that is light."""
        if is_reduction(op) or is_free(op):
            return None
        if op.attrs.get(HELD):
            return 2 * self.profile.keep_cost
        definition = lookup(op.name)
        if self.lane.slab(op.results[0]) <= 1:
            return definition.cpi if definition.is_polynomial else 0.0
        own = definition.cpi if definition.op_class.is_elementwise else 0.0
        return own + (self.profile.look_up if definition.op_class is OpClass.INDEX else 0.0)


def _read_apart(ops: Sequence[Op], producers: Mapping[Value, Op]) -> set[Value]:
    """Values of which elements at several places are read: what a loop computes, it computes at each."""
    places: dict[Value, set[Op | None]] = {}
    for op in ops:
        moves = lookup(op.name).op_class in (OpClass.SHAPE, OpClass.INDEX)
        if build.is_reshape(op) or build.is_broadcast(op):
            continue
        for v in op.operands:
            while v in producers and build.is_reshape(producers[v]):
                v = producers[v].operands[0]
            places.setdefault(v, set()).add(op if moves else None)
    return {v for v, found in places.items() if len(found) > 1}


def _looks_up_most(op: Op) -> bool:
    """Whether it reads elements at places from memory, about as many as there are."""
    return op.name == GATHER and 2 * op.result.tensor.size >= op.operands[0].tensor.size


def _is_repeated(v: Value, users: set[Loops]) -> bool:
    """Whether a loop over more elements than it has computes the value."""
    return any(math.prod(domain) > v.tensor.size for _, domain in users)


def last_stage(placement: Placement, profile: Profile) -> dict[Node, tuple[int, bool]]:
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
        stepped = profile.row_step > 1 and n in leaves and n.domain in columns
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
