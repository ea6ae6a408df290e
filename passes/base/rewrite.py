"""Rewrite a graph op by op, forwards, regions included.

    rule(op) = None                    keep the op
    rule(op) = Replacement(ops, vs)    put `ops` in its place and use `vs` for its results

The rule sees an op whose operands were already replaced and can ask for the producer of any value, so a chain
collapses in one pass. A graph that no rule changes is returned as it is. New ops stand where the one that
they replace stood in the user's code, unless they have a place of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import OpClass, lookup
from jstitch.passes.base.remember import per_object

Producer = Callable[[Value], Op | None]


@dataclass(frozen=True)
class Replacement:
    """New ops in order, and one value per result of the old op (existing values are fine)."""

    values: tuple[Value, ...]
    ops: tuple[Op, ...] = ()


Rule = Callable[[Op, Producer], Replacement | None]


def rewrite(graph: Graph, rule: Rule, of: Collection[str] = ()) -> Graph:
    """The graph after one forward pass of the rule over it and over the regions of its control ops.

    of: names of the ops that the rule is shown; (): all are.
    """
    if of and not has(graph, *of):
        return graph
    return _Rewriter(rule, frozenset(of)).graph(graph)


def has(graph: Graph, *names: str) -> bool:
    """Whether an op of one of these names is in it, at any depth."""
    return not _names(graph).isdisjoint(names)


@per_object
def _names(graph: Graph) -> frozenset[str]:
    return frozenset(op.name for op in graph.walk())


def is_control(op: Op) -> bool:
    """Whether the op's regions are frames of their own (while, case, if)."""
    return lookup(op.name).op_class is OpClass.CONTROL


def is_loop(op: Op) -> bool:
    """Whether it is a loop, not a branch, whose regions take nothing."""
    return is_control(op) and bool(op.regions[0].inputs)


@dataclass
class _Rewriter:
    rule: Rule
    shown: frozenset[str]
    renamed: dict[Value, Value] = field(default_factory=dict)
    producers: dict[Value, Op] = field(default_factory=dict)

    def graph(self, graph: Graph, active: bool = True) -> Graph:
        ops: list[Op] = []
        for op in graph.ops:
            ops += self._op(op, active)
        outputs = tuple(self.renamed.get(v, v) for v in graph.outputs)
        unchanged = len(ops) == len(graph.ops) and all(a is b for a, b in zip(ops, graph.ops, strict=True))
        if unchanged and outputs == graph.outputs:
            return graph
        return Graph(graph.inputs, tuple(ops), outputs)

    def _op(self, old: Op, active: bool) -> tuple[Op, ...]:
        op = self._renamed(old, active)
        is_shown = active and (not self.shown or op.name in self.shown)
        found = self.rule(op, self.producers.get) if is_shown else None
        if found is None:
            for v in op.results:
                self.producers[v] = op
            return (op,)
        self.renamed.update((a, b) for a, b in zip(op.results, found.values, strict=True) if a is not b)
        made = tuple(new.located(op) for new in found.ops)
        self.producers.update((v, new) for new in made for v in new.results)
        return made

    def _renamed(self, op: Op, active: bool) -> Op:
        """The op on the new values. The regions of reductions and scatters keep their own ops."""
        renamed, operands, regions = self.renamed, op.operands, op.regions
        if any(v in renamed for v in operands):
            operands = tuple(renamed.get(v, v) for v in operands)
        if regions:
            inner = active and is_control(op)
            regions = tuple(self.graph(region, inner) for region in regions)
            if all(a is b for a, b in zip(regions, op.regions, strict=True)):
                regions = op.regions
        if operands is op.operands and regions is op.regions:
            return op
        return replace(op, operands=operands, regions=regions)


def map_frames(graph: Graph, change: Callable[[Graph], Graph]) -> Graph:
    """Apply `change` to the graph and to every region of its control ops, inner frames first."""
    ops = tuple(_mapped(op, change) if op.regions and is_control(op) else op for op in graph.ops)
    unchanged = all(a is b for a, b in zip(ops, graph.ops, strict=True))
    return change(graph if unchanged else Graph(graph.inputs, ops, graph.outputs))


def _mapped(op: Op, change: Callable[[Graph], Graph]) -> Op:
    regions = tuple(map_frames(r, change) for r in op.regions)
    unchanged = all(a is b for a, b in zip(regions, op.regions, strict=True))
    return op if unchanged else replace(op, regions=regions)
