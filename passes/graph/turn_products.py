"""Write out the transpositions that XLA makes for a matrix product, so that kernels can make them.

GPU     %p = dot_general %q, %k {batch (0, 2) and (0, 2), contract 3 and 3}      %q, %k: [b, l, h, d]
    ->
        %s = transpose %q (0, 2, 1, 3);  %t = transpose %k (0, 2, 1, 3)
        %p = dot_general %s, %t {batch (0, 1) and (0, 1), contract 3 and 3}

CPU     %p = dot_general %w, %z {contract 0 and 1}                               %w: [k, o]; %z: [b, k, d]
    ->
        %t = transpose %z (1, 0, 2)
        %p = dot_general %w, %t {contract 0 and 0}

A product's library wants its batch dimensions first, and the others in two runs: those that are contracted
and those that are not. XLA turns operands which are not so, in the kernel that makes them if that is its own,
else in one more. As an op the transposition is a kernel's like any other; one that no kernel takes XLA folds
back. (Batched products on CPUs are chains of ours, or loops of XLA's, which read operands as they lie.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from jstitch.ir.graph import Graph, Op
from jstitch.ir.ops import OPS, OpClass, build, lookup
from jstitch.passes.base.context import Context
from jstitch.passes.base.product_side import PRODUCT, SIDES, Side
from jstitch.passes.base.rewrite import Producer, Replacement, rewrite

Dims = tuple[int, ...]


def turn_products(graph: Graph, context: Context) -> Graph:
    """The graph with products of operands in the order that libraries take, where that matters."""
    if context.machine.device is None:
        return rewrite(graph, _unbatched, of=(PRODUCT,))
    return rewrite(graph, _batched, of=(PRODUCT,)) if context.profile.products else graph


def _as_it_is(side: Side) -> Dims:
    return tuple(range(side.value.tensor.rank))


def _in_runs(side: Side) -> Dims:
    """What is contracted in one run, what is not in another; as it is, where it is so.

    The run last that has the last dimension now: lines of memory stay lines.
    """
    large = [d for d, n in enumerate(side.value.shape) if n > 1]
    if sum((a in side.contracted) != (b in side.contracted) for a, b in pairwise(large)) <= 1:
        return _as_it_is(side)
    first, second = side.free, side.contracted
    return (*second, *first) if large[-1] in first else (*first, *second)


def _behind_batch(side: Side) -> Dims:
    """Batch dimensions, then the contracted ones and the others, whichever come first now."""
    first, second = side.free, side.contracted
    if second and first and min(second) < min(first):
        first, second = second, first
    return (*side.batch, *first, *second)


def _batched(op: Op, producer: Producer) -> Replacement | None:
    """As GPUs' libraries take them."""
    if not op.attrs["lhs_batching_dimensions"]:
        return None
    return _turned(op, [_behind_batch(Side.of(op, number)) for number in (0, 1)], producer)


def _unbatched(op: Op, producer: Producer) -> Replacement | None:
    """In two runs, as CPUs' libraries take them, either of which may be the first."""
    sides = [Side.of(op, number) for number in (0, 1)]
    if sides[0].batch:
        return None
    return _turned(op, [*map(_in_runs, sides)], producer)


def _turned(op: Op, orders: Sequence[Dims], producer: Producer) -> Replacement | None:
    """The product of its operands in these orders, where a kernel could make them; None: as it is."""
    new, attrs, operands = list[Op](), dict(op.attrs), list(op.operands)
    for number, (name, order) in enumerate(zip(SIDES, orders, strict=True)):
        side = Side.of(op, number)
        if order != _as_it_is(side) and _is_made(side, producer):
            new.append(build.transpose(side.value, order))
            operands[number] = new[-1].result
            place = {d: n for n, d in enumerate(order)}
            attrs[f"{name}_batching_dimensions"] = tuple(place[d] for d in side.batch)
            attrs[f"{name}_contracting_dimensions"] = tuple(place[d] for d in side.contracted)
    if not new:
        return None
    new.append(replace(op, operands=tuple(operands), attrs=attrs))
    return Replacement(op.results, tuple(new))


def _is_made(side: Side, producer: Producer) -> bool:
    """Whether a kernel could make the operand."""
    op = producer(side.value)
    while op is not None and lookup(op.name).op_class is OpClass.SHAPE and op.operands:
        op = producer(op.operands[0])
    return op is not None and op.name in OPS and lookup(op.name).op_class in _MADE


_MADE = frozenset((OpClass.LIGHT, OpClass.EXPENSIVE, OpClass.REDUCTION, OpClass.INDEX))
