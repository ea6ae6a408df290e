"""An operand of a product of matrices: which of its dimensions are rows, which are contracted.

dot_general %q [b, m, k], %k [b, n, k]     ->     Side(%q, batch (0,), contracted (2,)), free (1,)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from jstitch.ir.graph import Op, Value

PRODUCT = "stablehlo.dot_general"
SIDES = ("lhs", "rhs")
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Side:
    """An operand of a product: its dimensions by role, in the order in which both sides pair them."""

    value: Value
    batch: tuple[int, ...]
    contracted: tuple[int, ...]

    @classmethod
    def of(cls, op: Op, number: int) -> Side:
        name = SIDES[number]
        batch, contracted = (op.attrs[f"{name}_{kind}_dimensions"] for kind in ("batching", "contracting"))
        return cls(op.operands[number], tuple(batch), tuple(contracted))

    @property
    def paired(self) -> tuple[int, ...]:
        return (*self.batch, *self.contracted)

    @property
    def free(self) -> tuple[int, ...]:
        return tuple(d for d in range(self.value.tensor.rank) if d not in self.paired)

    def shape(self, dims: Sequence[int]) -> Shape:
        return tuple(self.value.shape[d] for d in dims)

    def size(self, dims: Sequence[int]) -> int:
        return math.prod(self.shape(dims))
