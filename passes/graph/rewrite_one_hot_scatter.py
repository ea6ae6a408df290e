"""Turn a scatter of at most one update per element into a comparison with an iota.

    %z = constant 0.0 : NxV                              %u = add %updates, 0.0
    %i = concatenate iota(N), %labels           ->       %b = broadcast %u : N -> NxV
    %s = scatter add %z, %i, %updates                    %p = compare EQ, iota(V), broadcast(%labels)
                                                         %s = select %p, %b, 0.0

Gradients of `x[arange(n), labels]`, `take_along_axis` and gather-based cross entropy have this form.
Nothing of the tensor's size is written before the select, and the select fuses with what follows. An index
out of bounds equals no position: its update is dropped, as StableHLO says. The scatter stays when two updates
could meet in one element, when the operand is not one value everywhere, and for other combiners.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import build, monoid_of
from jstitch.ir.ops.build import splat_value
from jstitch.ir.ops.numerics import counts_to
from jstitch.ir.types import TensorType
from jstitch.passes.base.rewrite import Producer, Replacement, rewrite


def rewrite_one_hot_scatter(graph: Graph) -> Graph:
    """The graph with one-hot scatters replaced. Expects canonicalized indices (iotas visible as such)."""
    return rewrite(graph, _rule, of=("stablehlo.scatter",))


@dataclass(frozen=True)
class _Scatter:
    """A scatter of one operand, by the roles of its dimensions.

    batch: sizes of the batch dimensions of the indices (and of the updates).
    batch_at: their positions in the updates. window: operand dimension -> dimension of the updates.
    """

    op: Op
    value: np.ndarray
    adds: bool
    batch: tuple[int, ...]
    batch_at: tuple[int, ...]
    window: dict[int, int]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.op.result.shape


def _rule(op: Op, producer: Producer) -> Replacement | None:
    scatter = _parse(op, producer)
    if scatter is None:
        return None
    components = [_component(scatter, k, producer) for k in range(len(_scattered(scatter.op)))]
    pinned = _pin(scatter, components, producer)
    return None if pinned is None else _Builder(scatter).build(components, pinned)


def _scattered(op: Op) -> tuple[int, ...]:
    return tuple(op.attrs["scattered_dims_to_operand_dims"])


def _parse(op: Op, producer: Producer) -> _Scatter | None:
    """The scatter, when its operand is a splat and its combiner adds or overwrites."""
    if len(op.operands) != 3:
        return None
    operand, indices, updates = op.operands
    value, adds = splat_value(producer(operand)), monoid_of(op.regions[0]) == "stablehlo.add"
    overwrites = not op.regions[0].ops and op.regions[0].outputs == (op.regions[0].inputs[1],)
    if value is None or not (adds or overwrites) or 0 in (updates.tensor.size, indices.tensor.size):
        return None
    window_dims, vector = op.attrs["update_window_dims"], op.attrs["index_vector_dim"]
    batch = tuple(n for d, n in enumerate(indices.shape) if d != vector)
    batch_at = tuple(d for d in range(updates.tensor.rank) if d not in window_dims)
    dropped = (*op.attrs["inserted_window_dims"], *op.attrs["input_batching_dims"])
    kept = [d for d in range(operand.tensor.rank) if d not in dropped]
    scatter = _Scatter(op, value, adds, batch, batch_at, dict(zip(kept, window_dims, strict=True)))
    return scatter if _windows_fit(scatter) else None


def _windows_fit(scatter: _Scatter) -> bool:
    """Windows are one element along scattered dimensions and the whole operand along the others."""
    updates = scatter.op.operands[2]
    for d, k in scatter.window.items():
        size = 1 if d in _scattered(scatter.op) else scatter.shape[d]
        if updates.shape[k] != size:
            return False
    return True


@dataclass(frozen=True)
class _Part:
    """One component of the start index: a value that holds it, and where it stands in that value."""

    dim: int
    value: Value
    at: int | None


def _component(scatter: _Scatter, k: int, producer: Producer) -> _Part:
    """Component k, looked up through the concatenation that put the components together."""
    indices, vector = scatter.op.operands[1], scatter.op.attrs["index_vector_dim"]
    dim = _scattered(scatter.op)[k]
    if vector == indices.tensor.rank:
        return _Part(dim, indices, None)
    made = producer(indices)
    if made is None or made.name != "stablehlo.concatenate" or made.attrs["dimension"] != vector:
        return _Part(dim, indices, k)
    for part in made.operands:
        if k < part.shape[vector]:
            return _Part(dim, part, k)
        k -= part.shape[vector]
    raise AssertionError(f"Expected {made.result.type} to hold component {k} of its concatenation.")


def _pin(scatter: _Scatter, parts: Sequence[_Part], producer: Producer) -> dict[int, int] | None:
    """Batch dimension -> the one operand dimension whose position it is, or None when updates may meet."""
    attrs, vector = scatter.op.attrs, scatter.op.attrs["index_vector_dim"]
    pairs = zip(attrs["scatter_indices_batching_dims"], attrs["input_batching_dims"], strict=True)
    pinned = {b - (b > vector): d for b, d in pairs}
    for part in parts:
        batch = _counts(scatter, part, producer)
        if batch is not None and batch not in pinned:
            pinned[batch] = part.dim
    loose = [b for b, n in enumerate(scatter.batch) if n > 1 and b not in pinned]
    return None if loose else pinned


def _counts(scatter: _Scatter, part: _Part, producer: Producer) -> int | None:
    """The batch dimension that the component counts along, from 0 to the end of its operand dimension."""
    made, vector = producer(part.value), scatter.op.attrs["index_vector_dim"]
    if made is None or made.name != "stablehlo.iota" or made.attrs["iota_dimension"] == vector:
        return None
    dim = int(made.attrs["iota_dimension"])
    batch = dim - (dim > vector)
    return batch if scatter.batch[batch] == scatter.shape[part.dim] and _holds(part, scatter) else None


def _holds(part: _Part, scatter: _Scatter) -> bool:
    """Whether every position fits the index dtype."""
    return counts_to(part.value.tensor.dtype, scatter.shape[part.dim])


@dataclass
class _Builder:
    scatter: _Scatter
    ops: list[Op] = field(default_factory=list)

    def _emit(self, op: Op) -> Value:
        self.ops.append(op)
        return op.result

    def build(self, parts: Sequence[_Part], pinned: dict[int, int]) -> Replacement | None:
        """select(all free components hit, update, splat)."""
        counted = set(pinned.values())
        free = [p for p in parts if p.dim not in counted]
        if not all(_holds(p, self.scatter) for p in free):
            return None
        result = self._emit(build.splat(self.scatter.op.result.tensor, self.scatter.value))
        update = self._update(pinned)
        hits = [self._hit(p, pinned) for p in free]
        for hit in hits[1:]:
            hits[0] = self._emit(build.logical_and(hits[0], hit))
        value = self._emit(build.select(hits[0], update, result)) if hits else update
        return Replacement((value,), tuple(self.ops))

    def _update(self, pinned: dict[int, int]) -> Value:
        """The update of every element, as if its index had hit."""
        updates = self.scatter.op.operands[2]
        if self.scatter.adds:
            old = self._emit(build.splat(updates.tensor, self.scatter.value))
            updates = self._emit(build.add(old, updates))
        scattered = _scattered(self.scatter.op)
        to = {k: d for d, k in self.scatter.window.items() if d not in scattered}
        to |= {at: pinned[b] for b, at in enumerate(self.scatter.batch_at) if b in pinned}
        return self._spread(updates, to)

    def _hit(self, part: _Part, pinned: dict[int, int]) -> Value:
        """Where the element's position along the component's dimension is the component."""
        vector = self.scatter.op.attrs["index_vector_dim"]
        index = self._pick(part, vector)
        batch_dims = [d for d in range(index.tensor.rank) if d != vector or part.at is None]
        to = {d: pinned[b] for b, d in enumerate(batch_dims) if b in pinned}
        wanted = self._spread(index, to)
        position = self._emit(build.iota(TensorType(self.scatter.shape, wanted.tensor.dtype), part.dim))
        return self._emit(build.compare("EQ", position, wanted))

    def _pick(self, part: _Part, vector: int) -> Value:
        """The component alone (its vector dimension has size 1)."""
        x = part.value
        if part.at is None or x.shape[vector] == 1:
            return x
        first = [part.at if d == vector else 0 for d in range(x.tensor.rank)]
        limit = [part.at + 1 if d == vector else n for d, n in enumerate(x.shape)]
        return self._emit(build.slice_(x, first, limit, [1] * len(first)))

    def _spread(self, x: Value, to: dict[int, int]) -> Value:
        """Broadcast to the result: dimension d of x becomes to[d]; the others have size 1 and go."""
        kept = sorted(to, key=lambda d: to[d])
        order = [*kept, *(d for d in range(x.tensor.rank) if d not in to)]
        if order != sorted(order):
            x = self._emit(build.transpose(x, order))
            kept_shape = x.shape[: len(kept)]
        else:
            kept_shape = tuple(x.shape[d] for d in kept)
        if x.shape != kept_shape:
            x = self._emit(build.reshape(x, kept_shape))
        return self._emit(build.broadcast(x, self.scatter.shape, [to[d] for d in kept]))
