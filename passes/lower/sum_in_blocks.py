"""Sums of columns in two steps: in long ones small numbers meet large ones, and few columns are no vector.

    sum over (1, 2) of [8, 64, 64, 40]   ->   sum over 2: [8, 64, 40];  sum over its dim 1: [8, 40]
    sum over 1 of [8, 4000, 40]          ->   the same of [8, 50, 80, 40]
    sum over 0 of [180000, 10]           ->   sum over 0 of [15000, 12, 10]: [12, 10];  over its dim 0: [10]

Of 4,096 numbers added one after another the last is added to what is 4,095 times as large. Sums of what lies
side by side are many already, a vector's; those over rows are cut where rows are. Ten columns fill no vector,
120 do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from jstitch.ir.graph import Op, Value
from jstitch.ir.ops import build
from jstitch.ir.ops.elementwise import SUMS
from jstitch.ir.types import TensorType
from jstitch.passes.base.row_access import is_reduction
from jstitch.passes.lower.form_groups import APART
from jstitch.passes.lower.group import SEVERAL
from jstitch.passes.lower.split_reductions import identity_of

VECTOR = 16  # columns that are one
LONG, LONGER = 512, 4096  # numbers of a column; of one of few
RUN, RUNS = 64, 1024  # numbers that vectors are made of, at least and at most
AT_ONCE = 16  # numbers of a column that are all read at once
NEAR = 4  # times as long as sums of blocks of the best size


def sum_in_blocks(ops: Sequence[Op]) -> list[Op]:
    """The same ops, in order, such reductions in two steps.

    Not of what lies in memory in another order: its loops follow that (`follow_memory`).
    """
    turned = _turned(ops)
    return [part for op in ops for part in ((op,) if turned.intersection(op.operands) else _in_blocks(op))]


def _turned(ops: Sequence[Op]) -> set[Value]:
    """What is made, element by element, of a tensor with its dimensions in another order."""
    found: set[Value] = set()
    for op in ops:
        turns = "permutation" in op.attrs and not op.attrs.get(APART)
        if turns or (not is_reduction(op) and not found.isdisjoint(op.operands)):
            found.update(op.results)
    return found


def _in_blocks(op: Op) -> Iterator[Op]:
    reduced = _reduced(op)
    block = _block(op, reduced) if reduced else 1
    many = math.prod(op.operands[0].shape[d] for d in reduced)
    if block == 1:
        yield op
    elif many % block == 0:
        yield from _two_steps(op, op.operands[0], reduced, block)
    else:
        yield from _with_rest(op, reduced, many, block)


def _reduced(op: Op) -> tuple[int, ...]:
    """The dimensions that are reduced, if they are neighbours and something is kept behind them."""
    if not is_reduction(op) or op.attrs.get("monoid") is None or len(op.results) > 1:
        return ()
    shape = op.operands[0].shape
    dims = tuple(sorted(op.attrs["dimensions"]))
    whole = dims == tuple(range(dims[0], dims[-1] + 1)) if dims else False
    return dims if whole and math.prod(shape[dims[-1] + 1 :]) > 1 else ()


def _two_steps(op: Op, x: Value, reduced: Sequence[int], block: int) -> Iterator[Op]:
    """What comes of so many at once. x: what is reduced, at the dimensions `reduced`.

    Of few columns the first of all blocks are one number, and the second, ...: a block is as many columns.
    """
    first, shape = reduced[0], x.shape
    many = math.prod(shape[d] for d in reduced)
    view = _shaped(x, (*shape[:first], many // block, block, *shape[reduced[-1] + 1 :]))
    start = identity_of(op, op.result)
    yield from (*view, start)
    x = view[0].result if view else x
    inner = first + (_columns(op, reduced) >= VECTOR)
    made = Value(_without(x, inner))
    attrs = {**op.attrs, "dimensions": (inner,)}
    yield replace(op, operands=(x, start.result), results=(made,), attrs=attrs)
    yield replace(op, operands=(made, op.operands[1]), attrs={**op.attrs, "dimensions": (first,)})


def _with_rest(op: Op, reduced: Sequence[int], many: int, block: int) -> Iterator[Op]:
    """The same of whole blocks, and of what is left over behind them."""
    x, first = op.operands[0], reduced[0]
    view = _shaped(x, (*x.shape[:first], many, *x.shape[reduced[-1] + 1 :]))
    x = view[0].result if view else x
    end = many // block * block
    head, rest = (_part(x, first, *ends) for ends in ((0, end), (end, many)))
    start = identity_of(op, op.result)
    yield from (*view, head, rest, start)
    halves = [Value(_without(x, first)) for _ in range(2)]
    of_blocks = replace(op, operands=(head.result, start.result), results=(halves[0],))
    yield from _two_steps(of_blocks, head.result, (first,), block)
    attrs = {**op.attrs, "dimensions": (first,)}
    yield replace(op, operands=(rest.result, op.operands[1]), results=(halves[1],), attrs=attrs)
    yield from added(op, halves)


def added(op: Op, halves: Sequence[Value]) -> Iterator[Op]:
    """The reduction's result, of those of its two halves."""
    both = build.elementwise(op.attrs["monoid"], *halves)
    if op.result.tensor.dtype is not both.result.tensor.dtype:
        yield both
        both = build.convert(both.result, op.result.tensor.dtype)
    yield replace(both, results=op.results, loc=op.loc, scope=op.scope)


def _shaped(v: Value, shape: tuple[int, ...]) -> tuple[Op, ...]:
    """The reshape, unless it has the shape already."""
    return () if v.shape == shape else (build.reshape(v, shape),)


def _part(v: Value, dim: int, start: int, limit: int) -> Op:
    """Of one dimension."""
    starts = [start if d == dim else 0 for d in range(v.tensor.rank)]
    limits = [limit if d == dim else n for d, n in enumerate(v.shape)]
    return build.slice_(v, starts, limits, [1] * v.tensor.rank)


def _without(v: Value, dim: int) -> TensorType:
    """What is left of it when a dimension is reduced, in the type that kernels compute in."""
    return TensorType((*v.shape[:dim], *v.shape[dim + 1 :]), v.tensor.dtype.compute)


def _columns(op: Op, reduced: Sequence[int]) -> int:
    """What is kept behind the dimensions."""
    return math.prod(op.operands[0].shape[reduced[-1] + 1 :])


def _block(op: Op, reduced: Sequence[int]) -> int:
    """How many numbers are a block; 1: all of them."""
    tensor = op.operands[0].tensor
    columns, many = _columns(op, reduced), math.prod(tensor.shape[d] for d in reduced)
    adds_up = op.attrs["monoid"] in SUMS and tensor.dtype.is_float
    over_rows = math.prod(tensor.shape[: reduced[0]]) == 1
    sizes = [tensor.shape[d] for d in reduced]
    if SEVERAL < columns < VECTOR and over_rows:
        return min((n for n in _ends(sizes) if RUN <= n * columns <= RUNS), default=1)
    if SEVERAL < columns < VECTOR:
        worth_it = many > AT_ONCE and many * columns > 2 * RUN
        return _best(sizes, RUN / columns, RUNS / columns) if worth_it else 1
    long = LONGER if columns <= SEVERAL else LONG
    if over_rows or not adds_up or many <= long:
        return 1
    return _best(sizes, 2, many / 2)


def _best(sizes: Sequence[int], least: float, most: float) -> int:
    """Between these numbers, what is nearest to as many blocks as a block has numbers.

    A dimension's end, if one is near enough, so that nothing has another shape; then what leaves no rest.
    """
    many = math.prod(sizes)
    wanted = round(min(max(math.isqrt(many), least), most))
    every = [n for n in range(2, math.isqrt(many) + 1) if many % n == 0]
    for choices in (_ends(sizes), {*every, *(many // n for n in every)}):
        best = min(choices, key=lambda n: abs(math.log(n / wanted)), default=1)
        if wanted / NEAR <= best <= wanted * NEAR and best > 1:
            return best
    return wanted


def _ends(sizes: Sequence[int]) -> list[int]:
    """What some of the last dimensions have together."""
    return [math.prod(sizes[n:]) for n in range(1, len(sizes))]
