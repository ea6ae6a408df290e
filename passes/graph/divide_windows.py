"""Reduce large windows over several dimensions along one dimension after the other, on a CPU.

    %w = reduce_window add %x, 0.0         %r = reduce_window add %x, 0.0, window [7, 1]
      window [7, 7]                   ->   %w = reduce_window add %r, 0.0, window [1, 7]

Box filters and large pools: 14 additions for an element instead of 49, and windows that can be written out
(unroll_windows). Small ones are written out whole, and those of narrow floats stay.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.types import TensorType
from jstitch.passes.base.context import Context
from jstitch.passes.base.rewrite import Producer, Replacement, rewrite
from jstitch.passes.graph.unroll_windows import MAX_WINDOW, is_identity, is_prefix

LARGE = 16  # elements of a window; fewer are as quick written out whole
_EACH = ("window_strides", "base_dilations", "window_dilations")


def divide_windows(graph: Graph, context: Context) -> Graph:
    """The graph with a reduction for each dimension of windows that are too large to be written out."""
    if context.machine.device is not None:
        return graph
    return rewrite(graph, _rule, of=("stablehlo.reduce_window",))


def _rule(op: Op, producer: Producer) -> Replacement | None:
    if "monoid" not in op.attrs:
        return None
    x, sizes = op.operands[0].tensor, op.attrs["window_dimensions"]
    large = sum(n > 1 for n in sizes) > 1 and math.prod(sizes) > LARGE and max(sizes) <= MAX_WINDOW
    whole = x.dtype.compute is x.dtype and x.size > 0 and op.result.tensor.size > 0
    if not (large and whole and is_identity(op, producer)):
        return None
    edges = op.attrs.get("padding") or ((0, 0),) * x.rank
    if any(map(is_prefix, x.shape, sizes, edges)):
        return None
    made = tuple(_divided(op))
    return Replacement((made[-1].result,), made)


def _divided(op: Op) -> Iterator[Op]:
    """One reduction for each dimension of which not every element is a window."""
    value, init = op.operands
    rank = value.tensor.rank
    for d in range(rank):
        attrs = {name: op.attrs[name] for name in ("monoid",)}
        attrs["window_dimensions"] = _only(d, op.attrs["window_dimensions"], 1)
        attrs |= {name: _only(d, op.attrs[name], 1) for name in _EACH if op.attrs.get(name)}
        if op.attrs.get("padding"):
            attrs["padding"] = _only(d, op.attrs["padding"], (0, 0))
        if all(k in (1, (0, 0)) for name, own in attrs.items() if name != "monoid" for k in own):
            continue
        shape = (*op.result.shape[: d + 1], *value.shape[d + 1 :])
        result = Value(TensorType(shape, value.tensor.dtype))
        yield replace(op, operands=(value, init), results=(result,), attrs=attrs)
        value = result


def _only(dim: int, values: Sequence[Any], other: Any) -> tuple[Any, ...]:
    """The dimension's own value, and another one for all others."""
    return tuple(v if d == dim else other for d, v in enumerate(values))
