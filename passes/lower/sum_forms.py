"""What sums and their operands look like: along what a value is fixed, what is a deviation from a mean.

%s = reduce add of %x over 0;  %m = divide %s, N;  %b = broadcast %m;  %d = subtract %x, %b
deviation(%d, (0,))   ==   Deviation(x=%x, mean=%b, total=the reduce)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from jstitch.ir.graph import Op, Value
from jstitch.ir.ops import build
from jstitch.ir.ops.build import splat_value
from jstitch.ir.types import DType, TensorType
from jstitch.passes.base.row_access import is_reduction

ADD, SUBTRACT, MULTIPLY = "stablehlo.add", "stablehlo.subtract", "stablehlo.multiply"
DIVIDE, NEGATE, SQUARE = "stablehlo.divide", "stablehlo.negate", "chlo.square"
MAXIMUM, EXPONENTIAL, ABS = "stablehlo.maximum", "stablehlo.exponential", "stablehlo.abs"
POWER = "stablehlo.power"
BROADCAST, RESHAPE = "stablehlo.broadcast_in_dim", "stablehlo.reshape"


@dataclass(frozen=True)
class Deviation:
    """x - mean or mean - x, where the mean (broadcast) comes from the sum `total`."""

    x: Value
    mean: Value
    total: Op


@dataclass(frozen=True)
class SumForms:
    """What sums and their operands look like. producers: the pattern's ops by value."""

    producers: Mapping[Value, Op]

    def is_sum(self, op: Op) -> bool:
        """Whether the op sums one f32 or f64 tensor, from 0."""
        if not is_reduction(op) or op.attrs.get("monoid") != ADD or len(op.results) != 1:
            return False
        same = op.operands[0].tensor.dtype is op.result.tensor.dtype
        start = splat_value(self.producers.get(op.operands[1]))
        return same and op.result.tensor.dtype in (DType.F32, DType.F64) and start is not None and not start

    def is_fixed(self, v: Value, dims: tuple[int, ...]) -> bool:
        """Whether `v` is the same all along the dimensions, and visibly so."""
        op = self.producers.get(v)
        if splat_value(op) is not None:
            return True
        if op is None or op.name != BROADCAST:
            return False
        where = zip(op.operands[0].shape, op.attrs["broadcast_dimensions"], strict=True)
        return all(n == 1 for n, d in where if d in dims)

    def deviation(self, v: Value, dims: tuple[int, ...]) -> Deviation | None:
        """`v` as a deviation from the mean along the dimensions."""
        op = self.producers.get(v)
        if op is None or op.name != SUBTRACT:
            return None
        a, b = op.operands
        for x, mean in ((a, b), (b, a)):
            total = self._total(mean, x, dims)
            if total is not None:
                return Deviation(x, mean, total)
        return None

    def _total(self, m: Value, x: Value, dims: tuple[int, ...]) -> Op | None:
        """The sum of `x`, when `m` is its mean along the dimensions, broadcast."""
        op = self.producers.get(m)
        if op is None or op.name != BROADCAST or not self.is_fixed(m, dims):
            return None
        where = zip(op.operands[0].shape, op.attrs["broadcast_dimensions"], strict=True)
        spread = [d for n, d in where if n > 1]
        quotient = self._made_by(op.operands[0])
        if quotient is None or quotient.name != DIVIDE:
            return None
        count = splat_value(self.producers.get(quotient.operands[1]))
        total = self._made_by(quotient.operands[0])
        if total is None or not self.is_sum(total) or count is None or total.operands[0] is not x:
            return None
        kept = [d for d, n in enumerate(x.shape) if d not in dims and n > 1]
        same = tuple(sorted(total.attrs["dimensions"])) == dims and spread == kept
        return total if same and float(count) == math.prod(x.shape[d] for d in dims) else None

    def _made_by(self, v: Value) -> Op | None:
        """The op that makes `v`, looking through reshapes that add and drop dimensions of size 1."""
        op = self.producers.get(v)
        while op is not None and op.name == RESHAPE and _wide(op.operands[0]) == _wide(v):
            op = self.producers.get(op.operands[0])
        return op

    def narrow(self, v: Value, dims: tuple[int, ...], t: TensorType, emit: Callable[[Op], Value]) -> Value:
        """What is fixed along the dimensions, without them."""
        op = self.producers[v]
        scalar = splat_value(op)
        if scalar is not None:
            return emit(build.splat(t, scalar))
        kept = [d for d in range(v.tensor.rank) if d not in dims]
        found, where = op.operands[0], op.attrs["broadcast_dimensions"]
        shape = tuple(n for n, d in zip(found.shape, where, strict=True) if d in kept)
        if shape != found.shape:
            found = emit(build.reshape(found, shape))
        at = tuple(kept.index(d) for d in where if d in kept)
        return (
            found
            if at == tuple(range(t.rank)) and shape == t.shape
            else emit(build.broadcast(found, t.shape, at))
        )


def _wide(v: Value) -> tuple[int, ...]:
    return tuple(n for n in v.shape if n > 1)
