"""Leave to XLA the sums that its library makes while it multiplies matrices.

    %q = dot_general %x, %w                            %q = dot_general %x, %w
    %p = dot_general (f %q), %v                 ->     %p = dot_general (f %q), %v
    %s = add %x, (add %p, (broadcast %bias))           %s = add {left} %x, (add {left} %p, ...)

The sum around a residual block. %x is in memory, because a product reads it, and dead afterwards: the library
adds the second product to it in place. So it is with a product that nothing but the sum reads. A kernel that
takes the sum reads both, and saves nothing.

    %s = add (dot_general %x, %w), (broadcast %bias)   ->     %s = add {left} ...

A bias. A kernel that takes the sum reads as much as one that finds it made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import OpClass, lookup
from jstitch.passes.base.plan import is_free
from jstitch.passes.base.profile import current
from jstitch.passes.base.rewrite import map_frames
from jstitch.passes.graph.keep_counters import ADDED, LEFT

SUM, PRODUCT, BROADCAST = "stablehlo.add", "stablehlo.dot_general", "stablehlo.broadcast_in_dim"
SEARCH = 2000  # ops looked at between a tensor and the product that is added to it


def leave_sums(graph: Graph) -> Graph:
    """The graph with such sums marked, at any depth, where products stand as the library will run them."""
    if not current().products or not any(op.name == PRODUCT for op in graph.walk()):
        return graph
    return map_frames(graph, lambda frame: _Frame.of(frame).marked())


@dataclass(frozen=True)
class _Frame:
    graph: Graph
    producers: Mapping[Value, Op]
    users: Mapping[Value, Sequence[Op]]
    place: Mapping[Op, int]
    returned: frozenset[Value]

    @classmethod
    def of(cls, graph: Graph) -> _Frame:
        place = {op: n for n, op in enumerate(graph.ops)}
        return cls(graph, graph.producers(), graph.users(), place, frozenset(graph.outputs))

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
            if product is not None and product.name == PRODUCT and self._is_dead(kept, op, product, left):
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

    def _is_dead(self, kept: Value, total: Op, product: Op, left: Set[Op]) -> bool:
        """Whether the tensor is in memory anyway, and nobody wants it once the product is made."""
        maker = self.producers.get(kept)
        others = [op for op in self.users.get(kept, ()) if op is not total]
        if maker is None or is_free(maker) or kept in self.returned or kept.type != total.result.type:
            return False
        libraries = (op for op in (maker, *others) if lookup(op.name).op_class is OpClass.CONTRACTION)
        in_memory = maker in left or any(libraries)
        return in_memory and self._are_before(set(others), product, self.place[maker])

    def _are_before(self, wanted: set[Op], product: Op, first: int) -> bool:
        """Whether the product waits for all of these ops; none stands before `first`."""
        seen: set[Op] = {product}
        todo = [product]
        while todo and len(seen) < SEARCH:
            makers = (self.producers.get(v) for v in todo.pop().uses)
            new = {op for op in makers if op is not None and self.place[op] > first} - seen
            seen |= new
            todo += new
        return wanted <= seen


def _is_row(op: Op | None) -> bool:
    """Whether the op repeats a vector along all dimensions but the last."""
    if op is None or op.name != BROADCAST:
        return False
    return tuple(op.attrs["broadcast_dimensions"]) == (op.result.tensor.rank - 1,)


def _takes_bias(op: Op) -> bool:
    """Whether the op is a product to which the library adds a row meanwhile; to batches it does not."""
    return op.name == PRODUCT and not op.attrs["lhs_batching_dimensions"]
