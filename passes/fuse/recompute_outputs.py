"""Compute an elementwise value again in the kernel that reads it, where that moves fewer bytes.

    kernel 0: h = x * w;  t = tanh h;  y = h + t, t returned, too     writes y and t
    kernel 1: dh = dy * (1 - t * t)                                   reads t

    ->   kernel 1: h = x * w;  t = tanh h;  dh = dy * (1 - t * t)     reads x, kernel 0 does not write t

The residuals that autodiff keeps are such values: many of them, made of few. What makes them dear is often
much smaller, as a mean of each row is, or a mask of bools: kernel 0 then writes that instead. Values that a
tensor product or the caller reads have to be in memory anyway and stay. XLA computes again what is only made
of places, such as the counters of a random generator, and that of which it takes small parts, as a last row.
On a CPU only parts of other values, such as the elements of windows, are made again by kernels.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import OpClass, lookup
from jstitch.ir.ops.build import keeps_order, takes_part
from jstitch.passes.base.context import Context
from jstitch.passes.base.machine import Machine
from jstitch.passes.base.plan import Again, FusionPlan, Reason, is_free, make_patterns
from jstitch.passes.base.sort_ops import sort_ops
from jstitch.passes.cost.cost_model import work
from jstitch.passes.fuse.keep_patterns import cut_edges
from jstitch.passes.fuse.plan_layers import partition_reason

CONE = 200  # ops that may be computed again for one value
LEAST = 1 << 12  # bytes of a value that is worth the ops
SMALL = 16  # a value this many times smaller costs nothing to keep
NARROW = 4  # a value so many times smaller, such as the bools that floats are chosen by, is written instead
WHOLE = sys.maxsize
XLA = -1  # the reader that stands for all ops of no pattern
SHARE = 0.5  # of the time that bytes take, for computing
COPIED = Reason("recompute", "the consumer is computed again from a value that stays in memory")


def recompute_outputs(plan: FusionPlan, context: Context) -> FusionPlan:
    """The plan whose patterns keep fewer values for each other."""
    search = _Search(plan, context.machine, not context.profile.recompute)
    chosen = [c for number in range(len(plan.patterns)) for c in search.choose(number)]
    return _rebuild(plan, chosen, search.owner) if chosen else plan


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A value of a pattern, the ops that make it, what these need, and the patterns (or XLA) that read it.

    roots: the large ones of what is needed. fresh: those that the pattern does not write yet. share: of its
    elements, that are read.
    """

    value: Value
    cone: tuple[Op, ...]
    needs: frozenset[Value]
    roots: frozenset[Value]
    fresh: frozenset[Value]
    readers: frozenset[int]
    share: float

    @property
    def saved(self) -> float:
        return self.value.tensor.nbytes * (1 + self.share * len(self.readers))


@dataclass(eq=False)
class _Search:
    """parts_only: of other values, such as a window's elements of what lies in memory."""

    plan: FusionPlan
    machine: Machine
    parts_only: bool
    owner: dict[Op, int] = field(default_factory=dict)
    idle: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        frame = self.plan.frame
        self.owner = {op: n for n, p in enumerate(self.plan.patterns) for op in p.ops if not is_free(op)}
        self.producers, self.users = frame.producers(), frame.users()
        self.returned = set(frame.outputs)

    def choose(self, number: int) -> list[_Candidate]:
        """Values of one pattern that are better computed again, those of the same roots together.

        What is left may then be computed again from what the pattern writes all the same.
        """
        groups: dict[frozenset[Value], list[_Candidate]] = {}
        outputs = self.plan.patterns[number].outputs
        for v in outputs:
            found = self._candidate(number, v)
            if found is not None:
                groups.setdefault(found.roots, []).append(found)
        chosen = {c.value: c for group in groups.values() for c in self._take(self._best(group))}
        needed = {v for c in chosen.values() for v in c.needs}
        for v in outputs:
            if v in chosen or v in needed:
                continue
            found = self._candidate(number, v, frozenset(outputs) - chosen.keys() - {v})
            if found is not None and self._gain([found]) > 0:
                chosen[v] = found
                needed |= found.needs
                self._take([found])
        return list(chosen.values())

    def _best(self, group: list[_Candidate]) -> list[_Candidate]:
        """The group without those that are dearer than what they save; empty when nothing is saved."""
        while group:
            fewer = max(([c for c in group if c is not d] for d in group), key=self._gain)
            if self._gain(fewer) <= self._gain(group):
                break
            group = fewer
        return group if self._gain(group) > 0 else []

    def _candidate(
        self, number: int, value: Value, written: frozenset[Value] = frozenset()
    ) -> _Candidate | None:
        """The best way to compute a value again, if there is one. written: values not to look behind."""
        users = [op for op in self.users.get(value, ()) if self.owner.get(op) != number]
        readers = frozenset(self.owner.get(op, XLA) for op in users)
        if value in self.returned or not users or value.tensor.nbytes < LEAST:
            return None
        share = _share(value, users)
        few = share * NARROW <= 1.0
        if self.parts_only and not (few or keeps_order(self.producers[value])):
            return None
        if not few and not all(op in self.owner or lookup(op.name).op_class.is_elementwise for op in users):
            return None
        cones = [self._cone(number, value, times, written) for times in (WHOLE, SMALL, NARROW)]
        found = (self._way(number, value, *cone, readers, share) for cone in dict.fromkeys(cones) if cone[0])
        ways = [
            way for way in found if all(v.tensor.nbytes * NARROW <= value.tensor.nbytes for v in way.fresh)
        ]
        if XLA in readers:  # which computes places in its own kernels, but is not made to read more
            ways = [way for way in ways if (few or not way.roots) and not way.fresh]
        return max(ways, key=lambda c: self._gain([c]), default=None)

    def _way(
        self,
        number: int,
        value: Value,
        cone: tuple[Op, ...],
        roots: frozenset[Value],
        readers: frozenset[int],
        share: float,
    ) -> _Candidate:
        large = frozenset(v for v in roots if v.tensor.nbytes * SMALL > value.tensor.nbytes)
        inside = {v for v in roots if v in self.producers and self.owner.get(self.producers[v]) == number}
        fresh = frozenset(inside.difference(self.plan.patterns[number].outputs))
        return _Candidate(value, cone, roots, large, fresh, readers, share)

    def _cone(
        self, number: int, value: Value, times: int, written: frozenset[Value] = frozenset()
    ) -> tuple[tuple[Op, ...], frozenset[Value]]:
        """Elementwise and shape ops of the pattern behind the value, in program order; and what they read.

        Nothing is looked for behind values that have so many `times` fewer bytes, or that are `written`.
        """
        ops: set[Op] = set()
        roots: set[Value] = set()
        todo = [value]
        while todo:
            v = todo.pop()
            op = self.producers.get(v)
            if op is not None and is_free(op):
                ops.add(op)
            elif op is None or not self._is_again(op, number) or v in written:
                roots.add(v)
            elif v.tensor.nbytes * times <= value.tensor.nbytes:
                roots.add(v)
            elif op not in ops:
                ops.add(op)
                todo += op.operands
        if value in roots or len(ops) > CONE:
            return (), frozenset(roots)
        return tuple(op for op in self.plan.patterns[number].ops if op in ops), frozenset(roots)

    def _is_again(self, op: Op, number: int) -> bool:
        return self.owner.get(op) == number and (_is_cheap(op) or (self.parts_only and keeps_order(op)))

    def _gain(self, group: Sequence[_Candidate]) -> float:
        """Seconds: a share of those that the saved bytes take, less those of computing again."""
        added: float = sum(v.tensor.nbytes for v in frozenset().union(*(c.fresh for c in group)))
        for reader, mine in _by_reader(group).items():
            known = set(self.plan.patterns[reader].inputs) if reader != XLA else set()
            roots = {v: c.share for c in mine for v in c.roots if v not in known}
            added += sum(v.tensor.nbytes * share for v, share in roots.items())
        saved = sum(c.saved for c in group) - added
        seconds = (max(0.0, more - self._idle(reader)) for reader, more in self._computing(group).items())
        return SHARE * saved / self.machine.bandwidth(abs(saved)) - sum(seconds)

    def _idle(self, reader: int) -> float:
        """Seconds in which a kernel could compute more while it waits for memory."""
        if reader == XLA:
            return 0.0
        if reader not in self.idle:
            pattern, machine = self.plan.patterns[reader], self.machine
            moved = sum(v.tensor.nbytes for v in (*pattern.inputs, *pattern.outputs))
            busy = sum(work(op, machine) for op in pattern.ops) * machine.lane_cycle
            self.idle[reader] = max(0.0, SHARE * moved / machine.bandwidth(moved) - busy)
        return self.idle[reader]

    def _take(self, chosen: Sequence[_Candidate]) -> Sequence[_Candidate]:
        """The same; their readers are busier from now on."""
        for reader, more in self._computing(chosen).items():
            self.idle[reader] = max(0.0, self._idle(reader) - more)
        return chosen

    def _computing(self, group: Iterable[_Candidate]) -> dict[int, float]:
        """Seconds that each reader computes again, without waiting for memory."""
        ops = {r: {op: c.share for c in mine for op in c.cone} for r, mine in _by_reader(group).items()}
        cycles = {
            reader: sum(share * work(op, self.machine) for op, share in found.items())
            for reader, found in ops.items()
        }
        return {reader: busy * self.machine.lane_cycle for reader, busy in cycles.items()}


def _by_reader(group: Iterable[_Candidate]) -> dict[int, list[_Candidate]]:
    found: dict[int, list[_Candidate]] = {}
    for c in group:
        for reader in c.readers:
            found.setdefault(reader, []).append(c)
    return found


def _share(value: Value, users: Sequence[Op]) -> float:
    """Of the value's elements, those that are read: not all, where parts are taken of it."""
    if any(not takes_part(op) or value in op.operands[1:] for op in users):
        return 1.0
    return sum(op.result.tensor.size for op in users) / value.tensor.size


def _is_cheap(op: Op) -> bool:
    kind = lookup(op.name).op_class
    return kind.is_elementwise or (kind is OpClass.SHAPE and len(op.operands) == 1)


def _rebuild(plan: FusionPlan, chosen: Iterable[_Candidate], owner: Mapping[Op, int]) -> FusionPlan:
    """The frame with copies of the cones before their readers, and the patterns over it."""
    place = {op: n for n, op in enumerate(plan.frame.ops)}
    copier = _Copier(_by_reader(chosen), owner, place)
    copier.begin()
    for op in plan.frame.ops:
        copier.visit(op)
    frame = Graph(plan.frame.inputs, sort_ops(copier.ops), plan.frame.outputs)
    groups = [
        [*(copier.new.get(op, op) for op in p.ops), *copier.copies.get(n, ())]
        for n, p in enumerate(plan.patterns)
    ]
    made = make_patterns(frame, groups, "recompute_outputs")
    # A pattern of which others compute everything again makes nothing: it is no kernel.
    pairs = [(new, old) for new, old in zip(made, plan.patterns, strict=True) if new.outputs]
    named = [replace(new, origin=old.origin) for new, old in pairs]
    refusals = tuple(
        replace(
            r,
            producer=copier.new.get(r.producer, r.producer),
            consumer=copier.new.get(r.consumer, r.consumer),
        )
        for r in plan.refusals
    )
    return cut_edges(FusionPlan(frame, tuple(named), refusals), named, _why)


def _why(producer: Op, _: Op) -> Reason:
    """Of an edge to a copied consumer."""
    return partition_reason(producer) or COPIED


@dataclass(eq=False)
class _Copier:
    """Ops of the new frame; `new`: old op -> the one that reads copies; copies: of each reader's cones."""

    by_reader: Mapping[int, Sequence[_Candidate]]
    owner: Mapping[Op, int]
    place: Mapping[Op, int]
    ops: list[Op] = field(default_factory=list)
    new: dict[Op, Op] = field(default_factory=dict)
    copies: dict[int, list[Op]] = field(default_factory=dict)
    values: dict[int, dict[Value, Value]] = field(default_factory=dict)

    def begin(self) -> None:
        """Copies for XLA come first."""
        if XLA in self.by_reader:
            self._copy(XLA)

    def visit(self, op: Op) -> None:
        reader = self.owner.get(op, XLA)
        if reader not in self.by_reader:
            self.ops.append(op)
            return
        if reader not in self.values:
            self._copy(reader)
        values = self.values[reader]
        if values.keys().isdisjoint(op.operands):
            self.ops.append(op)
            return
        operands = tuple(values.get(v, v) for v in op.operands)
        self.new[op] = replace(op, operands=operands)
        self.ops.append(self.new[op])

    def _copy(self, reader: int) -> None:
        values = self.values[reader] = {}
        copies = self.copies[reader] = []
        cones = {op for c in self.by_reader[reader] for op in c.cone}
        for op in sorted(cones, key=self.place.__getitem__):
            if is_free(op):
                copies.append(op)
            else:
                operands = tuple(values.get(v, v) for v in op.operands)
                values[op.result] = Again(op.result.type, op.result)
                copies.append(replace(op, operands=operands, results=(values[op.result],)))
                self.ops.append(copies[-1])
