"""Leave to XLA the sums that its compiler may make while it multiplies matrices.

    %s = add %x, (dot_general %a, %b)                 ->     %s = add {left} %x, ...
    %s = add (dot_general %a, %b), (broadcast %bias)  ->     %s = add {left} ...

The sum around a residual block, and a bias. Where XLA makes them, a kernel that takes the sum reads both
terms, and saves nothing; where it does not, the sum is a launch of XLA's own. That depends on its version, on
flags and shapes: where XLA can be asked, it is asked whether this pass pays (frontend/asked_gate.py). What
stays out of question is a term that nobody writes to memory but for the sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import OpClass, lookup
from jstitch.passes.base.context import Context
from jstitch.passes.base.plan import is_free
from jstitch.passes.base.rewrite import has, map_frames
from jstitch.passes.graph.keep_counters import ADDED, LEFT

SUM, PRODUCT, BROADCAST = "stablehlo.add", "stablehlo.dot_general", "stablehlo.broadcast_in_dim"


def leave_sums(graph: Graph, context: Context) -> Graph:
    """The graph with such sums marked, at any depth, where the profile leaves them."""
    if not (context.profile.sums and has(graph, PRODUCT)):
        return graph
    return map_frames(graph, lambda frame: _Frame.of(frame).marked())


@dataclass(frozen=True)
class _Frame:
    graph: Graph
    producers: Mapping[Value, Op]
    users: Mapping[Value, Sequence[Op]]
    returned: frozenset[Value]

    @classmethod
    def of(cls, graph: Graph) -> _Frame:
        return cls(graph, graph.producers(), graph.users(), frozenset(graph.outputs))

    def marked(self) -> Graph:
        left: set[Op] = set()
        for op in self.graph.ops:
            left.update(self._sum(op, left))
        if not left:
            return self.graph
        ops = (replace(op, attrs={**op.attrs, LEFT: ADDED}) if op in left else op for op in self.graph.ops)
        return Graph(self.graph.inputs, tuple(ops), self.graph.outputs)

    def _sum(self, op: Op, left: Set[Op]) -> Iterator[Op]:
        """The ops that XLA makes one with a product, if the op is such a sum. left: those found before."""
        if op.name != SUM:
            return
        if (biased := self._biased(op)) is not None:
            yield from biased[0]
            return
        for added, kept in (op.operands, op.operands[::-1]):
            maker = self._alone(added)
            biased = self._biased(maker) if maker else None
            product = biased[1] if biased else maker
            same = kept.type == op.result.type
            if same and product is not None and product.name == PRODUCT and self._in_memory(kept, left):
                yield op
                return

    def _biased(self, op: Op) -> tuple[tuple[Op, ...], Op] | None:
        """An op as the sum of a product that nobody else reads and a repeated row: its ops, the product."""
        if op.name != SUM:
            return None
        for row, other in (op.operands, op.operands[::-1]):
            repeated, product = self.producers.get(row), self._alone(other)
            if _is_row(repeated) and product is not None and _takes_bias(product):
                alone = self._alone(row)
                return ((op,) if alone is None else (op, alone)), product
        return None

    def _alone(self, value: Value) -> Op | None:
        """What makes the value, if one op reads it."""
        alone = len(self.users.get(value, ())) == 1 and value not in self.returned
        return self.producers.get(value) if alone else None

    def _in_memory(self, kept: Value, left: Set[Op]) -> bool:
        """Whether the tensor is in memory, whoever makes the sum."""
        maker = self.producers.get(kept)
        if maker is None or kept in self.returned:
            return True
        libraries = (op for op in (maker, *self.users.get(kept, ())) if _is_library(op))
        return not is_free(maker) and (maker in left or any(libraries))


def _is_library(op: Op) -> bool:
    return lookup(op.name).op_class is OpClass.CONTRACTION


def _is_row(op: Op | None) -> bool:
    """Whether the op repeats a vector along all dimensions but the last."""
    if op is None or op.name != BROADCAST:
        return False
    return tuple(op.attrs["broadcast_dimensions"]) == (op.result.tensor.rank - 1,)


def _takes_bias(op: Op) -> bool:
    """Whether the op is a product to which the library adds a row meanwhile; to batches it does not."""
    return op.name == PRODUCT and not op.attrs["lhs_batching_dimensions"]
