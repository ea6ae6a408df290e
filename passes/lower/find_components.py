"""Dimensions so short that each of their elements had better be a value of its own.

x [20000, 3], its length over dim 1, x[:, 0] * ...    dim 1 of x and of all that has it: 3 components of 20000

Points, quaternions, boxes, colours: rows of three fill no vector. Where their elements meet others than those
of their own place, what all of a row waits for passes through memory, row by row; components are as long as
there are rows. Nothing waits where no such dimension is reduced; a softmax of short rows is `short_rows`'
(codegen); where rows are reduced, too, components would be as many reductions, each of what lies apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from jstitch.ir.graph import Op, Value
from jstitch.ir.node_graph import connected_parts
from jstitch.ir.ops import build, lookup
from jstitch.passes.base.row_access import data_operands

LONGEST = 8  # dimension: what lies as far apart as that, processors still read and write in vectors
MOST = 16  # components of a value
LEAST = 64  # elements of each
MOST_OPS = 4096  # that are written

GATHER, REDUCE = "stablehlo.gather", "stablehlo.reduce"
PAD, SLICE, REVERSE, TRANSPOSE = (
    "stablehlo.pad",
    "stablehlo.slice",
    "stablehlo.reverse",
    "stablehlo.transpose",
)

Dim = tuple[Value | None, int]
Link = tuple[Dim, Dim]
UNKNOWN: Dim = None, 0  # connected with it are dimensions that some op wants whole


def find_components(ops: Sequence[Op]) -> Mapping[Value, tuple[int, ...]]:
    """Values -> those of their dimensions, in order; empty where there are none, or too many components.

    Dimensions of one element are among them: rows are rows, [300] or [1, 300].
    """
    reduced = {(op.operands[0], d) for op in ops if _ends_rows(op) for d in op.attrs["dimensions"]}
    if not reduced:
        return {}
    values = dict.fromkeys(v for op in ops for v in (*op.operands, *op.results))
    nodes = [(v, d) for v in values for d, n in enumerate(v.shape) if n > 1]
    parts = connected_parts([UNKNOWN, *nodes], (link for op in ops for link in _links(op)))
    short = [part for part in parts if UNKNOWN not in part and all(_size(dim) <= LONGEST for dim in part)]
    last = {dim for v in values for dim in _last(v)}
    short = [part for part in short if not last.isdisjoint(part)]
    crossed = {dim for op in ops for dim in _crossed(op)}
    if any(all(wanted.isdisjoint(part) for part in short) for wanted in (reduced, crossed)):
        return {}
    chosen = [part for part in short if not part.isdisjoint(crossed | reduced)]
    chosen += _beside(chosen, short, last)
    dims = {dim for part in chosen for dim in part}
    if any(_mixes(op, dims) for op in ops):
        return {}
    found = {v: tuple(d for d, n in enumerate(v.shape) if n == 1 or (v, d) in dims) for v in values}
    return {v: own for v, own in found.items() if own} if _are_few(ops, found) else {}


def _size(dim: Dim) -> int:
    v, d = dim
    return 1 if v is None else v.shape[d]


def _last(v: Value) -> Iterator[Dim]:
    """The dimensions that make its loops short: at its end, behind many rows."""
    for d in reversed(range(v.tensor.rank)):
        behind = math.prod(v.shape[d:])
        if not 0 < behind <= MOST or v.tensor.size < LEAST * behind:
            return
        yield v, d


def _beside(chosen: Sequence[set[Dim]], short: Sequence[set[Dim]], last: set[Dim]) -> list[set[Dim]]:
    """What would be left at the end of a value that has one of the chosen dimensions."""
    values = {v for part in chosen for v, _ in part}
    others = (part for part in short if part not in chosen)
    return [part for part in others if any(v in values and (v, d) in last for v, d in part)]


def _are_few(ops: Sequence[Op], found: Mapping[Value, Sequence[int]]) -> bool:
    """Whether no value has too many components, and all together are few."""
    counts = {v: math.prod(v.shape[d] for d in dims) for v, dims in found.items()}
    if max(counts.values()) > MOST:
        return False
    return sum(counts.get(v, 1) for op in ops for v in op.results) <= MOST_OPS


def _crossed(op: Op) -> Iterator[Dim]:
    """Dimensions whose elements meet others than those of their own row and place."""
    if op.name in (PAD, SLICE):
        x = op.operands[0]
        yield from ((x, d) for d, n in enumerate(x.shape) if n != op.result.shape[d])
    elif build.is_concatenate(op):
        yield op.result, op.attrs["dimension"]
    elif op.name == REVERSE:
        yield from ((op.operands[0], d) for d in op.attrs["dimensions"])
    elif build.is_broadcast(op) and op.operands[0].tensor.size < op.result.tensor.size:
        yield from _last(op.operands[0])  # each row meets all of others


def _links(op: Op) -> Iterator[Link]:
    """Dimensions of which either both are written out or none."""
    if op.name == REDUCE:
        yield from _of_reduction(op)
    elif build.is_broadcast(op):
        x, r = op.operands[0], op.result
        dims = enumerate(op.attrs["broadcast_dimensions"])
        yield from (((x, n), (r, d)) for n, d in dims if x.shape[n] == r.shape[d] > 1)
    elif lookup(op.name).op_class.is_elementwise:
        same = (v for v in (*op.operands, *op.results[1:]) if v.shape == op.results[0].shape)
        yield from (((v, d), (op.results[0], d)) for v in same for d in _wide(v))
    elif op.name == TRANSPOSE:
        order = op.attrs["permutation"]
        yield from (((op.operands[0], order[d]), (op.result, d)) for d in _wide(op.result))
    elif op.name in (PAD, SLICE, REVERSE):
        x, r = op.operands[0], op.result
        cut = (d for d in _wide(r) if x.shape[d] > max(r.shape[d], LONGEST))  # of something long
        yield from (((x, d), (r, d)) for d in {*_wide(r)} - {*cut} if x.shape[d] > 1)
    elif build.is_concatenate(op):
        yield from (((v, d), (op.result, d)) for v in op.operands for d in _wide(v))
    elif build.is_reshape(op):
        yield from _of_reshape(op)
    else:
        whole = op.operands[:1] if op.name == GATHER else op.operands  # indices can be put together
        yield from (((v, d), UNKNOWN) for v in whole for d in _wide(v))


def _wide(v: Value) -> Iterator[int]:
    return (d for d, n in enumerate(v.shape) if n > 1)


def _of_reduction(op: Op) -> Iterator[Link]:
    x = op.operands[0]
    if not is_chain(op):
        yield from (((v, d), UNKNOWN) for v in op.operands for d in _wide(v))
        return
    kept = [d for d in range(x.tensor.rank) if d not in op.attrs["dimensions"]]
    yield from (((op.result, n), (x, d)) for n, d in enumerate(kept) if x.shape[d] > 1)


def _ends_rows(op: Op) -> bool:
    """Whether it reduces rows of a few elements, and not these with many others."""
    return is_chain(op) and math.prod(op.operands[0].shape[d] for d in op.attrs["dimensions"]) <= MOST


def _mixes(op: Op, dims: set[Dim]) -> bool:
    """Whether it reduces over rows what has components."""
    if op.name != REDUCE:
        return False
    return any(
        any((x, d) in dims for d in _wide(x))
        and any(x.shape[d] > 1 and (x, d) not in dims for d in op.attrs["dimensions"])
        for x in data_operands(op)
    )


def is_chain(reduction: Op) -> bool:
    """Whether it is one of ops on elements: of one value, by an elementwise op."""
    if reduction.name != REDUCE:
        return False
    monoid = reduction.attrs.get("monoid")
    known = isinstance(monoid, str) and lookup(monoid).op_class.is_elementwise
    return known and len(reduction.operands) == 2


def _of_reshape(op: Op) -> Iterator[Link]:
    """Of dimensions that are cut in two the parts may be written out, but not the other way."""
    x, r = op.operands[0], op.result
    if cuts_rows(op):
        yield from (((x, d), UNKNOWN) for d in _wide(x))
        return
    for before, behind in same_elements(x.shape, r.shape):
        first, *others = [*((x, d) for d in before), *((r, d) for d in behind)]
        yield from ((first, dim) for dim in others)


def cuts_rows(reshape: Op) -> bool:
    """Whether it makes short dimensions of a long one, or a long one of short ones."""
    x, r = reshape.operands[0], reshape.result
    groups = same_elements(x.shape, r.shape)
    return any(len(a) + len(b) > 2 and math.prod(x.shape[d] for d in a) > MOST for a, b in groups)


def same_elements(a: Sequence[int], b: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
    """Dimensions of one shape and of the other, of the same elements: as few as can be; without those of 1.

    [50, 3, 1, 4] and [50, 12]    ->    ([0], [0]), ([1, 3], [1])
    """
    if 0 in a:
        return
    left, right = ([d for d, n in enumerate(shape) if n != 1][::-1] for shape in (a, b))
    while left and right:
        own, other = [left.pop()], [right.pop()]
        sizes = [a[own[0]], b[other[0]]]
        while sizes[0] != sizes[1]:
            if sizes[0] < sizes[1]:
                own.append(left.pop())
                sizes[0] *= a[own[-1]]
            else:
                other.append(right.pop())
                sizes[1] *= b[other[-1]]
        yield own, other
