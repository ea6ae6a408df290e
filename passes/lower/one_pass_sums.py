"""Sums that wait for another reduction of the same operand become one reduction of several values.

    a = sum of x, q = sum of (x - b)^2      ->   n, o, s, q' = moments of x:  a = n * o + s
                                                 q = q' + 2 * s * (o - b) + n * (o - b)^2
    a = sum of x, c = sum of y * (x - b)    ->   n, o, s, q', t, c' = moments of x with weight y:
                                                 c = c' + t * (o - b)
    m = maximum of x, e = sum of exp(x - b) ->   m, e' = soft maximum of x:  e = e' * exp(m - b)

Where rows are reduced each such pair costs two phases more, and another reading of x. What is subtracted, b,
is most often the mean or the maximum, but need not be. The values reduced are f32 or f64; only rounding
differs (see docs/numerics.md), NaN and infinities spread as before.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from jstitch.ir.graph import Op, Value
from jstitch.ir.ops import build
from jstitch.ir.ops.build import splat_value
from jstitch.ir.types import DType, TensorType
from jstitch.ir.unwind import Deep, each, unwind
from jstitch.passes.base.profile import Profile
from jstitch.passes.base.row_access import IDENTITY, UNIFORM, is_reduction
from jstitch.passes.lower.joint_monoids import JointMonoid, moments, soft_maximum
from jstitch.passes.lower.sum_forms import (
    ABS,
    ADD,
    EXPONENTIAL,
    MAXIMUM,
    MULTIPLY,
    SQUARE,
    SUBTRACT,
    SumForms,
)

Dims = tuple[int, ...]
MOST_FACTORS = 64  # a product of more, such as a square of squares, is a factor itself


def one_pass_sums(ops: Sequence[Op], outputs: Collection[Value], profile: Profile) -> list[Op]:
    """Ops, in order, that compute the same outputs; the same ops where the profile wants none of it."""
    if not profile.one_pass:
        return list(ops)
    search = _Search(profile)
    for op in ops:
        search.look_at(op)
    for op in ops:
        search.match(op)
    new = [op for family in search.found.values() for op in family.rewritten()]
    made = {v for op in new for v in op.results}
    kept = [op for op in ops if made.isdisjoint(op.results)]
    return _in_order([*kept, *search.products.values(), *new], outputs) if new else list(ops)


def _in_order(ops: Sequence[Op], outputs: Collection[Value]) -> list[Op]:
    """What the outputs need, makers before users."""
    maker = {v: op for op in ops for v in op.results}
    found: dict[Op, None] = {}

    def visit(op: Op) -> Deep[None]:
        if op not in found:
            yield from each(visit(maker[v]) for v in op.uses if v in maker)
            found[op] = None

    for v in outputs:
        unwind(visit(maker[v]))
    return list(found)


@dataclass(frozen=True)
class _Later:
    """A sum of products of `x - base`, one for each base, and of a weight; or of exp(x - base)."""

    op: Op
    bases: tuple[Value, ...]
    weight: Value | None = None


@dataclass(eq=False)
class _Family:
    """Reductions of one operand over the same dimensions: the plain one, and those that wait for it.

    others: plain sums of weights. ops: what replaces all of them.
    """

    first: Op
    producers: Mapping[Value, Op]
    later: list[_Later] = field(default_factory=list)
    others: dict[Value, Op] = field(default_factory=dict)
    ops: list[Op] = field(default_factory=list)

    @property
    def x(self) -> Value:
        return self.first.operands[0]

    @property
    def dims(self) -> Dims:
        return _dims(self.first)

    @property
    def small(self) -> TensorType:
        return self.first.result.tensor

    def rewritten(self) -> list[Op]:
        if self.first.attrs["monoid"] == MAXIMUM:
            self._exponentials()
        else:
            self._moments()
        return self.ops

    def _exponentials(self) -> None:
        largest, total = self.first.result, Value(self.small)
        self._reduce(soft_maximum(self.small.dtype), [self.x, self._splat(self.x, 1.0)], [largest, total])
        for sum_ in self.later:
            (base,) = sum_.bases
            moved = self._do(SUBTRACT, largest, self._narrow(base))
            self._finish(sum_.op, MULTIPLY, total, self._do(EXPONENTIAL, moved))

    def _moments(self) -> None:
        weights = list(dict.fromkeys(sum_.weight for sum_ in self.later if sum_.weight is not None))
        one, zero = self._splat(self.x, 1.0), self._splat(self.x, 0.0)
        elements, results = [one, self.x, zero, zero], [Value(self.small) for _ in range(4)]
        for y in weights:
            elements += [y, zero]
            results += [self.others[y].result if y in self.others else Value(self.small), Value(self.small)]
        self._reduce(moments(len(weights), self.small.dtype), elements, results)
        _, origin, total, squares, *sums = results
        count = self._splat(total, math.prod(self.x.shape[d] for d in self.dims))
        self._finish(self.first, ADD, self._do(MULTIPLY, count, origin), total)
        for sum_ in self.later:
            apart = [self._apart(base, origin, total) for base in sum_.bases]
            if sum_.weight is not None:
                y, product = sums[(k := 2 * weights.index(sum_.weight)) : k + 2]
                self._finish(sum_.op, ADD, product, self._do(MULTIPLY, y, apart[0]))
            else:
                both = self._do(ADD, total, self._do(MULTIPLY, count, apart[1]))
                first = self._do(ADD, squares, self._do(MULTIPLY, apart[0], both))
                moved = self._do(ADD, first, self._do(MULTIPLY, total, apart[1]))
                self._settle(sum_.op, squares, moved, self._do(ADD, squares, apart[0]))

    def _settle(self, op: Op, tested: Value, on_finite: Value, other: Value) -> None:
        size = self._do(ABS, tested)
        finite = self._emit(build.compare("LT", size, self._splat(size, math.inf)))
        self.ops.append(replace(build.select(finite, on_finite, other), results=op.results).located(op))

    def _apart(self, base: Value, origin: Value, total: Value) -> Value:
        """origin - base; not a number where the sum is not finite."""
        finite = self._do(SUBTRACT, total, total)
        return self._do(ADD, self._do(SUBTRACT, origin, self._narrow(base)), finite)

    def _reduce(self, monoid: JointMonoid, elements: Sequence[Value], results: Sequence[Value]) -> None:
        """The reduction of all of them."""
        scalar = TensorType((), self.small.dtype)
        inits = [self._emit(build.splat(scalar, k)) for k in monoid.identities]
        attrs = {"dimensions": self.dims, IDENTITY: monoid.identities, UNIFORM: monoid.uniform}
        operands = (*elements, *inits)
        regions = (monoid.region,)
        joint = replace(self.first, operands=operands, results=tuple(results), attrs=attrs, regions=regions)
        self.ops.append(joint)

    def _emit(self, op: Op) -> Value:
        self.ops.append(op)
        return op.result

    def _do(self, name: str, *operands: Value) -> Value:
        return self._emit(build.elementwise(name, *operands))

    def _finish(self, op: Op, name: str, *operands: Value) -> None:
        self.ops.append(replace(build.elementwise(name, *operands), results=op.results).located(op))

    def _splat(self, like: Value, value: float) -> Value:
        return self._emit(build.splat(like.tensor, value))

    def _narrow(self, base: Value) -> Value:
        """What is broadcast, in the shape of the result."""
        return SumForms(self.producers).narrow(base, self.dims, self.small, self._emit)


@dataclass(eq=False)
class _Search:
    """What the values of a pattern are made of.

    depth: reductions over rows on the way to each value. plain: by operand, dimensions and monoid.
    """

    profile: Profile
    producers: dict[Value, Op] = field(default_factory=dict)
    depth: dict[Value, int] = field(default_factory=dict)
    plain: dict[tuple[Value, Dims, str], Op] = field(default_factory=dict)
    found: dict[Op, _Family] = field(default_factory=dict)
    taken: set[Op] = field(default_factory=set)
    products: dict[tuple[Value, ...], Op] = field(default_factory=dict)
    factors: dict[Value, list[Value]] = field(default_factory=dict)

    def look_at(self, op: Op) -> None:
        """Learn what the op makes."""
        reduces = self._reduces_rows(op)
        depth = max((self.depth.get(v, 0) for v in op.uses), default=0) + reduces
        self.depth.update(dict.fromkeys(op.results, depth))
        self.producers.update(dict.fromkeys(op.results, op))
        if reduces and (monoid := self._plain(op)) is not None:
            self.plain.setdefault((op.operands[0], _dims(op), monoid), op)

    def match(self, op: Op) -> None:
        """Put a sum that waits for another reduction in that one's family."""
        if op in self.taken or not self._reduces_rows(op) or self._plain(op) != ADD:
            return
        v = self.producers.get(op.operands[0])
        if v is not None and v.name == EXPONENTIAL and (x := self._base(v.operands[0], _dims(op))):
            self._join(op, (x[0], _dims(op), MAXIMUM), x[1:])
        elif v is not None and v.name in (MULTIPLY, SQUARE):
            self._match_product(op)

    def _match_product(self, op: Op) -> None:
        factors = unwind(self._factors(op.operands[0]))
        bases = [self._base(v, _dims(op)) for v in factors]
        x = next((b[0] for b in bases if b is not None), None)
        if x is None:
            return
        own = tuple(b[1] for b in bases if b is not None and b[0] is x)
        rest = [v for v, b in zip(factors, bases, strict=True) if b is None or b[0] is not x]
        key = x, _dims(op), ADD
        if len(own) == 2 and not rest:
            self._join(op, key, own)
        elif len(own) == 1 and rest and max(self.depth.get(v, 0) for v in rest) <= self.depth.get(x, 0):
            self._join(op, key, own, self._product(rest))

    def _join(
        self, op: Op, key: tuple[Value, Dims, str], bases: tuple[Value, ...], weight: Value | None = None
    ) -> None:
        first = self.plain.get(key)
        if first is None or (first in self.taken and first not in self.found):
            return
        family = self.found.setdefault(first, _Family(first, self.producers))
        family.later.append(_Later(op, bases, weight))
        self.taken |= {first, op}
        other = self.plain.get((weight, _dims(op), ADD)) if weight is not None else None
        same = weight is not None and self.depth.get(weight, 0) == self.depth.get(family.x, 0)
        if other is not None and weight is not None and same and other not in self.taken:
            family.others[weight] = other
            self.taken.add(other)

    def _reduces_rows(self, op: Op) -> bool:
        """Whether it reduces the dimension that rows are cut along, or rows too long to be kept on chip."""
        if not is_reduction(op):
            return False
        tensor, dims = op.operands[0].tensor, op.attrs["dimensions"]
        outer = next((d for d, n in enumerate(tensor.shape) if n > 1), None)
        row = math.prod(tensor.shape[min(dims) :]) if dims else 0
        return outer in dims or row * tensor.dtype.itemsize > self.profile.arena_bytes

    def _plain(self, op: Op) -> str | None:
        """The monoid of a sum or maximum of floats from its identity on."""
        if len(op.results) != 1 or op.result.tensor.dtype not in (DType.F32, DType.F64):
            return None
        start = splat_value(self.producers.get(op.operands[1]))
        same = op.operands[0].tensor.dtype is op.result.tensor.dtype
        identity = {ADD: 0.0, MAXIMUM: -math.inf}.get(monoid := op.attrs.get("monoid", ""))
        return monoid if same and start is not None and start == identity else None

    def _base(self, v: Value, dims: Dims) -> tuple[Value, Value] | None:
        """(x, base) when `v` is x - base, and base is the same along the dimensions and made after x."""
        op = self.producers.get(v)
        if op is None or op.name != SUBTRACT:
            return None
        x, base = op.operands
        later = self.depth.get(base, 0) > self.depth.get(x, 0)
        return (x, base) if later and SumForms(self.producers).is_fixed(base, dims) else None

    def _factors(self, v: Value) -> Deep[list[Value]]:
        if v not in self.factors:
            op = self.producers.get(v)
            operands: Sequence[Value] = ()
            if op is not None and op.name in (MULTIPLY, SQUARE):
                operands = op.operands if op.name == MULTIPLY else op.operands * 2
            parts = yield from each(self._factors(u) for u in operands)
            found = [f for part in parts for f in part]
            self.factors[v] = found if 0 < len(found) <= MOST_FACTORS else [v]
        return self.factors[v]

    def _product(self, factors: Sequence[Value]) -> Value:
        first, *rest = factors
        for v in rest:
            product = self.products.setdefault((first, v), build.elementwise(MULTIPLY, first, v))
            self.producers[product.result] = product
            first = product.result
        return first


def _dims(op: Op) -> Dims:
    return tuple(sorted(op.attrs["dimensions"]))
