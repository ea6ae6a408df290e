"""Write the product of a matrix and a vector as a multiplication and a sum, as XLA:GPU does with small ones.

    %s = dot_general %m, %v                            %b = broadcast %v;  %p = multiply %m, %b
                                               ->      %s = reduce add %p
    %m: [b, l, w], %v: [b, w], batch b, contract w

No library is quicker than a sum over what is read once, so XLA makes a kernel of its own of it. As ops they
are the kernels' like any others: what makes the vector, the sum, and what is made of it can share one kernel,
as scores, softmax and mixture do in the attention of one query.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import build
from jstitch.ir.types import DType
from jstitch.passes.base.context import Context
from jstitch.passes.base.rewrite import Producer, Replacement, rewrite

PRODUCT, MULTIPLY, SUM = "stablehlo.dot_general", "stablehlo.multiply", "stablehlo.add"
SMALL = 10_000_000  # multiplications up to which XLA:GPU does it
_SIDES = ("lhs", "rhs")


def reduce_products(graph: Graph, context: Context) -> Graph:
    """The graph without such products, where products stand as the library will run them."""
    return rewrite(graph, _rule) if context.profile.products else graph


@dataclass(frozen=True)
class _Operand:
    """One side of a product: its dimensions by role, in the order in which both sides pair them."""

    value: Value
    batch: tuple[int, ...]
    contracted: tuple[int, ...]

    @classmethod
    def of(cls, op: Op, number: int) -> _Operand:
        name = _SIDES[number]
        batch, contracted = (op.attrs[f"{name}_{kind}_dimensions"] for kind in ("batching", "contracting"))
        return cls(op.operands[number], tuple(batch), tuple(contracted))

    @property
    def paired(self) -> tuple[int, ...]:
        return (*self.batch, *self.contracted)

    @property
    def free(self) -> tuple[int, ...]:
        return tuple(d for d in range(self.value.tensor.rank) if d not in self.paired)

    @property
    def rows(self) -> int:
        """How many vectors it holds for each element of the batch."""
        return math.prod(self.value.shape[d] for d in self.free)


def _rule(op: Op, producer: Producer) -> Replacement | None:
    if op.name != PRODUCT or {v.tensor.dtype for v in (*op.operands, *op.results)} != {DType.F32}:
        return None
    sides = sorted((_Operand.of(op, number) for number in (0, 1)), key=lambda side: -side.rows)
    matrix, vector = sides
    size = matrix.value.tensor.size
    if vector.rows != 1 or not matrix.contracted or not 0 < size < SMALL:
        return None
    ops = tuple(_written(matrix, vector, op))
    return Replacement(op.results, (*ops[:-1], replace(ops[-1], results=op.results)))


def _written(matrix: _Operand, vector: _Operand, op: Op) -> Iterator[Op]:
    """The ops; the last makes the product's result."""
    place: Mapping[int, int] = dict(zip(vector.paired, matrix.paired, strict=True))
    order = sorted(vector.paired, key=place.__getitem__)
    shape = matrix.value.shape
    turned = build.transpose(vector.value, (*order, *vector.free))
    flat = build.reshape(turned.result, [vector.value.shape[d] for d in order])
    spread = build.broadcast(flat.result, shape, [place[d] for d in order])
    product = build.elementwise(MULTIPLY, matrix.value, spread.result)
    zero = build.splat(replace(matrix.value.tensor, shape=()), 0.0)
    total = build.reduce(SUM, product.result, zero.result, matrix.contracted)
    yield from (turned, flat, spread, product, zero, total)
    kept = [d for d in range(len(shape)) if d not in matrix.contracted]
    outer = build.transpose(total.result, [kept.index(d) for d in (*matrix.batch, *matrix.free)])
    yield from (outer, build.reshape(outer.result, op.result.shape))
