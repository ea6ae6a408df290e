"""What a kernel is given: the values of its inputs while a program runs, also inside its loops.

while ...: %x1 = kernel(%x)     ->     while ...: (..., %x of the last turn)     ->     extra results
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import build
from jstitch.ir.types import DType, TensorType
from jstitch.passes.base.rewrite import is_control


@dataclass(frozen=True)
class Range:
    """What an array holds. least, most: of the finite elements, None where there are none."""

    type: str
    least: float | None
    most: float | None
    nans: int
    infs: int

    def __str__(self) -> str:
        span = "nothing finite" if self.least is None else f"{self.least:.6g} to {self.most:.6g}"
        odd = [f"{n} {what}" for n, what in ((self.nans, "NaN"), (self.infs, "infinite")) if n]
        return ", ".join([f"{self.type}: {span}", *odd])


def range_of(array: np.ndarray) -> Range:
    """Of complex numbers, the range of their absolute values."""
    type_ = str(TensorType(array.shape, DType.of(array.dtype)))
    with np.errstate(all="ignore"):
        wide = np.abs(array) if np.iscomplexobj(array) else array.astype(np.float64)
        finite = wide[np.isfinite(wide)]
    nans, infs = int(np.isnan(wide).sum()), int(np.isinf(wide).sum())
    if not finite.size:
        return Range(type_, None, None, nans, infs)
    return Range(type_, float(finite.min()), float(finite.max()), nans, infs)


def expose(graph: Graph, wanted: Sequence[Value]) -> Graph | None:
    """The graph with these values as its only outputs.

    Those of a loop's body are of its last turn, zeros if it makes none; those of a branch that is not taken
    are zeros. None where one cannot be had: it is part of a loop's condition, or not a tensor.
    """
    if not all(isinstance(v.type, TensorType) for v in wanted):
        return None
    found = _lift(graph, list(dict.fromkeys(wanted)))
    if found is None:
        return None
    changed, outside = found
    return Graph(changed.inputs, changed.ops, tuple(outside[v] for v in wanted))


def _lift(frame: Graph, wanted: Sequence[Value]) -> tuple[Graph, dict[Value, Value]] | None:
    """The frame, and which of its values is each wanted one: what inner frames make becomes a result."""
    here = {*frame.inputs, *(v for op in frame.ops for v in op.results)}
    outside = {v: v for v in wanted if v in here}
    ops: list[Op] = []
    for op in frame.ops:
        missing = [v for v in wanted if v not in outside]
        lifted = _lift_op(op, missing) if missing and is_control(op) else None
        if lifted is None:
            ops.append(op)
            continue
        new, named = lifted
        ops += new
        outside |= named
    # What no frame here makes comes from a frame around this one.
    return (Graph(frame.inputs, tuple(ops), frame.outputs), outside) if outside else None


def _lift_op(op: Op, wanted: Sequence[Value]) -> tuple[list[Op], dict[Value, Value]] | None:
    """The op with more results; before it, what loops start from."""
    looping = bool(op.regions[0].inputs)
    for number, region in enumerate(op.regions):
        found = _lift(region, wanted)
        if found is None:
            continue
        if looping and number == 0:
            return None
        changed, inside = found
        extended = replace(changed, outputs=(*changed.outputs, *inside.values()))
        if looping:
            starts = [_zeros(v) for v in inside]
            regions = [_given(r, inside) for r in (op.regions[0], extended)]
        else:
            starts = []
            regions = [extended if n == number else _without(r, inside) for n, r in enumerate(op.regions)]
        added = {v: Value(v.type) for v in inside}
        operands = (*op.operands, *(start.result for start in starts))
        results = (*op.results, *added.values())
        return [*starts, replace(op, operands=operands, results=results, regions=tuple(regions))], added
    return None


def _given(region: Graph, values: Iterable[Value]) -> Graph:
    """A loop's region that is handed these values too, and does not look at them."""
    return replace(region, inputs=(*region.inputs, *(Value(v.type) for v in values)))


def _without(region: Graph, values: Iterable[Value]) -> Graph:
    """A branch that gives zeros instead."""
    zeros = [_zeros(v) for v in values]
    outputs = (*region.outputs, *(zero.result for zero in zeros))
    return Graph(region.inputs, (*region.ops, *zeros), outputs)


def _zeros(v: Value) -> Op:
    return build.splat(v.tensor, 0)
