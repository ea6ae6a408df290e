"""A graph and its plan as a picture in Graphviz's language: an op is a box, a pattern a coloured cluster.

digraph { subgraph cluster_0 { label="pattern 0" "%3 exponential" } "%3 exponential" -> "%4 add" }
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pydot

from jstitch.ir.graph import Graph, Op, Value
from jstitch.passes.base.plan import FusionPlan, is_free
from jstitch.passes.fuse.print_plan import value_names

# colours that people who see fewer of them can tell apart (Okabe and Ito)
COLOURS = ("#56B4E9", "#E69F00", "#009E73", "#F0E442", "#CC79A7", "#D55E00", "#0072B2")


def draw_graph(graph: Graph, plans: Sequence[FusionPlan]) -> str:
    """The picture's source. plans: of the graph and of the frames in it; free ops are not drawn."""
    picture = pydot.Dot("jstitch", graph_type="digraph")
    picture.set_node_defaults(shape="box", fontname="monospace")
    for number, plan in enumerate(plans):
        _Drawing(picture, plan, f"f{number}_").draw()
    return str(picture.to_string())


class _Drawing:
    """One frame. prefix: tells the frames' nodes apart."""

    def __init__(self, picture: pydot.Dot, plan: FusionPlan, prefix: str) -> None:
        self.picture, self.plan, self.prefix = picture, plan, prefix
        self.names = value_names(plan.frame)
        self.why = {(r.producer, r.consumer): f"{r.rule}: {r.reason}" for r in plan.refusals}

    def draw(self) -> None:
        inside: set[Op] = set()
        for number, pattern in enumerate(self.plan.patterns):
            colour = COLOURS[number % len(COLOURS)]
            label, name = f"pattern {number} ({pattern.origin})", f"{self.prefix}{number}"
            cluster = pydot.Cluster(name, label=label, style="filled", fillcolor=f"{colour}40", color=colour)
            for op in (op for op in pattern.ops if not is_free(op)):
                cluster.add_node(self._node(op))
                inside.add(op)
            self.picture.add_subgraph(cluster)  # type: ignore[arg-type]  # its type hint leaves clusters out
        for op in self.plan.frame.ops:
            if op not in inside and not is_free(op):
                self.picture.add_node(self._node(op))
        for edge in self._edges():
            self.picture.add_edge(edge)

    def _node(self, op: Op) -> pydot.Node:
        first = op.results[0] if op.results else None
        label = f"{self.names.get(first, '') if first else ''} {op.name.rpartition('.')[2]}"
        where = "\\n" + op.loc.replace("\\", "\\\\") if op.loc else ""
        kind = f"\\n{first.type}" if first else ""
        return pydot.Node(self._name(op), label=f"{label}{kind}{where}")

    def _name(self, op: Op) -> str:
        return f"{self.prefix}{self.names[op.results[0]] if op.results else id(op)}"

    def _edges(self) -> Iterator[pydot.Edge]:
        makers: dict[Value, Op] = self.plan.frame.producers()
        for op in self.plan.frame.ops:
            for producer in dict.fromkeys(makers.get(v) for v in op.uses):
                if producer is None or is_free(producer) or is_free(op):
                    continue
                why = self.why.get((producer, op))
                edge = pydot.Edge(self._name(producer), self._name(op))
                if why:
                    edge.set("style", "dashed")
                    edge.set("tooltip", why)
                yield edge
