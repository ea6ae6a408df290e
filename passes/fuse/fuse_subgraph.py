"""Subgraph fusion: grow a pattern from its roots, layer by layer up to the roof (FS-2018 Algorithm 1).

    span 3   %x = exp %in            joins: all users are fused
    span 2   %s = reduce %x          joins: Row schedules pass
    span 1   %b = broadcast %s       joins
    span 0   %y = divide %x, %b      root

An op joins when (1) no user of it gave up, (2) a user is fused, (3) a schedule for the whole pattern exists.
An op that was visited and did not join gave up, and so did the other ops of the root's own layer: with them
left out, two roots of one layer could each hold an op that the other one reads, and the kernels would wait
for each other. Hence every edge that leaves a pattern goes to a span below its roots', and any plan made of
such patterns is acyclic.

Schedules are followed incrementally: the pattern keeps the root schedules that every member accepts, with
each member's own; a joining op only looks at what its users want of it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from jstitch.ir.graph import Graph, Op, Value
from jstitch.passes.base.plan import Reason, is_free
from jstitch.passes.fuse.follow_schedules import Column, Followed, Follower, root_schedules
from jstitch.passes.lower.propagate_schedule import op_class

GAVE_UP = "gave up"
TOO_MANY = "one kernel would have {found} ops, the bound is {bound}"


@dataclass(frozen=True)
class FusionOptions:
    """What bounds fusion.

    min_blocks: parallel pieces a large pattern must have. serial_elements: up to so many elements per block
    that does not matter. max_ops: ops in one pattern. footprint: bytes that one packed elementwise kernel may
    touch. fuse_batch_dot: contractions with batch dimensions may join. whole_layer_roof: an LC-layer stops
    every pattern, as in the paper, and not only those that its library calls belong to. max_schedules: root
    schedules followed while a pattern grows.
    """

    min_blocks: int = 8
    serial_elements: int = 1 << 16
    max_ops: int = 512
    footprint: int = 1 << 20
    fuse_batch_dot: bool = False
    whole_layer_roof: bool = False
    max_schedules: int = 32


@dataclass(frozen=True)
class Frame:
    """A graph and what growth looks up in it."""

    graph: Graph
    spans: Mapping[Op, int]
    users: Mapping[Value, list[Op]]
    producers: Mapping[Value, Op]
    place: Mapping[Op, int]
    returned: frozenset[Value]
    partition: Callable[[Op], Reason | None]
    follower: Follower

    def consumers(self, op: Op) -> list[Op]:
        """The ops that use a result of `op`, those of the largest span first."""
        found = dict.fromkeys(u for v in op.results for u in self.users.get(v, ()))
        return sorted(found, key=lambda u: -self.spans[u])


@dataclass
class Growth:
    """A pattern while it grows. Every public method leaves it consistent."""

    frame: Frame
    roots: Sequence[Op]
    options: FusionOptions
    roof: int
    members: dict[Op, None] = field(default_factory=dict)
    refused: dict[Op, Reason] = field(default_factory=dict)

    def __post_init__(self) -> None:
        shape = self.roots[0].results[0].shape
        schedules, self._blocks = root_schedules(shape, self.options.max_schedules)
        self._alive = frozenset(range(len(schedules)))
        self._wanted: dict[Value, list[Column]] = {}
        self._queue: list[tuple[int, int, Op]] = []
        self._queued: set[Op] = set()
        self._elements = max(_work(op) for op in self.roots)
        column = self.frame.follower.intern(schedules)
        for root in self.roots:
            self._join_root(root, column)

    def _join_root(self, root: Op, column: Column) -> None:
        """The first root always joins; the others when they take a schedule that it takes."""
        followed = self.frame.follower.follow(root, [column], True)
        kept = self._alive.difference(followed.refused)
        if kept or root is self.roots[0]:
            self._accept(root, kept, followed)

    def grow(self) -> None:
        """Visit producers in order of span until none is left below the roof."""
        while self._queue:
            self.visit(heapq.heappop(self._queue)[2])

    @property
    def refused_as_full(self) -> dict[Op, Reason]:
        """What the roots read, if they are to be alone."""
        why = next(why for why in self.refused.values() if why.rule == "size")
        made = (self.frame.producers.get(v) for root in self.roots for v in root.operands)
        return {op: why for op in made if op is not None and not is_free(op)}

    @property
    def is_full(self) -> bool:
        """Whether the number of ops is what ended it."""
        return any(why.rule == "size" for why in self.refused.values())

    def replay(self, joined: Sequence[Op], refused: Mapping[Op, Reason]) -> None:
        """Join exactly these ops, in this order, and keep what was refused before."""
        for op in joined:
            if op not in self.members:
                self.visit(op)
        self.refused.update(refused)
        done = {*self.members, *self.refused}
        self._queued.update(done)
        self._queue = [entry for entry in self._queue if entry[2] not in done]
        heapq.heapify(self._queue)

    def visit(self, op: Op) -> None:
        """Let one op join or give up; the reason is kept in `refused`."""
        verdict = self._why_not(op)
        if verdict is not None:
            self.refused[op] = verdict

    def _why_not(self, op: Op) -> Reason | None:
        """Algorithm 1's SchdConsistent: join the op, or say which rule it fails."""
        reason = self.frame.partition(op)
        if reason is not None:
            return reason
        span = self.frame.spans[op]
        if span >= self.roof:
            return Reason(
                "roof", "span {found} is not below the library-call layer at {bound}", span, self.roof
            )
        if len(self.members) >= self.options.max_ops:
            return Reason("size", TOO_MANY, len(self.members) + 1, self.options.max_ops)
        return self._gave_up(op) or self._inconsistent(op)

    def _gave_up(self, op: Op) -> Reason | None:
        floor = self.frame.spans[self.roots[0]]
        for user in self.frame.consumers(op):
            span = self.frame.spans[user]
            if span < floor:
                break
            if user not in self.members:
                where = f"its user {user.name} (span {{found}}, roots at {{bound}})"
                return Reason(GAVE_UP, f"{where} is not in the pattern: a cycle could arise", span, floor)
        return None

    def _inconsistent(self, op: Op) -> Reason | None:
        columns = [c for v in op.results for c in self._wanted.get(v, ())]
        followed = self.frame.follower.follow(op, columns, self._leaves(op))
        kept = self._alive.difference(followed.refused)
        if not kept:
            rule = followed.refused[min(self._alive)] if self._alive else "the root refuses them all"
            fewest = min((self._blocks[i] for i in self._alive), default=0)
            count = (
                f"{{found}} of {len(self._alive)} schedules of {fewest} blocks or more pass, {{bound}} must"
            )
            return Reason("schedule", f"{count}: {rule}", 0, 1)
        elements = max(self._elements, _work(op))
        needed = self._needed(elements)
        enough = frozenset(i for i in kept if self._blocks[i] >= needed)
        if not enough:
            most = max(self._blocks[i] for i in kept)
            text = f"{{found}} blocks for {elements} elements, at least {{bound}} needed"
            return Reason("blocks", text, most, needed)
        self._elements = elements
        self._accept(op, enough, followed)
        return None

    def _needed(self, elements: int) -> int:
        """Blocks that a pattern of this size must have; one that does not grow keeps what it has."""
        needed = min(self.options.min_blocks, -(-elements // self.options.serial_elements))
        if elements > self._elements:
            return needed
        return min(needed, max(self._blocks[i] for i in self._alive))

    def _leaves(self, op: Op) -> bool:
        users = (u for v in op.results for u in self.frame.users.get(v, ()))
        return any(v in self.frame.returned for v in op.results) or any(u not in self.members for u in users)

    def _accept(self, op: Op, alive: frozenset[int], followed: Followed) -> None:
        self._alive = alive
        self.members[op] = None
        for value, column in zip(op.operands, followed.operands, strict=False):
            producer = self.frame.producers.get(value)
            if producer is None or is_free(producer):
                continue
            self._wanted.setdefault(value, []).append(column)
            if producer not in self._queued:
                self._queued.add(producer)
                entry = (self.frame.spans[producer], -self.frame.place[producer], producer)
                heapq.heappush(self._queue, entry)


def _work(op: Op) -> int:
    """Elements that the op goes through."""
    values = (*op.results, *op.operands) if not op_class(op).is_elementwise else op.results
    return max((v.tensor.size for v in values), default=0)
