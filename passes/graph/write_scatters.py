"""Write a scatter whose one place is known as a select, which kernels compute with what is around it.

    %s = scatter %x, [3], %u              %m = compare EQ, iota, 3
      x.at[3].set(u)                ->    %s = select %m, (broadcast %u), %x

    %s = scatter add %x, [1], %u          %m = and (compare GE, iota, 1), (compare LT, iota, 7)
      x.at[1:7].add(u)              ->    %s = select %m, (add %x, (pad %u, 0, low = [1], high = [n - 7])), %x

Boundaries of grids are set so. A scatter stays where XLA need only write the place: of what no op here
computes, as a loop's state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import build, lookup, monoid_of
from jstitch.ir.types import DType, TensorType
from jstitch.passes.base.rewrite import Producer, Replacement, rewrite

SCATTER = "stablehlo.scatter"


def write_scatters(graph: Graph) -> Graph:
    """The graph with scatters to one known place, of what is computed here, written as selects."""
    return rewrite(graph, _rule, of=(SCATTER,))


@dataclass(frozen=True)
class _Place:
    """Where a scatter's only window begins in its operand, and its size along each dimension."""

    start: tuple[int, ...]
    size: tuple[int, ...]


def _rule(op: Op, producer: Producer) -> Replacement | None:
    place = _place_of(op, producer)
    if place is None or not _is_written(op, place, producer):
        return None
    region = op.regions[0]
    overwrites = not region.ops and region.outputs == (region.inputs[1],)
    combiner = None if overwrites else monoid_of(region)
    if not overwrites and combiner is None:
        return None
    writer = _Writer(op, place)
    writer.write(combiner)
    return Replacement((writer.ops[-1].result,), tuple(writer.ops))


def _place_of(op: Op, producer: Producer) -> _Place | None:
    """None where there are several, where nobody knows them yet, or where one is not inside."""
    if len(op.operands) != 3 or op.attrs["input_batching_dims"]:
        return None
    operand, indices, updates = op.operands
    scattered = op.attrs["scattered_dims_to_operand_dims"]
    made = producer(indices)
    if made is None or made.name != "stablehlo.constant" or indices.tensor.size != len(scattered):
        return None
    sizes = [updates.shape[d] for d in op.attrs["update_window_dims"]]
    for d in sorted(op.attrs["inserted_window_dims"]):
        sizes.insert(d, 1)
    start = [0] * operand.tensor.rank
    for d, at in zip(scattered, made.attrs["value"].reshape(-1), strict=True):
        start[d] = int(at)
    inside = all(0 <= s <= n - w for s, w, n in zip(start, sizes, operand.shape, strict=True))
    return _Place(tuple(start), tuple(sizes)) if inside and updates.tensor.size else None


def _is_written(op: Op, place: _Place, producer: Producer) -> bool:
    """Whether more than the place is: all of the operand, and by what kernels compute."""
    operand = op.operands[0]
    made = producer(operand)
    computed = made is not None and lookup(made.name).op_class.is_elementwise
    return computed and not operand.tensor.dtype.is_complex and place.size != operand.shape


@dataclass
class _Writer:
    op: Op
    place: _Place
    ops: list[Op] = field(default_factory=list)

    def emit(self, op: Op) -> Value:
        self.ops.append(replace(op, loc=self.op.loc))
        return self.ops[-1].result

    def write(self, combiner: str | None) -> None:
        """combiner: what makes one value of two; None: the new one replaces the old one."""
        operand = self.op.operands[0]
        new = self.spread()
        if combiner is not None:
            new = self.emit(build.elementwise(combiner, operand, new))
        chosen = build.select(self.mask(), new, operand)
        # for the cost model: the bytes that XLA writes, which runs it as it stood
        self.emit(replace(chosen, attrs={**chosen.attrs, "place": self.op.operands[2].tensor.nbytes}))

    def spread(self) -> Value:
        """The updates in the operand's shape, right in their place."""
        shape, updates = self.op.result.shape, self.op.operands[2]
        start, size = self.place.start, self.place.size
        kept = [d for d, n in enumerate(shape) if size[d] == n or size[d] > 1]
        found = self.emit(build.reshape(updates, [size[d] for d in kept]))
        low = [start[d] for d in kept]
        high = [shape[d] - start[d] - size[d] for d in kept]
        if any((*low, *high)):
            zero = self.emit(build.splat(TensorType((), updates.tensor.dtype), 0))
            found = self.emit(build.pad(found, zero, low, high, [0] * len(kept)))
        return self.emit(build.broadcast(found, shape, kept))

    def mask(self) -> Value:
        """Whether an element lies in the place."""
        shape, found = self.op.result.shape, list[Value]()
        for d, place in enumerate(zip(self.place.start, self.place.size, shape, strict=True)):
            bounds = [self.compared(shape[d], *bound) for bound in _bounds(*place)]
            if bounds:
                found.append(self.emit(build.broadcast(self.all_of(bounds), shape, [d])))
        return self.all_of(found)

    def all_of(self, masks: Sequence[Value]) -> Value:
        found, *others = masks
        for mask in others:
            found = self.emit(build.logical_and(found, mask))
        return found

    def compared(self, size: int, direction: str, bound: int) -> Value:
        """Of a dimension's numbers alone."""
        kind = TensorType((size,), DType.S32)
        number = self.emit(build.iota(kind, 0))
        return self.emit(build.compare(direction, number, self.emit(build.splat(kind, bound))))


def _bounds(start: int, size: int, whole: int) -> Sequence[tuple[str, int]]:
    """What is true of a dimension's numbers inside, where it is not true of all."""
    if size == 1 and whole > 1:
        return [("EQ", start)]
    first, last = (("GE", start), start > 0), (("LT", start + size), start + size < whole)
    return [bound for bound, tells in (first, last) if tells]
