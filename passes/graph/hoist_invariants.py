"""What is the same in every turn of a loop is computed once, before the loop.

    while:  %a = multiply %w, 0.5;  %z = dot_general %h, %a        ->        %a = multiply %w, 0.5
                                                                            while:  %z = dot_general %h, %a

Weights that are scaled, masked, normalized, rounded or joined where they are used. XLA does the same, of what
is no larger than what it is made of; a kernel that has the loop, or one of its turns, would not. What only
moves, of one array, stays: products take operands in any order, and kernels read them in place.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import WHILE, OpClass, has_effects, lookup
from jstitch.ir.scope import together
from jstitch.ir.types import TensorType
from jstitch.passes.base.rewrite import Producer, Replacement, is_loop, rewrite
from jstitch.passes.graph.hoist import carrying, changing_values, hoist

LEAST_ELEMENTS = 64  # of something that is no work: LLVM keeps fewer in registers
COMPUTING = (OpClass.LIGHT, OpClass.EXPENSIVE, OpClass.REDUCTION, OpClass.CONTRACTION)
MOVING = (OpClass.SHAPE, OpClass.INDEX)
DEAR = (OpClass.EXPENSIVE, OpClass.REDUCTION, OpClass.CONTRACTION)


def hoist_invariants(graph: Graph) -> Graph:
    """The graph with such ops before their loops, out of all loops in which they are the same."""
    return rewrite(graph, _rule, of=(WHILE,))


def _rule(op: Op, _: Producer) -> Replacement | None:
    if not is_loop(op) or len(op.regions) != 2:
        return None
    body = op.regions[1]
    found = _Invariants(body)
    made = found.worth_keeping()
    if not made:
        return None
    left = [o for o in body.ops if o.results[0] not in made]
    before = found.makers(made)
    return Replacement(op.results, tuple(hoist(op, carrying(body, left, made), before, made)))


@dataclass(eq=False)
class _Invariants:
    """Of a loop's body: values that no turn changes -> what they are made of, of what the loop is given.

    work: such a value -> classes of the ops that make it of that, but for those that only move one array.
    """

    body: Graph
    sources: dict[Value, frozenset[Value]] = field(default_factory=dict)
    work: dict[Value, frozenset[OpClass]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        changing = changing_values(self.body)
        self.producers = self.body.producers()
        for op in self.body.ops:
            for v in op.operands:
                if v not in changing and isinstance(v.type, TensorType):
                    self.sources[v], self.work[v] = frozenset((v,)), frozenset()
            if self._is_same(op):
                self._follow(op)

    def _is_same(self, op: Op) -> bool:
        kind = lookup(op.name).op_class
        if len(op.results) != 1 or has_effects(op) or together(op.scope) or {*op.uses} != {*op.operands}:
            return False
        if kind is OpClass.CONSTANT:
            return True
        return kind in COMPUTING + MOVING and all(v in self.sources for v in op.operands)

    def _follow(self, op: Op) -> None:
        sources = frozenset[Value]().union(*(self.sources[v] for v in op.operands))
        work = frozenset[OpClass]().union(*(self.work[v] for v in op.operands))
        self.sources[op.result] = sources
        kind = lookup(op.name).op_class
        is_read_in_place = kind in MOVING and len(op.operands) == 1
        self.work[op.result] = work if is_read_in_place or not sources else work | {kind}

    def worth_keeping(self) -> list[Value]:
        """What turns read of them, and had better find made."""
        todo = [v for op in self.body.ops if op.results[0] not in self.sources for v in op.uses]
        todo += self.body.outputs
        found: dict[Value, None] = {}
        seen = set[Value]()
        while todo:
            v = todo.pop()
            op = self.producers.get(v)
            if op is None or v in seen or v not in self.sources:
                continue
            seen.add(v)
            if self._pays(v):
                found[v] = None
            else:
                todo += op.operands
        return [op.result for op in self.body.ops if op.results[0] in found]

    def _pays(self, v: Value) -> bool:
        """Whether it is work to make, and no larger than what it is made of."""
        if v.tensor.nbytes > sum(given.tensor.nbytes for given in self.sources[v]):
            return False
        if v.tensor.size < LEAST_ELEMENTS:
            return not self.work[v].isdisjoint(DEAR)
        return bool(self.work[v])

    def makers(self, values: Iterable[Value]) -> list[Op]:
        """The ops that make them, of what the loop is given, in order."""
        needed, todo = set[Op](), list(values)
        while todo:
            op = self.producers.get(todo.pop())
            if op is not None and op not in needed:
                needed.add(op)
                todo += op.operands
        return [op for op in self.body.ops if op in needed]
