"""Give every reader of an index its own copy of the arithmetic behind it: no kernel computes it for others.

    %j = subtract 27, %i                               %j  = subtract 27, %i
    %a = dynamic_slice %xs, %j                 ->      %a  = dynamic_slice %xs, %j
    %s = dynamic_update_slice %stack, %y, %j           %j' = subtract 27, %i       (for who makes the update)
                                                       %s  = dynamic_update_slice %stack, %y, %j'

An index is a few integer scalars' worth of work, in whoever needs it; from kernel to kernel it would be a
tensor in memory, and an order between them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import OpClass, lookup
from jstitch.ir.types import TensorType
from jstitch.passes.base.context import Context
from jstitch.passes.base.rewrite import is_control
from jstitch.passes.graph.keep_counters import LEFT

_PLACES = "says where an update goes"


def clone_indices(graph: Graph, context: Context) -> Graph:
    """The graph with index arithmetic copied, frame by frame, where kernels make updates."""
    return _cloned(graph) if context.profile.updates else graph


def _cloned(graph: Graph) -> Graph:
    cloner = _Cloner(graph)
    for op in graph.ops:
        cloner.visit(op)
    outputs = tuple(cloner.kept(v) for v in graph.outputs)
    return Graph(graph.inputs, tuple(cloner.ops), outputs)


def is_index(op: Op) -> bool:
    """Cheap arithmetic of integer scalars."""
    kind = op.results[0].type if len(op.results) == 1 else None
    if op.regions or not isinstance(kind, TensorType) or kind.shape or kind.dtype.is_float:
        return False
    return lookup(op.name).op_class is OpClass.LIGHT and bool(op.operands)


@dataclass
class _Cloner:
    graph: Graph
    ops: list[Op] = field(default_factory=list)
    returned: dict[Value, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.arithmetic = {op.result: op for op in self.graph.ops if is_index(op)}

    def visit(self, op: Op) -> None:
        if is_index(op):
            return
        attrs = {LEFT: _PLACES} if lookup(op.name).in_place else {}
        copies: dict[Value, Value] = {}
        operands = tuple(self._copy(v, attrs, copies) for v in op.operands)
        regions = tuple(_cloned(r) if is_control(op) else r for r in op.regions)
        same = operands == op.operands and all(a is b for a, b in zip(regions, op.regions, strict=True))
        self.ops.append(op if same else replace(op, operands=operands, regions=regions))

    def kept(self, value: Value) -> Value:
        """What the frame returns: computed once."""
        return self._copy(value, {}, self.returned)

    def _copy(self, value: Value, attrs: dict[str, str], copies: dict[Value, Value]) -> Value:
        """The value, computed again from what is no index arithmetic."""
        todo = [value]
        while todo:
            op = self.arithmetic.get(todo[-1])
            missing = [v for v in op.operands if v in self.arithmetic and v not in copies] if op else []
            if op is None or todo[-1] in copies or not missing:
                v = todo.pop()
                if op is not None and v not in copies:
                    self.ops.append(_copied(op, attrs, copies))
                    copies[v] = self.ops[-1].result
            else:
                todo += missing
        return copies.get(value, value)


def _copied(op: Op, attrs: dict[str, str], copies: dict[Value, Value]) -> Op:
    operands = tuple(copies.get(v, v) for v in op.operands)
    return replace(op, operands=operands, results=(Value(op.result.type),), attrs={**op.attrs, **attrs})
