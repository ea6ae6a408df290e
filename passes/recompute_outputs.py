"""Compute an elementwise value again in the kernel that reads it, where that moves fewer bytes.

    kernel 0: h = x * w;  t = tanh h;  y = h + t, t returned, too     writes y and t
    kernel 1: dh = dy * (1 - t * t)                                   reads t

    ->   kernel 1: h = x * w;  t = tanh h;  dh = dy * (1 - t * t)     reads x, kernel 0 does not write t

The residuals that autodiff keeps are such values: many of them, made of few. Values that a tensor product or
the caller reads have to be in memory anyway and stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import OpClass, lookup
from jstitch.passes.cost_model import work
from jstitch.passes.keep_patterns import cut_edges
from jstitch.passes.plan import FusionPlan, Reason, is_free, make_patterns
from jstitch.passes.plan_layers import partition_reason
from jstitch.passes.profile import current
from jstitch.passes.sort_ops import sort_ops

CONE = 200  # ops that may be computed again for one value
SMALL = 16  # a value this many times smaller costs nothing to keep
SHARE = 0.5  # of the time that the saved bytes take, for computing again
COPIED = Reason("recompute", "the consumer is computed again from a value that stays in memory")


def recompute_outputs(plan: FusionPlan) -> FusionPlan:
    """The plan whose patterns keep fewer values for each other."""
    if not current().recompute:
        return plan
    search = _Search(plan)
    chosen = {number: found for number in range(len(plan.patterns)) if (found := search.choose(number))}
    return _rebuild(plan, [c for found in chosen.values() for c in found], search.owner) if chosen else plan


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A value of pattern `maker`, the ops that make it, what these read, and the patterns that read it."""

    value: Value
    maker: int
    cone: tuple[Op, ...]
    roots: frozenset[Value]
    readers: frozenset[int]

    @property
    def cycles(self) -> float:
        return sum(map(work, self.cone)) * len(self.readers)

    @property
    def saved(self) -> int:
        return self.value.tensor.nbytes * (1 + len(self.readers))


@dataclass(eq=False)
class _Search:
    plan: FusionPlan
    owner: dict[Op, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        frame = self.plan.frame
        self.owner = {op: n for n, p in enumerate(self.plan.patterns) for op in p.ops if not is_free(op)}
        self.producers, self.users = frame.producers(), frame.users()
        self.returned = set(frame.outputs)

    def choose(self, number: int) -> list[_Candidate]:
        """Values of one pattern that are better computed again, those of the same roots together."""
        groups: dict[frozenset[Value], list[_Candidate]] = {}
        for v in self.plan.patterns[number].outputs:
            found = self._candidate(number, v)
            if found is not None:
                groups.setdefault(found.roots, []).append(found)
        return [c for group in groups.values() if self._pays(group) for c in group]

    def _candidate(self, number: int, value: Value) -> _Candidate | None:
        readers = {self.owner.get(op) for op in self.users.get(value, ())} - {number}
        if value in self.returned or None in readers or not readers:
            return None
        cone, roots = self._cone(number, value)
        kept = {v for v in self.plan.patterns[number].outputs}
        large = {v for v in roots if v.tensor.nbytes * SMALL > value.tensor.nbytes}
        if not cone or any(
            v in self.producers and self._is_inside(v, number) and v not in kept for v in roots
        ):
            return None
        return _Candidate(
            value, number, cone, frozenset(large), frozenset(r for r in readers if r is not None)
        )

    def _is_inside(self, v: Value, number: int) -> bool:
        return self.owner.get(self.producers[v]) == number

    def _cone(self, number: int, value: Value) -> tuple[tuple[Op, ...], set[Value]]:
        """Elementwise and shape ops of the pattern behind the value, in program order; and what they read."""
        ops: set[Op] = set()
        roots: set[Value] = set()
        todo = [value]
        while todo:
            v = todo.pop()
            op = self.producers.get(v)
            if op is not None and is_free(op):
                ops.add(op)
            elif op is not None and self.owner.get(op) == number and _is_cheap(op):
                if op not in ops:
                    ops.add(op)
                    todo += op.operands
            else:
                roots.add(v)
        if value in roots or len(ops) > CONE:
            return (), roots
        return tuple(op for op in self.plan.patterns[number].ops if op in ops), roots

    def _pays(self, group: Sequence[_Candidate]) -> bool:
        machine = current().machine
        readers = {r for c in group for r in c.readers}
        added = 0
        for reader in readers:
            known = set(self.plan.patterns[reader].inputs)
            roots = {v for c in group if reader in c.readers for v in c.roots}
            added += sum(v.tensor.nbytes for v in roots - known)
        saved = sum(c.saved for c in group) - added
        if saved <= 0:
            return False
        ops = {(reader, op) for c in group for reader in c.readers for op in c.cone}
        seconds = sum(work(op) for _, op in ops) * machine.lane_cycle
        return seconds < SHARE * saved / machine.bandwidth(saved)


def _is_cheap(op: Op) -> bool:
    kind = lookup(op.name).op_class
    return kind.is_elementwise or (kind is OpClass.SHAPE and len(op.operands) == 1)


def _rebuild(plan: FusionPlan, chosen: Iterable[_Candidate], owner: Mapping[Op, int]) -> FusionPlan:
    """The frame with copies of the cones before their readers, and the patterns over it."""
    by_reader: dict[int, list[_Candidate]] = {}
    for c in chosen:
        for reader in c.readers:
            by_reader.setdefault(reader, []).append(c)
    copier = _Copier(by_reader, owner)
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
    ops: list[Op] = field(default_factory=list)
    new: dict[Op, Op] = field(default_factory=dict)
    copies: dict[int, list[Op]] = field(default_factory=dict)
    values: dict[int, dict[Value, Value]] = field(default_factory=dict)

    def visit(self, op: Op) -> None:
        reader = self.owner.get(op, -1)
        if reader not in self.by_reader:
            self.ops.append(op)
            return
        if reader not in self.values:
            self._copy(reader)
        values = self.values[reader]
        wanted = {c.value for c in self.by_reader[reader]}
        if wanted.isdisjoint(op.operands):
            self.ops.append(op)
            return
        operands = tuple(values[v] if v in wanted else v for v in op.operands)
        self.new[op] = replace(op, operands=operands)
        self.ops.append(self.new[op])

    def _copy(self, reader: int) -> None:
        values = self.values[reader] = {}
        copies = self.copies[reader] = []
        for c in self.by_reader[reader]:
            for op in c.cone:
                if is_free(op):
                    copies.append(op)
                elif op.result not in values:
                    operands = tuple(values.get(v, v) for v in op.operands)
                    values[op.result] = Value(op.result.type)
                    copies.append(replace(op, operands=operands, results=(values[op.result],)))
                    self.ops.append(copies[-1])
