"""Rewrite a graph op by op, forwards, regions included.

    rule(op) = None                    keep the op
    rule(op) = Replacement(ops, vs)    put `ops` in its place and use `vs` for its results

The rule sees an op whose operands were already replaced and can ask for the producer of any value, so a chain
collapses in one pass. A graph that no rule changes is returned as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import OpClass, lookup

Producer = Callable[[Value], Op | None]


@dataclass(frozen=True)
class Replacement:
    """New ops in order, and one value per result of the old op (existing values are fine)."""

    values: tuple[Value, ...]
    ops: tuple[Op, ...] = ()


Rule = Callable[[Op, Producer], Replacement | None]


def rewrite(graph: Graph, rule: Rule) -> Graph:
    """The graph after one forward pass of the rule over it and over the regions of its control ops."""
    return _Rewriter(rule).graph(graph)


def is_control(op: Op) -> bool:
    """Whether the op's regions are frames of their own (while, case, if)."""
    return lookup(op.name).op_class is OpClass.CONTROL


@dataclass
class _Rewriter:
    rule: Rule
    renamed: dict[Value, Value] = field(default_factory=dict)
    producers: dict[Value, Op] = field(default_factory=dict)

    def graph(self, graph: Graph, active: bool = True) -> Graph:
        ops = tuple(new for op in graph.ops for new in self._op(op, active))
        outputs = tuple(self.renamed.get(v, v) for v in graph.outputs)
        unchanged = len(ops) == len(graph.ops) and all(a is b for a, b in zip(ops, graph.ops, strict=True))
        return graph if unchanged and outputs == graph.outputs else Graph(graph.inputs, ops, outputs)

    def _op(self, old: Op, active: bool) -> tuple[Op, ...]:
        op = self._renamed(old, active)
        found = self.rule(op, self.producers.get) if active else None
        if found is None:
            self.producers.update(dict.fromkeys(op.results, op))
            return (op,)
        self.renamed.update((a, b) for a, b in zip(op.results, found.values, strict=True) if a is not b)
        self.producers.update((v, new) for new in found.ops for v in new.results)
        return found.ops

    def _renamed(self, op: Op, active: bool) -> Op:
        """The op on the new values. The regions of reductions and scatters keep their own ops."""
        operands = tuple(self.renamed.get(v, v) for v in op.operands)
        inner = active and is_control(op) if op.regions else False
        regions = tuple(self.graph(region, inner) for region in op.regions)
        if operands == op.operands and all(a is b for a, b in zip(regions, op.regions, strict=True)):
            return op
        return replace(op, operands=operands, regions=regions)
