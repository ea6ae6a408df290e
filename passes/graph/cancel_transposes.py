"""What lies between transposes is made in the order that needs fewer of them.

%t [b, w, c] = transpose %x [b, c, w]             %m [b, w] = reduce %x over 1
%m [b, w] = reduce %t over 2                ->    %d [b, c, w] = subtract %x, (%m, repeated along 1)
%d = subtract %t, (%m, repeated along 2)
%y [b, c, w] = transpose %d

Norms over channels that lie first in memory are written so, with `moveaxis` before and behind. XLA copies
what is transposed; a kernel reads it in place, but element by element: rows go across the lines of memory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import build
from jstitch.passes.base.product_side import PRODUCT
from jstitch.passes.base.rewrite import has, map_frames
from jstitch.passes.base.sort_ops import sort_ops
from jstitch.passes.graph.dim_orders import is_in_place, settled, tied, turn
from jstitch.passes.graph.swap_products import exchanged, is_even, swapped
from jstitch.passes.graph.turn_region import TRANSPOSE, Order, inverse, moved

MOST = 400  # ops that are made in another order together


def cancel_transposes(graph: Graph) -> Graph:
    """The graph with fewer bytes transposed."""
    return map_frames(graph, _cancelled) if has(graph, TRANSPOSE) else graph


def _cancelled(frame: Graph) -> Graph:
    found = _Frame(frame.producers(), frame.users(), frozenset(frame.outputs))
    changes: dict[Op, tuple[Op, ...]] = {}
    tried, known = set[tuple[Value, Order]](), set[Op]()
    for start, order in _starts(frame):
        region = None if (start, order) in tried else _Region.of(start, order, found)
        if region is None or not region.ops:
            continue
        tried.update(region.orders.items())
        around = {*region.ops, *region.transposes()}
        if region.saved() > 0 and known.isdisjoint(around):
            changes |= region.changes()
            known |= around
    if not changes:
        return frame
    return replace(frame, ops=sort_ops([new for op in frame.ops for new in changes.get(op, (op,))]))


def _starts(frame: Graph) -> Iterator[tuple[Value, Order]]:
    """What transposes make, in the order of what they read; then the other way round."""
    turns = [
        op
        for op in frame.ops
        if op.name == TRANSPOSE and not is_in_place(op.attrs["permutation"], op.result.shape)
    ]
    yield from ((op.result, settled(op.attrs["permutation"], op.result.shape)) for op in turns)
    for op in turns:
        (read,) = op.operands
        yield read, settled(inverse(op.attrs["permutation"]), read.shape)


@dataclass(frozen=True)
class _Frame:
    makers: Mapping[Value, Op]
    users: Mapping[Value, Sequence[Op]]
    outputs: Collection[Value]


@dataclass
class _Region:
    """orders: its values -> where their dimensions go. ops: what is made in the new order."""

    frame: _Frame
    orders: dict[Value, Order]
    ops: dict[Op, None] = field(default_factory=dict)

    @classmethod
    def of(cls, start: Value, order: Order, frame: _Frame) -> _Region | None:
        """All that must have its dimensions in another order if that value has."""
        region = cls(frame, {start: order})
        todo = [start]
        while todo:
            v = todo.pop()
            for op in (*region._maker(v), *frame.users.get(v, ())):
                known = None if op in region.ops or op.name == TRANSPOSE else tied(op, v, region.orders[v])
                if known is None:
                    continue
                if len(region.ops) == MOST or any(region.orders.get(w, o) != o for w, o in known.items()):
                    return None
                region.ops[op] = None
                todo += [w for w in known if w not in region.orders]
                region.orders |= known
        return region

    def _maker(self, v: Value) -> tuple[Op, ...]:
        maker = self.frame.makers.get(v)
        return () if maker is None else (maker,)

    def transposes(self) -> set[Op]:
        """At its borders."""
        return {op for v in self.orders for op in self._transposes(v)}

    def saved(self) -> int:
        """Bytes that are transposed now, and no longer, less those that are transposed then."""
        return sum(self._before(v) - self._behind(v, order) for v, order in self.orders.items())

    def _before(self, v: Value) -> int:
        """Bytes of the transposes at a value as it is."""
        found = self._transposes(v)
        return sum(
            v.tensor.nbytes for op in found if not is_in_place(op.attrs["permutation"], op.result.shape)
        )

    def _transposes(self, v: Value) -> list[Op]:
        return [op for op in (*self._maker(v), *self._readers(v)) if op.name == TRANSPOSE]

    def _readers(self, v: Value) -> list[Op]:
        """Outside; transposes of what is inside are its own entry."""
        users = self.frame.users.get(v, ())
        return [op for op in users if op not in self.ops and self.orders.keys().isdisjoint(op.results)]

    def _behind(self, v: Value, order: Order) -> int:
        """The same in the new order."""
        made = any(op in self.ops for op in self._maker(v))
        places = [not (made or self._is_there(v, order))]
        others = self._readers(v)
        turns = [op for op in others if op.name == TRANSPOSE]
        places += [
            not is_in_place([order[d] for d in op.attrs["permutation"]], op.result.shape) for op in turns
        ]
        if len(turns) < len(others) or v in self.frame.outputs:
            places.append(not is_in_place(order, v.shape))
        return v.tensor.nbytes * sum(places)

    def _is_there(self, v: Value, order: Order) -> bool:
        """Whether what comes from outside has the new order anyway."""
        maker = self.frame.makers.get(v)
        if maker is None or maker.name != TRANSPOSE:
            return is_in_place(order, v.shape) or self._exchanged(v, order)
        read = self.orders.get(maker.operands[0], tuple(range(len(order))))
        line = inverse(order)
        return is_in_place([read[maker.attrs["permutation"][d]] for d in line], [v.shape[d] for d in line])

    def _exchanged(self, v: Value, order: Order) -> bool:
        """Whether it is a product's, for this alone: with its operands exchanged it has the new order."""
        maker = self.frame.makers.get(v)
        if maker is None or maker.name != PRODUCT or v in self.frame.outputs or not is_even(maker):
            return False
        return inverse(order) == exchanged(maker) and all(op in self.ops for op in self.frame.users[v])

    def changes(self) -> dict[Op, tuple[Op, ...]]:
        """What becomes of each op; what `canonicalize` makes one transpose of, or none, stands as two."""
        values = {v: Value(moved(v.tensor, order)) for v, order in self.orders.items() if _moves(order)}
        values = {v: values.get(v, v) for v in self.orders}
        made = {op: [new.located(op) for new in turn(op, self.orders, values)] for op in self.ops}
        first = next(iter(self.ops))
        for v, new in values.items():
            if new is v:
                continue
            order = self.orders[v]
            if not any(op in self.ops for op in self._maker(v)):
                made[first].append(self._turned(v, order, new).located(first))
            elif any(op not in self.ops for op in self.frame.users.get(v, ())) or v in self.frame.outputs:
                made[first].append(replace(build.transpose(new, order), results=(v,)).located(first))
        return {op: tuple(ops) for op, ops in made.items()}

    def _turned(self, v: Value, order: Order, new: Value) -> Op:
        """What makes a value from outside in the new order."""
        if self._exchanged(v, order):
            return swapped(self.frame.makers[v], (new,))
        return replace(build.transpose(v, inverse(order)), results=(new,))


def _moves(order: Order) -> bool:
    return order != tuple(range(len(order)))
