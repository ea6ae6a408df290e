"""Compute equal things once.

    %1 = exponential %0                 %1 = exponential %0
    %2 = exponential %0          ->     %3 = add %1, %1
    %3 = add %1, %2

Two ops are equal when name, operands, attributes (but for a collective's number), result types and regions
are. Ops that may have effects are
never merged. Regions of control ops are searched on their own.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops.build import is_splat
from jstitch.ir.ops.collective import CHANNEL
from jstitch.passes.base.rewrite import Producer, Replacement, rewrite
from jstitch.passes.graph.dce import is_pure


def cse(graph: Graph) -> Graph:
    """The graph with the first of equal ops only, frame by frame."""
    return rewrite(graph, _Seen(graph).rule)


class _Seen:
    """The first op of each frame and key."""

    def __init__(self, graph: Graph) -> None:
        self._first: dict[Hashable, Op] = {}
        self._frame: dict[Value, int] = {}
        self._number(graph, 0)

    def _number(self, graph: Graph, frame: int) -> int:
        """Give every result the number of its frame."""
        last = frame
        for op in graph.ops:
            self._frame.update(dict.fromkeys(op.results, frame))
            for region in op.regions:
                last = self._number(region, last + 1)
        return last

    def rule(self, op: Op, producer: Producer) -> Replacement | None:
        if not op.results or not is_pure(op):
            return None
        frame = self._frame[op.results[0]]
        first = self._first.setdefault((frame, key(op)), op)
        return None if first is op else Replacement(first.results)


def key(op: Op, numbers: Mapping[Value, int] | None = None) -> Hashable:
    """Equal for equal ops. `numbers` stands for the values defined inside a region."""
    names = numbers or {}
    operands = tuple(names.get(v, v) for v in op.operands)
    types = tuple(v.type for v in op.results)
    return op.name, operands, _attrs(op.attrs), types, tuple(_region_key(r, names) for r in op.regions)


def _region_key(region: Graph, outer: Mapping[Value, int]) -> Hashable:
    numbers = dict(outer)
    keys: list[Hashable] = [v.type for v in region.inputs]
    numbers.update((v, len(numbers) + i) for i, v in enumerate(region.inputs))
    for op in region.ops:
        keys.append(key(op, numbers))
        numbers.update((v, len(numbers) + i) for i, v in enumerate(op.results))
    return tuple(keys), tuple(numbers.get(v, v) for v in region.outputs)


def _attrs(attrs: Mapping[str, Any]) -> Hashable:
    return tuple(sorted((name, _hashable(value)) for name, value in attrs.items() if name != CHANNEL))


def _hashable(value: Any) -> Hashable:
    """Arrays by their bytes (a splat by one element), with a tag so that 1, 1.0 and True differ."""
    if isinstance(value, np.ndarray):
        one = value.reshape(-1)[:1] if is_splat(value) else value
        return "array", is_splat(value), value.dtype.str, value.shape, one.tobytes()
    return type(value).__name__, value
