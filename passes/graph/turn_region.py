"""A product and all that is made of its result, up to the next products, with dimensions in another order.

%s = dot_general %q, %k;  softmax of %s's rows;  dot_general %p, %v       ->  the same of a transposed %s
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from jstitch.ir.graph import Op, Value
from jstitch.ir.ops import build, lookup
from jstitch.ir.ops.build import is_broadcast, is_reshape
from jstitch.ir.types import TensorType
from jstitch.passes.base.product_side import PRODUCT, SIDES, Side
from jstitch.passes.base.row_access import data_operands, is_reduction

TRANSPOSE = "stablehlo.transpose"
MOST = 100  # ops of a region
Order = tuple[int, ...]
"""Where each dimension of a value goes."""


@dataclass
class Region:
    """orders: its values -> where their dimensions go. ends: products that read some of them."""

    product: Op
    orders: dict[Value, Order]
    ops: list[Op] = field(default_factory=list)
    ends: list[Op] = field(default_factory=list)

    @classmethod
    def of(
        cls, product: Op, order: Order, users: Mapping[Value, Sequence[Op]], places: Mapping[Op, int]
    ) -> Region | None:
        """None where an op must have its operands as they are, or where no rows are summed.

        order: of the product's result. places: where the ops of the frame stand.
        """
        region = cls(product, {product.result: order})
        ahead = [(places[op], op) for op in users.get(product.result, ())]
        known = {op for _, op in ahead}
        while ahead:
            _, op = heapq.heappop(ahead)  # makers before users
            if op.name == PRODUCT:
                region.ends.append(op)
                continue
            found = region._order_of(op)
            if found is None or len(region.ops) == MOST:
                return None
            region.ops.append(op)
            region.orders |= dict.fromkeys(op.results, found)
            new = {user for v in op.results for user in users.get(v, ())} - known
            known |= new
            for user in new:
                heapq.heappush(ahead, (places[user], user))
        return region if region.ends and any(map(is_reduction, region.ops)) else None

    @property
    def touched(self) -> list[Op]:
        """What is written anew."""
        return [self.product, *self.ops, *self.ends]

    def _order_of(self, op: Op) -> Order | None:
        """Of its results."""
        if op.name == TRANSPOSE:
            order = self.orders[op.operands[0]]
            return tuple(order[d] for d in op.attrs["permutation"])
        if is_reduction(op):
            return self._reduced(op)
        if lookup(op.name).op_class.is_elementwise:
            known = {self.orders[v] for v in op.operands if v in self.orders}
            alike = all(v.shape in (op.result.shape, ()) for v in op.operands)
            return known.pop() if len(known) == 1 and alike else None
        if is_broadcast(op):
            return self._repeated(op)
        return self._reshaped(op) if is_reshape(op) else None

    def _reduced(self, op: Op) -> Order | None:
        data = data_operands(op)
        known = {self.orders[v] for v in data if v in self.orders}
        if len(known) != 1 or not self.orders.keys().isdisjoint(op.uses[len(data) :]):
            return None
        (order,) = known
        return ranked([place for d, place in enumerate(order) if d not in op.attrs["dimensions"]])

    def _repeated(self, op: Op) -> Order | None:
        """Rows that are repeated behind themselves: their dimensions in order, then new ones."""
        order, dims = self.orders[op.operands[0]], tuple(op.attrs["broadcast_dimensions"])
        new = range(len(dims), op.result.tensor.rank)
        return (*order, *new) if dims == tuple(range(len(dims))) else None

    def _reshaped(self, op: Op) -> Order | None:
        """Dimensions of one element behind the others come, or go."""
        order, before, after = self.orders[op.operands[0]], op.operands[0].shape, op.result.shape
        common = min(len(before), len(after))
        if before[:common] != after[:common] or {*before[common:], *after[common:]} - {1}:
            return None
        if sorted(order[:common]) != list(range(common)):
            return None
        return (*order[:common], *range(common, len(after)))

    # -- the same in the new order ---------------------------------------------------------------------------

    def changes(self, makers: Mapping[Value, Op]) -> dict[Op, tuple[Op, ...]]:
        """What becomes of each op. makers: of the frame's values."""
        values: dict[Value, Value] = {}
        made = {self.product: self._first(values)}
        for op in self.ops:
            made[op] = self._turned(op, values, makers)
        for op in self.ends:
            made[op] = self._last(op, values)
        return {op: tuple(new.located(op) for new in ops) for op, ops in made.items()}

    def _first(self, values: dict[Value, Value]) -> Iterator[Op]:
        """The product, with operands in the new order."""
        op, order = self.product, self.orders[self.product.result]
        batch, *free = roles(op)
        first, second = sorted((0, 1), key=lambda n: [order[d] for d in free[n]])
        attrs, views = dict(op.attrs), []  # of two precisions XLA takes the higher one, whichever is first
        for name, n in zip(SIDES, (first, second), strict=True):
            side = Side.of(op, n)
            by_place = dict(zip((order[d] for d in free[n]), side.free, strict=True))
            rows = [by_place[place] for place in sorted(by_place)]
            views.append(build.transpose(side.value, (*side.batch, *rows, *side.contracted)))
            attrs[f"{name}_batching_dimensions"] = tuple(range(len(batch)))
            attrs[f"{name}_contracting_dimensions"] = tuple(
                range(len(batch) + len(rows), len(side.value.shape))
            )
        result = values[op.result] = Value(moved(op.result.tensor, order))
        yield from views
        yield replace(op, operands=tuple(v.result for v in views), results=(result,), attrs=attrs)

    def _turned(self, op: Op, values: dict[Value, Value], makers: Mapping[Value, Op]) -> Iterator[Op]:
        if op.name == TRANSPOSE:
            values[op.result] = values[op.operands[0]]
            return
        order = next(self.orders[v] for v in op.operands if v in self.orders)
        turned = {v: values[v] for v in op.operands if v in values}
        shape = op.operands[0].shape if is_reduction(op) else op.results[0].shape
        for v in op.operands:
            if v not in turned and v.shape and v.shape == shape:
                others = tuple(_other(v, order, makers))
                turned[v] = others[-1].result
                yield from others
        attrs = dict(op.attrs)
        if is_reduction(op):
            attrs["dimensions"] = tuple(sorted(order[d] for d in op.attrs["dimensions"]))
        results = tuple(Value(moved(v.tensor, self.orders[v])) for v in op.results)
        values |= zip(op.results, results, strict=True)
        yield replace(op, operands=tuple(turned.get(v, v) for v in op.operands), results=results, attrs=attrs)

    def _last(self, op: Op, values: Mapping[Value, Value]) -> Iterator[Op]:
        """A product of what was turned; its result is turned back."""
        attrs, sides = dict(op.attrs), [Side.of(op, number) for number in (0, 1)]
        first = len(sides[0].batch)
        places = list(range(first))
        for name, side in zip(SIDES, sides, strict=True):
            order = self.orders.get(side.value, tuple(range(side.value.tensor.rank)))
            attrs[f"{name}_batching_dimensions"] = tuple(order[d] for d in side.batch)
            attrs[f"{name}_contracting_dimensions"] = tuple(order[d] for d in side.contracted)
            places += [first + n for n in ranked([order[d] for d in side.free])]
            first += len(side.free)
        operands = tuple(values.get(v, v) for v in op.operands)
        result = Value(moved(op.result.tensor, tuple(places)))
        yield replace(op, operands=operands, results=(result,), attrs=attrs)
        yield replace(build.transpose(result, places), results=op.results)


def roles(product: Op) -> tuple[range, range, range]:
    """Dimensions of its result: batch, the left operand's own, the right operand's own."""
    left, right = Side.of(product, 0), Side.of(product, 1)
    b, r = len(left.batch), len(left.batch) + len(left.free)
    return range(b), range(b, r), range(r, r + len(right.free))


def _other(v: Value, order: Order, makers: Mapping[Value, Op]) -> Iterator[Op]:
    """What is read besides, in that order: what is repeated is turned before."""
    maker = makers.get(v)
    if maker is None or not is_broadcast(maker):
        yield build.transpose(v, inverse(order))
        return
    dims = [order[d] for d in maker.attrs["broadcast_dimensions"]]
    turned = build.transpose(maker.operands[0], sorted(range(len(dims)), key=dims.__getitem__))
    yield turned
    yield build.broadcast(turned.result, moved(v.tensor, order).shape, sorted(dims))


def ranked(places: Sequence[int]) -> Order:
    """The same order without gaps."""
    known = sorted(places)
    return tuple(map(known.index, places))


def moved(kind: TensorType, order: Order) -> TensorType:
    return TensorType(tuple(kind.shape[d] for d in inverse(order)), kind.dtype)


def inverse(order: Sequence[int]) -> Order:
    """Which dimension is at each place."""
    return tuple(map(order.index, range(len(order))))
