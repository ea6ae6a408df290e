"""What a sort's comparison puts items in order by: keys of single items, the one that decides first in front.

    or(lt(f(a0), f(b0)), and(eq(f(a0), f(b0)), gt(a1, b1)))   ->   f(a0) ascending, then a1 descending

A `top_k` is a sort, largest first, of which the first few items are kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.reason import Reason
from jstitch.passes.base.same_ops import are_same

SORT, TOP_K = "stablehlo.sort", "chlo.top_k"
COMPARE, OR, AND = "stablehlo.compare", "stablehlo.or", "stablehlo.and"
STRICT: Mapping[str, bool] = {"LT": False, "GT": True}
"""Directions of comparisons -> whether the larger left side comes first."""
NO_ORDER = Reason("sort", "its comparison is no order by keys of single items")


@dataclass(frozen=True)
class Key:
    """of: a value of the comparison's region that is made of the left item alone, or an operand.

    descends: largest first.
    """

    of: Value
    descends: bool


def dim_of(op: Op) -> int:
    """The dimension that a sort sorts along."""
    return int(op.attrs.get("dimension", -1)) % len(op.operands[0].shape)


def may_sort(op: Op) -> bool:
    """Whether the op puts items in order."""
    return op.name in (SORT, TOP_K)


def kept_of(op: Op) -> int:
    """How many items of a row are results."""
    return op.results[0].tensor.shape[dim_of(op)]


def order_of(op: Op) -> Sequence[Key] | Reason:
    """The keys of a sort, or why there are none."""
    if op.name == TOP_K:
        return (Key(op.operands[0], descends=True),)
    region = op.regions[0]
    if op.uses != op.operands or len(region.outputs) != 1:
        return Reason("sort", "its comparison reads more than two items")
    found = _Reader(region).keys(region.outputs[0])
    return found or NO_ORDER


class _Reader:
    def __init__(self, region: Graph) -> None:
        self.producers = region.producers()
        self.number = {v: n for n, v in enumerate(region.inputs)}

    def keys(self, v: Value) -> tuple[Key, ...]:
        """Of a comparison; none where it is no order."""
        found: list[Key] = []
        rest: Value | None = v
        while rest is not None:
            step = self.first_of(rest)
            if step is None:
                return ()
            key, rest = step
            found.append(key)
        return tuple(found)

    def first_of(self, v: Value) -> tuple[Key, Value | None] | None:
        """The key that decides first, and the comparison of items that it has as equal, if there is one."""
        op = self.producers.get(v)
        if op is None:
            return None
        if op.name != OR:
            key = self.key(op)
            return None if key is None else (key, None)
        for first, others in (op.operands, op.operands[::-1]):
            decides = self.producers.get(first)
            key = None if decides is None else self.key(decides)
            rest = None if key is None else self.among_equals(others, key)
            if key is not None and rest is not None:
                return key, rest
        return None

    def key(self, op: Op) -> Key | None:
        """What one comparison compares, if it is the same of both items and puts all in order."""
        descends = STRICT.get(op.attrs.get("comparison_direction", ""))
        if op.name != COMPARE or descends is None or not _is_total(op):
            return None
        left, right = op.operands
        if self.are_alike(left, right):
            return Key(left, descends)
        return Key(right, not descends) if self.are_alike(right, left) else None

    def among_equals(self, v: Value, key: Key) -> Value | None:
        """What compares items that the key has as equal."""
        op = self.producers.get(v)
        if op is None or op.name != AND:
            return None
        for equal, rest in (op.operands, op.operands[::-1]):
            made = self.producers.get(equal)
            if made is not None and self.has_as_equal(made, key):
                return rest
        return None

    def has_as_equal(self, op: Op, key: Key) -> bool:
        if op.name != COMPARE or op.attrs.get("comparison_direction") != "EQ" or not _is_total(op):
            return False
        left, right = op.operands if key.of is op.operands[0] else op.operands[::-1]
        return left is key.of and self.are_alike(left, right)

    def are_alike(self, left: Value, right: Value) -> bool:
        """Whether the right one is of the right item what the left one is of the left item."""
        todo, seen = [(left, right)], set[tuple[Value, Value]]()
        while todo:
            pair = todo.pop()
            if pair in seen:
                continue
            seen.add(pair)
            if self.are_items(*pair):
                continue
            one, other = map(self.producers.get, pair)
            if one is None or other is None or not are_same(one, other):
                return False
            todo += zip(one.operands, other.operands, strict=True)
        return True

    def are_items(self, left: Value, right: Value) -> bool:
        """Whether they are the left and the right one of an operand."""
        number = self.number.get(left, -1)
        return number % 2 == 0 and self.number.get(right) == number + 1


def _is_total(op: Op) -> bool:
    """Whether a comparison has NaN, too, in a place of its own."""
    return not op.operands[0].tensor.dtype.is_float or op.attrs.get("compare_type") == "TOTALORDER"
