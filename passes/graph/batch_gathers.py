"""Gathers of one element, or slice, of each row say so: their first positions are not read from memory.

    %i = concatenate (iota, %y)                %g = gather %x, %y {operand_batching_dims = [0]}
    %g = gather %x, %i  [4096, 2]       ->

`x[jnp.arange(4096), y]` reads row r of x for row r of y. As a batched gather it needs no others, and whoever
asks for rows can see it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import build
from jstitch.ir.ops.numerics import counts_to
from jstitch.passes.base.rewrite import Producer, Replacement, rewrite

GATHER, CONCATENATE, IOTA = "stablehlo.gather", "stablehlo.concatenate", "stablehlo.iota"


def batch_gathers(graph: Graph) -> Graph:
    """The graph with gathers by row as batched ones."""
    return rewrite(graph, _rule, of=(GATHER,))


def _rule(op: Op, producer: Producer) -> Replacement | None:
    joined = producer(op.operands[1])
    vector = op.attrs.get("index_vector_dim")
    if joined is None or joined.name != CONCATENATE or joined.attrs["dimension"] != vector:
        return None
    positions = list(joined.operands)
    if any(v.shape[vector] != 1 for v in positions):
        return None
    new = op
    for v in joined.operands:
        row = _row_of(producer(v))
        number = positions.index(v)
        if row is not None and len(positions) > 1 and _is_by_row(new, row, number):
            new = replace(new, attrs=_batched(new, row, number))
            del positions[number]
    return None if new is op else _with(new, positions, vector)


def _with(op: Op, positions: Sequence[Value], vector: int) -> Replacement:
    """The gather by the positions that are left."""
    made = [build.concatenate(positions, vector)] if len(positions) > 1 else []
    indices = made[0].result if made else positions[0]
    return Replacement(op.results, (*made, replace(op, operands=(op.operands[0], indices))))


def _row_of(op: Op | None) -> int | None:
    """The dimension along which it counts, if that is all it does."""
    return op.attrs["iota_dimension"] if op is not None and op.name == IOTA else None


def _is_by_row(op: Op, row: int, number: int) -> bool:
    """Whether the position picks one element, that of the row, of a dimension that is no batch yet."""
    data, indices = op.operands
    dim = op.attrs["start_index_map"][number]
    free = row not in op.attrs["start_indices_batching_dims"] and row != op.attrs["index_vector_dim"]
    counts = data.shape[dim] == indices.shape[row] and counts_to(indices.tensor.dtype, data.shape[dim])
    return free and dim in op.attrs["collapsed_slice_dims"] and counts


def _batched(op: Op, row: int, number: int) -> dict[str, object]:
    old = op.attrs
    dim = old["start_index_map"][number]
    pairs = zip(old["operand_batching_dims"], old["start_indices_batching_dims"], strict=True)
    batches = sorted([*pairs, (dim, row)])
    return {
        **old,
        "collapsed_slice_dims": tuple(d for d in old["collapsed_slice_dims"] if d != dim),
        "operand_batching_dims": tuple(d for d, _ in batches),
        "start_indices_batching_dims": tuple(d for _, d in batches),
        "start_index_map": tuple(d for n, d in enumerate(old["start_index_map"]) if n != number),
    }
