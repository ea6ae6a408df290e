"""Sort a few elements by comparing neighbours, which kernels can do, on a CPU.

    %s = sort %x, dim 0                  %a, %b, %c = slices of %x, at 0, 1 and 2
      3 elements                   ->    %a, %b = select (compare LT %b, %a), ...; %b, %c = ...; %a, %b = ...
                                         %s = concatenate %a, %b, %c

Medians of windows, quartiles and ranks of short rows: XLA:CPU calls a library for each row, which takes 20 to
90 ns for an element. Rounds of neighbours (odd-even transposition) keep the order of what is equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import OpClass, build, lookup
from jstitch.ir.types import TensorType
from jstitch.passes.base.context import Context
from jstitch.passes.base.rewrite import Producer, Replacement, rewrite

SORT = "stablehlo.sort"
MOST = 9  # elements, a window of 3 x 3: 36 comparisons
LIBRARY = 250  # what XLA takes for an element, in elements of a window


def write_sorts(graph: Graph, context: Context) -> Graph:
    """The graph without sorts of at most MOST elements, where kernels can compare them."""
    return graph if context.machine.device is not None else rewrite(graph, _rule, of=(SORT,))


def _rule(op: Op, _: Producer) -> Replacement | None:
    x = op.operands[0]
    few = x.shape and 2 <= x.shape[_dim(op)] <= MOST and x.tensor.size > 0
    own = op.uses == op.operands  # the comparison reads nothing else
    if not (few and own and all(map(is_scalar, op.regions[0].ops))):
        return None
    writer = _Writer(op)
    return Replacement(writer.build(), tuple(writer.ops))


def _dim(op: Op) -> int:
    return int(op.attrs.get("dimension", -1)) % len(op.operands[0].shape)


def is_scalar(op: Op) -> bool:
    """Whether kernels have the op of a comparison, for its types."""
    definition = lookup(op.name)
    if definition.op_class is OpClass.CONSTANT:
        return True
    return definition.scalar is not None and definition.scalar(op) is not None


@dataclass
class _Writer:
    op: Op
    ops: list[Op] = field(default_factory=list)

    def build(self) -> tuple[Value, ...]:
        """What each operand becomes."""
        dim = _dim(self.op)
        size = self.op.operands[0].shape[dim]
        rows = [[self._slice(v, dim, k) for v in self.op.operands] for k in range(size)]
        for turn in range(size):
            for k in range(turn % 2, size - 1, 2):
                rows[k], rows[k + 1] = self._in_order(rows[k], rows[k + 1])
        found = [self._emit(build.concatenate(parts, dim)) for parts in zip(*rows, strict=True)]
        joined = self.ops[-len(found)]
        self.ops[-len(found)] = replace(joined, attrs={**joined.attrs, "window": LIBRARY})
        return tuple(found)

    def _emit(self, op: Op) -> Value:
        self.ops.append(op)
        return op.result

    def _slice(self, v: Value, dim: int, at: int) -> Value:
        start, limit = [0] * len(v.shape), list(v.shape)
        start[dim], limit[dim] = at, at + 1
        return self._emit(build.slice_(v, start, limit, [1] * len(start)))

    def _in_order(self, first: Sequence[Value], second: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        """Both, exchanged where the second is before the first."""
        swap = self._before(second, first)
        pairs = list(zip(first, second, strict=True))
        low = [self._emit(build.select(swap, b, a)) for a, b in pairs]
        high = [self._emit(build.select(swap, a, b)) for a, b in pairs]
        return low, high

    def _before(self, left: Sequence[Value], right: Sequence[Value]) -> Value:
        """The comparison, of whole tensors."""
        ops, (result,) = inlined(
            self.op.regions[0], [v for pair in zip(left, right, strict=True) for v in pair]
        )
        self.ops += ops
        return result


def inlined(region: Graph, given: Sequence[Value]) -> tuple[list[Op], list[Value]]:
    """A region of scalar ops on tensors of one shape."""
    made, ops = dict(zip(region.inputs, given, strict=True)), list[Op]()
    for op in region.ops:
        kind = TensorType(given[0].shape, op.result.tensor.dtype)
        if lookup(op.name).op_class is OpClass.CONSTANT:
            ops.append(build.splat(kind, op.attrs["value"].reshape(-1)[0]))
        else:
            ops.append(build.op(op.name, [made[v] for v in op.operands], kind, op.attrs, op.loc))
        made[op.result] = ops[-1].result
    return ops, [made[v] for v in region.outputs]
