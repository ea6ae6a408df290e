"""Random small instances of the shape and index ops: a graph of one op, and arguments for it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from jstitch.ir.graph import Graph
from jstitch.ir.ops import OPS
from jstitch.ir.types import DType, TensorType
from tests.ir.programs import build

Rng = np.random.Generator
Instance = tuple[Graph, list[np.ndarray]]


def shape_of(rng: Rng, rank: int | None = None, low: int = 0) -> tuple[int, ...]:
    rank = int(rng.integers(0, 5)) if rank is None else rank
    return tuple(int(n) for n in rng.integers(low, 5, rank))


def f32(shape: tuple[int, ...]) -> TensorType:
    return TensorType(tuple(int(n) for n in shape), DType.F32)


def numbers(shape: tuple[int, ...], start: int = 1) -> np.ndarray:
    """Distinct values, so that a wrong index shows."""
    size = int(np.prod(shape, dtype=np.int64))
    return np.arange(start, start + size, dtype=np.float32).reshape(shape)


def broadcast_in_dim(rng: Rng) -> Instance:
    result = shape_of(rng)
    rank = int(rng.integers(0, len(result) + 1))
    dims = tuple(int(d) for d in rng.permutation(len(result))[:rank])
    shape = tuple(1 if rng.random() < 0.3 else result[d] for d in dims)
    graph = build("stablehlo.broadcast_in_dim", [f32(shape)], f32(result), broadcast_dimensions=dims)
    return graph, [numbers(shape)]


def reshape(rng: Rng) -> Instance:
    factors = [int(n) for n in rng.integers(0 if rng.random() < 0.2 else 1, 4, int(rng.integers(0, 5)))]
    return build("stablehlo.reshape", [f32(_regroup(rng, factors))], f32(_regroup(rng, factors))), []


def _regroup(rng: Rng, factors: list[int]) -> tuple[int, ...]:
    """A shape whose sizes multiply neighbouring factors, with ones thrown in."""
    groups: list[int] = []
    for factor in factors:
        if groups and rng.random() < 0.5:
            groups[-1] *= factor
        else:
            groups.append(factor)
        if rng.random() < 0.2:
            groups.append(1)
    return tuple(groups) if factors else (1,) * int(rng.integers(0, 3))


def transpose(rng: Rng) -> Instance:
    shape = shape_of(rng)
    order = tuple(int(d) for d in rng.permutation(len(shape)))
    result = f32(tuple(shape[d] for d in order))
    return build("stablehlo.transpose", [f32(shape)], result, permutation=order), []


def slice_(rng: Rng) -> Instance:
    shape = shape_of(rng)
    start = tuple(int(rng.integers(0, n + 1)) for n in shape)
    limit = tuple(int(rng.integers(s, n + 1)) for s, n in zip(start, shape, strict=True))
    steps = tuple(int(k) for k in rng.integers(1, 4, len(shape)))
    result = f32(tuple(-(-(e - s) // k) for s, e, k in zip(start, limit, steps, strict=True)))
    attrs = {"start_indices": start, "limit_indices": limit, "strides": steps}
    return build("stablehlo.slice", [f32(shape)], result, **attrs), []


def reverse(rng: Rng) -> Instance:
    shape = shape_of(rng)
    dims = tuple(d for d in range(len(shape)) if rng.random() < 0.5)
    return build("stablehlo.reverse", [f32(shape)], f32(shape), dimensions=dims), []


def concatenate(rng: Rng) -> Instance:
    shape = shape_of(rng, int(rng.integers(1, 4)))
    dim = int(rng.integers(0, len(shape)))
    sizes = [int(n) for n in rng.integers(0, 4, int(rng.integers(1, 4)))]
    parts = [f32((*shape[:dim], n, *shape[dim + 1 :])) for n in sizes]
    result = f32((*shape[:dim], sum(sizes), *shape[dim + 1 :]))
    return build("stablehlo.concatenate", parts, result, dimension=dim), []


def pad(rng: Rng) -> Instance:
    """Negative and interior padding included."""
    shape = shape_of(rng, int(rng.integers(0, 4)))
    low, high, inside, result = [], [], [], []
    for n in shape:
        interior = int(rng.integers(0, 3))
        wide = n + max(n - 1, 0) * interior
        a = int(rng.integers(-min(wide, 3), 4))
        b = int(rng.integers(-min(wide + min(a, 0), 3), 4))
        low, high, inside = [*low, a], [*high, b], [*inside, interior]
        result.append(max(wide + a + b, 0))
    attrs = {
        "edge_padding_low": tuple(low),
        "edge_padding_high": tuple(high),
        "interior_padding": tuple(inside),
    }
    return build("stablehlo.pad", [f32(shape), f32(())], f32(tuple(result)), **attrs), []


def iota(rng: Rng) -> Instance:
    shape = shape_of(rng, int(rng.integers(1, 4)))
    type_ = TensorType(shape, DType.S32 if rng.random() < 0.5 else DType.F32)
    return build("stablehlo.iota", [], type_, iota_dimension=int(rng.integers(0, len(shape)))), []


def dynamic_slice(rng: Rng) -> Instance:
    """Starts out of bounds included: they are clamped."""
    shape = shape_of(rng, low=1)
    sizes = tuple(int(rng.integers(0, n + 1)) for n in shape)
    starts = [np.array(rng.integers(-2, 6), np.int32) for _ in shape]
    types = [f32(shape), *[TensorType((), DType.S32)] * len(shape)]
    graph = build("stablehlo.dynamic_slice", types, f32(sizes), slice_sizes=sizes)
    return graph, [numbers(shape), *starts]


def dynamic_update_slice(rng: Rng) -> Instance:
    shape = shape_of(rng, low=1)
    sizes = tuple(int(rng.integers(0, n + 1)) for n in shape)
    starts = [np.array(rng.integers(-2, 6), np.int64) for _ in shape]
    types = [f32(shape), f32(sizes), *[TensorType((), DType.S64)] * len(shape)]
    graph = build("stablehlo.dynamic_update_slice", types, f32(shape))
    return graph, [numbers(shape), numbers(sizes, 1000), *starts]


def gather(rng: Rng) -> Instance:
    """The general form: batching, collapsed and window dimensions, the index vector anywhere."""
    shape = shape_of(rng, int(rng.integers(1, 4)), low=1)
    kinds = [str(rng.choice(["batching", "collapsed", "window", "plain"])) for _ in shape]
    batching = [d for d, k in enumerate(kinds) if k == "batching"]
    collapsed = [d for d, k in enumerate(kinds) if k == "collapsed"]
    indexed = [int(d) for d in rng.permutation([d for d in range(len(shape)) if d not in batching])]
    start_map = [d for d in indexed if kinds[d] != "plain"]
    one = (*batching, *collapsed)
    sizes = tuple(1 if d in one else int(rng.integers(0, n + 1)) for d, n in enumerate(shape))
    batch = [*shape_of(rng, int(rng.integers(0, 3))), *(shape[d] for d in batching)]
    order = [int(k) for k in rng.permutation(len(batch))]
    batch_shape = tuple(batch[k] for k in order)
    starts_batching = [order.index(len(batch) - len(batching) + k) for k in range(len(batching))]
    vector = int(rng.integers(0, len(batch) + 1))
    starts_batching = [s + (s >= vector) for s in starts_batching]
    indices_shape: tuple[int, ...] = (*batch_shape[:vector], len(start_map), *batch_shape[vector:])
    if len(start_map) == 1 and vector == len(batch) and rng.random() < 0.5:
        indices_shape = batch_shape  # the trailing dimension of size 1 may be left out
    window = [sizes[d] for d in range(len(shape)) if d not in one]
    rank = len(batch_shape) + len(window)
    offset_dims = tuple(sorted(int(d) for d in rng.permutation(rank)[: len(window)]))
    window_sizes, batch_sizes = iter(window), iter(batch_shape)
    result = tuple(next(window_sizes) if d in offset_dims else next(batch_sizes) for d in range(rank))
    graph = build(
        "stablehlo.gather",
        [f32(shape), TensorType(indices_shape, DType.S32)],
        f32(result),
        offset_dims=offset_dims,
        collapsed_slice_dims=tuple(collapsed),
        operand_batching_dims=tuple(batching),
        start_indices_batching_dims=tuple(starts_batching),
        start_index_map=tuple(start_map),
        index_vector_dim=vector,
        slice_sizes=sizes,
        indices_are_sorted=False,
    )
    return graph, [numbers(shape), rng.integers(-3, 7, indices_shape).astype(np.int32)]


MOVERS: dict[str, Callable[[Rng], Instance]] = {
    f"stablehlo.{f.__name__.rstrip('_')}": f
    for f in (
        broadcast_in_dim,
        reshape,
        transpose,
        slice_,
        reverse,
        concatenate,
        pad,
        iota,
        dynamic_slice,
        dynamic_update_slice,
        gather,
    )
}


def instance(name: str, rng: Rng) -> Instance:
    """A random graph of the op, with distinct numbers for every argument not drawn by the op itself."""
    graph, args = MOVERS[name](rng)
    return graph, args or [numbers(v.shape, 1 + 100 * k) for k, v in enumerate(graph.inputs)]


def mapped_names() -> list[str]:
    return [n for n, d in OPS.items() if d.cases is not None or d.position is not None]
