"""Write out the transpositions that XLA makes for a batched matrix product, so that kernels can make them.

    %p = dot_general %q, %k {batch (0, 2) and (0, 2), contract 3 and 3}      %q, %k: [b, l, h, d]
->
    %s = transpose %q (0, 2, 1, 3);  %t = transpose %k (0, 2, 1, 3)
    %p = dot_general %s, %t {batch (0, 1) and (0, 1), contract 3 and 3}

A product's library wants its batch dimensions first, and the others in two runs: those that are contracted
and those that are not. XLA turns operands which are not so, in the kernel that makes them if that is its own,
else in one more. As an op the transposition is a kernel's like any other; one that no kernel takes XLA folds
back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import OPS, OpClass, build, lookup
from jstitch.passes.base.context import Context
from jstitch.passes.base.rewrite import Producer, Replacement, rewrite

PRODUCT = "stablehlo.dot_general"
_SIDES = ("lhs", "rhs")
Dims = tuple[int, ...]


def turn_products(graph: Graph, context: Context) -> Graph:
    """The graph with batched products of operands in the order that libraries take, where that matters."""
    return rewrite(graph, _rule, of=(PRODUCT,)) if context.profile.products else graph


@dataclass(frozen=True)
class _Side:
    """One operand, and which of its dimensions play which role."""

    value: Value
    batch: Dims
    contracted: Dims

    @property
    def free(self) -> Dims:
        return tuple(d for d in range(self.value.tensor.rank) if d not in (*self.batch, *self.contracted))

    @property
    def order(self) -> Dims:
        """Batch dimensions, then the contracted ones and the others, whichever come first now."""
        first, second = self.free, self.contracted
        if second and first and min(second) < min(first):
            first, second = second, first
        return (*self.batch, *first, *second)


def _rule(op: Op, producer: Producer) -> Replacement | None:
    if not op.attrs["lhs_batching_dimensions"]:
        return None
    sides = [_side(op, number) for number in (0, 1)]
    turned = [side.order != tuple(range(len(side.order))) and _is_made(side, producer) for side in sides]
    if not any(turned):
        return None
    new, attrs = list[Op](), dict(op.attrs)
    operands = [side.value for side in sides]
    for number, (name, side) in enumerate(zip(_SIDES, sides, strict=True)):
        if turned[number]:
            new.append(build.transpose(side.value, side.order))
            operands[number] = new[-1].result
            place = {d: n for n, d in enumerate(side.order)}
            attrs[f"{name}_batching_dimensions"] = tuple(place[d] for d in side.batch)
            attrs[f"{name}_contracting_dimensions"] = tuple(place[d] for d in side.contracted)
    new.append(replace(op, operands=tuple(operands), attrs=attrs))
    return Replacement(op.results, tuple(new))


def _side(op: Op, number: int) -> _Side:
    name = _SIDES[number]
    batch, contracted = (op.attrs[f"{name}_{kind}_dimensions"] for kind in ("batching", "contracting"))
    return _Side(op.operands[number], tuple(batch), tuple(contracted))


def _is_made(side: _Side, producer: Producer) -> bool:
    """Whether a kernel could make the operand."""
    op = producer(side.value)
    while op is not None and lookup(op.name).op_class is OpClass.SHAPE and op.operands:
        op = producer(op.operands[0])
    return op is not None and op.name in OPS and lookup(op.name).op_class in _MADE


_MADE = frozenset((OpClass.LIGHT, OpClass.EXPENSIVE, OpClass.REDUCTION, OpClass.INDEX))
