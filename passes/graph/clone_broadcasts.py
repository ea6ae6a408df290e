"""Give every reader its own broadcast, so that no kernel ever writes one.

    %b = broadcast_in_dim %s            %b  = broadcast_in_dim %s
    %1 = add %x, %b              ->     %1  = add %x, %b
    %2 = multiply %y, %b                %b' = broadcast_in_dim %s
                                        %2  = multiply %y, %b'

A broadcast is an index in whoever reads it; shared between two patterns it would be a tensor in memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops.build import grows
from jstitch.passes.base.rewrite import is_control


def clone_broadcasts(graph: Graph) -> Graph:
    """The graph in which an op that repeats elements has one user. Frames are treated one by one."""
    shared = {v for v, users in graph.users().items() if len(users) > 1}
    cloner = _Cloner({op.result: op for op in graph.ops if grows(op) and op.result in shared})
    for op in graph.ops:
        cloner.visit(op)
    if all(a is b for a, b in zip(cloner.ops, graph.ops, strict=False)) and len(cloner.ops) == len(graph.ops):
        return graph
    return Graph(graph.inputs, tuple(cloner.ops), graph.outputs)


@dataclass
class _Cloner:
    broadcasts: dict[Value, Op]
    ops: list[Op] = field(default_factory=list)
    used: set[Value] = field(default_factory=set)

    def visit(self, op: Op) -> None:
        operands = dict((v, self._own(v)) for v in op.operands)
        regions = tuple(clone_broadcasts(r) if is_control(op) else r for r in op.regions)
        same = all(a is b for a, b in operands.items())
        same = same and all(a is b for a, b in zip(regions, op.regions, strict=True))
        new = op if same else replace(op, operands=tuple(operands[v] for v in op.operands), regions=regions)
        self.ops.append(new)

    def _own(self, value: Value) -> Value:
        """The broadcast itself for its first reader, a copy for the others."""
        if value not in self.broadcasts:
            return value
        if value not in self.used:
            self.used.add(value)
            return value
        copy = replace(self.broadcasts[value], results=(Value(value.type),))
        self.ops.append(copy)
        return copy.result
