"""Make a mean and the sum of squares around it in one reading of their input, inside one kernel.

    m = sum over r of x[r, c] / N                      b = sum over the rows of a block / B       (per block)
    q = sum over r of (x[r, c] - m[c])^2       ->      d = sum over the block of (x - b)^2        (per block)
                                                       m = sum over blocks of b * B / N
                                                       q = sum over blocks of d + B (b - m)^2

A second pass over rows that do not fit the cache costs as much as the first. A block of rows does fit: it is
summed, and then the squares around its own mean, which nothing can cancel in (Chan, Golub and LeVeque 1979).
Only for sums along the leading dimensions of a large tensor that the kernel is given; f32 or f64.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from jstitch.ir.graph import Op, Value
from jstitch.ir.ops import build
from jstitch.passes.base.profile import Profile
from jstitch.passes.lower.factor_sums import alive
from jstitch.passes.lower.form_groups import APART
from jstitch.passes.lower.sum_forms import DIVIDE, MULTIPLY, SQUARE, SUBTRACT, SumForms

LARGE = 1 << 21  # bytes of an input that is worth it
FEWEST_ROWS, MOST_ROWS = 8, 64  # of a block


@dataclass(frozen=True)
class _Variance:
    """squares, total: the two sums. mean: broadcast. rows: of a block."""

    squares: Op
    total: Op
    x: Value
    mean: Value
    rows: int


def block_variances(ops: Sequence[Op], outputs: Collection[Value], profile: Profile) -> list[Op]:
    """Ops, in order, that compute the same outputs."""
    forms = SumForms({v: op for op in ops for v in op.results})
    found = [v for v in (_match(op, forms, profile.variance_block) for op in ops) if v is not None]
    if not found:
        return list(ops)
    blocks = {v.total: _Blocks(v, forms) for v in found}
    squares = {v.squares: blocks[v.total] for v in found}
    new: list[Op] = []
    for op in ops:
        if op in blocks:
            new += blocks[op].total()
        elif op in squares:
            new += squares[op].squares()
        else:
            new.append(op)
    return alive(new, outputs)


def _match(op: Op, forms: SumForms, nbytes: int) -> _Variance | None:
    """nbytes: of a block, at most."""
    if not forms.is_sum(op):
        return None
    dims = tuple(sorted(op.attrs["dimensions"]))
    square = forms.producers.get(op.operands[0])
    if square is None or square.name not in (SQUARE, MULTIPLY) or len(set(square.operands)) != 1:
        return None
    found = forms.deviation(square.operands[0], dims)
    if found is None or found.x in forms.producers or found.x.tensor.nbytes < LARGE:
        return None
    rows = _block(found.x, dims, nbytes)
    return _Variance(op, found.total, found.x, found.mean, rows) if rows else None


def _block(x: Value, dims: tuple[int, ...], nbytes: int) -> int:
    """Rows of a block; 0 when the summed dimensions are not the leading ones, or nothing divides them."""
    count = math.prod(x.shape[d] for d in dims)
    if dims != tuple(range(len(dims))) or x.tensor.size == count:
        return 0
    most = min(MOST_ROWS, nbytes * count // x.tensor.nbytes)
    return next((k for k in range(most, FEWEST_ROWS - 1, -1) if count % k == 0), 0)


class _Blocks:
    """The ops for one input."""

    def __init__(self, v: _Variance, forms: SumForms) -> None:
        self.v, self.forms = v, forms
        self.count = math.prod(v.x.shape[: len(v.total.attrs["dimensions"])]) // v.rows
        self.rest = v.total.result.shape
        self.ops: list[Op] = []

    def _emit(self, op: Op) -> Value:
        self.ops.append(op)
        return op.results[0]

    def _sum(self, like: Op, x: Value, dim: int) -> Op:
        shape = tuple(n for d, n in enumerate(x.shape) if d != dim)
        t = replace(x.tensor, shape=shape)
        return replace(
            like,
            operands=(x, like.operands[1]),
            results=(Value(t),),
            attrs={**like.attrs, "dimensions": (dim,)},
        )

    def total(self) -> list[Op]:
        """The sum over all rows as one over blocks."""
        view = build.reshape(self.v.x, (self.count, self.v.rows, *self.rest))
        self.x = self._emit(replace(view, attrs={**view.attrs, APART: True}))
        self.sums = self._emit(self._sum(self.v.total, self.x, 1))
        self._emit(replace(self._sum(self.v.total, self.sums, 0), results=self.v.total.results))
        return self._take()

    def squares(self) -> list[Op]:
        """The sum of squares around the mean as one over blocks."""
        op = self.v.squares
        rows = self._emit(build.splat(self.sums.tensor, self.v.rows))
        means = self._emit(build.elementwise(DIVIDE, self.sums, rows))
        at = (0, *range(2, 2 + len(self.rest)))
        spread = self._emit(build.broadcast(means, self.x.shape, at))
        difference = self._emit(build.elementwise(SUBTRACT, self.x, spread))
        inside = self._emit(self._sum(op, self._emit(build.elementwise(MULTIPLY, difference, difference)), 1))
        mean = self.forms.narrow(self.v.mean, self._dims, op.result.tensor, self._emit)
        mean = self._emit(build.broadcast(mean, means.shape, tuple(range(1, 1 + len(self.rest)))))
        shift = self._emit(build.elementwise(SUBTRACT, means, mean))
        shift = self._emit(build.elementwise(MULTIPLY, shift, shift))
        shift = self._emit(build.elementwise(MULTIPLY, rows, shift))
        both = self._emit(build.add(inside, shift))
        self._emit(replace(self._sum(op, both, 0), results=op.results))
        return self._take()

    @property
    def _dims(self) -> tuple[int, ...]:
        return tuple(sorted(self.v.total.attrs["dimensions"]))

    def _take(self) -> list[Op]:
        ops, self.ops = self.ops, []
        return ops
