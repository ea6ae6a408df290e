"""Take out of a sum what does not change along it, inside one kernel.

    sum over r of k[c] * 2 * (x[r, c] - m[c]) * y[r, c]    ->    (k * 2) * sum over r of (x - m) * y
    sum over r of x[r, c] - (mean of x over r)[c]          ->    0 * mean

The gradients of norms are full of such sums. Taken apart, several of them turn out to be the same sum, and
one whose factor k is itself made from sums need not wait for them: the kernel reads its input fewer times.
Only factors whose range is known (tame_factors.py), and few of them: what is divided to be squared stays so.
Any of deviations, as no factor makes more of 0. Values are f32 or f64; only rounding differs.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from jstitch.ir.graph import Op, Value
from jstitch.ir.ops import build
from jstitch.ir.unwind import Deep, each, unwind
from jstitch.passes.lower.sum_forms import ABS, DIVIDE, MULTIPLY, NEGATE, POWER, SQUARE, SUBTRACT, SumForms
from jstitch.passes.lower.tame_factors import LARGEST, MOST_ROOTS, MOST_VARYING, Kind, TameFactors

MOST_FACTORS = 64  # a product of more, such as a square of squares, is left as it is


def factor_sums(ops: Sequence[Op], outputs: Collection[Value]) -> list[Op]:
    """Ops, in order, that compute the same outputs; the ops that nobody needs any more are gone."""
    producers = {v: op for op in ops for v in op.results}
    sums = _Sums(SumForms(producers), TameFactors(producers), frozenset(outputs))
    for op in ops:
        sums.take(op)
    return alive(sums.ops, outputs) if sums.changed else list(ops)


def alive(ops: Sequence[Op], outputs: Collection[Value]) -> list[Op]:
    """The ops that the outputs need."""
    needed = set(outputs)
    found: list[Op] = []
    for op in reversed(ops):
        if needed.intersection(op.results):
            found.append(op)
            needed.update(op.uses)
    return found[::-1]


@dataclass(frozen=True)
class _Factor:
    """A factor that does not change along the sum; `below`: it divides."""

    value: Value
    below: bool = False


@dataclass(frozen=True)
class _Product:
    """varying * fixed * (-1 if negative)."""

    varying: tuple[Value, ...]
    fixed: tuple[_Factor, ...] = ()
    negative: bool = False

    def __mul__(self, other: _Product) -> _Product:
        return _Product(
            self.varying + other.varying, self.fixed + other.fixed, self.negative is not other.negative
        )

    @property
    def plain(self) -> bool:
        return not self.fixed and not self.negative


@dataclass(eq=False)
class _Sums:
    """forms, tame: of the original ops. number: the order in which values were first seen.
    at: the op that is looked at, in whose place new ones stand."""

    forms: SumForms
    tame: TameFactors
    outputs: frozenset[Value]
    ops: list[Op] = field(default_factory=list)
    at: Op | None = None
    changed: bool = False
    number: dict[Value, int] = field(default_factory=dict)
    renamed: dict[Value, Value] = field(default_factory=dict)
    products: dict[tuple[Value, ...], Value] = field(default_factory=dict)
    made: dict[tuple[Value, tuple[int, ...]], Value] = field(default_factory=dict)
    factors: dict[tuple[Value, tuple[int, ...]], _Product] = field(default_factory=dict)

    def take(self, op: Op) -> None:
        for v in (*op.operands, *op.results):
            self.number.setdefault(v, len(self.number))
        op = self.at = self._with_new_names(op)
        if not self.forms.is_sum(op):
            self._emit(op)
            if op.name == MULTIPLY:
                self.products.setdefault(self._sorted(op.operands), op.result)
            return
        dims = tuple(sorted(op.attrs["dimensions"]))
        product = unwind(self._factors(op.operands[0], dims))
        found = self.forms.deviation(product.varying[0], dims) if len(product.varying) == 1 else None
        mean = found.mean if found is not None else None
        if mean is None and (product.plain or not product.varying):
            same = self.made.setdefault((op.operands[0], dims), op.result)
            self._put(op, same) if same is not op.result else self._emit(op)
            return
        self.changed = True
        if mean is None:
            self._put(op, self._scale(self._sum(op, product.varying, dims), product, dims))
            return
        nothing = self._scale(self._zero(mean, dims, op.result), product, dims)
        self._put(op, self._emit(build.elementwise(ABS, nothing)))  # no sum that begins with 0 is -0

    def _with_new_names(self, op: Op) -> Op:
        if self.renamed.keys().isdisjoint(op.operands):
            return op
        return replace(op, operands=tuple(self.renamed.get(v, v) for v in op.operands))

    def _emit(self, op: Op) -> Value:
        """Also of what `forms` found, which goes by the old names."""
        self.ops.append(self._with_new_names(op if self.at is None else op.located(self.at)))
        return op.results[0]

    def _put(self, op: Op, found: Value) -> None:
        """Let `found` stand for the result of `op`."""
        self.changed = True
        if op.result in self.outputs:
            self._emit(replace(build.reshape(found, found.shape), results=op.results))
        else:
            self.renamed[op.result] = found

    # -- taking apart ---------------------------------------------------------------------------------

    def _factors(self, v: Value, dims: tuple[int, ...]) -> Deep[_Product]:
        """The product that `v` is; `v` itself when nothing in it is fixed, or it has too many factors."""
        if self.forms.is_fixed(v, dims):
            return _Product((), (_Factor(v),))
        if (v, dims) not in self.factors:
            found = yield from self._taken_apart(v, dims)
            many = len(found.varying + found.fixed) > MOST_FACTORS
            whole = found.plain or not found.varying or many or not self._is_tame(found, dims)
            self.factors[v, dims] = _Product((v,)) if whole else found
        return self.factors[v, dims]

    def _is_tame(self, product: _Product, dims: tuple[int, ...]) -> bool:
        """Whether all of its factors together may be taken out."""
        if len(product.varying) == 1 and self.forms.deviation(product.varying[0], dims) is not None:
            return True
        kinds = [self.tame.kind(f.value) for f in product.fixed]
        roots = kinds.count(Kind.ROOT)
        if None in kinds or roots > MOST_ROOTS:
            return False
        if roots and not self._are_different(product.varying):
            return False
        size = 1.0
        for factor in product.fixed:
            number = abs(self.tame.number(factor.value) or 1.0)
            size = size / number if factor.below else size * number
        return 1 / LARGEST <= size <= LARGEST

    def _are_different(self, values: Sequence[Value]) -> bool:
        """Whether few are multiplied, and none by itself."""
        todo, found = [*values], set[Value]()
        while todo and len(found) + len(todo) <= MOST_VARYING:
            op = self.forms.producers.get(v := todo.pop())
            if op is not None and op.name == MULTIPLY:
                todo += op.operands
            elif v in found or (op is not None and op.name in (SQUARE, POWER)):
                return False
            else:
                found.add(v)
        return not todo

    def _taken_apart(self, v: Value, dims: tuple[int, ...]) -> Deep[_Product]:
        op = self.forms.producers.get(v)
        match (op.name, op.operands) if op is not None else ("", ()):
            case (name, (a, b)) if name == MULTIPLY:
                left, right = yield from each(self._factors(u, dims) for u in (a, b))
                return left * right
            case (name, (a, b)) if name == DIVIDE and self.forms.is_fixed(b, dims):
                (found,) = yield from each((self._factors(a, dims),))
                return found * _Product((), (_Factor(b, below=True),))
            case (name, (a,)) if name == NEGATE:
                (found,) = yield from each((self._factors(a, dims),))
                return found * _Product((), negative=True)
        return _Product((v,))

    # -- putting together -----------------------------------------------------------------------------

    def _sorted(self, values: Sequence[Value]) -> tuple[Value, ...]:
        return tuple(sorted(values, key=lambda v: self.number.setdefault(v, len(self.number))))

    def _sum(self, op: Op, varying: Sequence[Value], dims: tuple[int, ...]) -> Value:
        """The sum of the product of what varies; equal ones once."""
        first, *rest = self._sorted(varying)
        for v in rest:
            pair = self._sorted((first, v))
            if pair not in self.products:
                self.products[pair] = self._emit(build.elementwise(MULTIPLY, *pair))
            first = self.products[pair]
        if (first, dims) not in self.made:
            total = replace(op, operands=(first, op.operands[1]), results=(Value(op.result.type),))
            self.made[first, dims] = self._emit(total)
        return self.made[first, dims]

    def _zero(self, mean: Value, dims: tuple[int, ...], result: Value) -> Value:
        """Zero where the mean is finite."""
        zero = self._emit(build.splat(result.tensor, 0.0))
        return self._emit(
            build.elementwise(MULTIPLY, zero, self.forms.narrow(mean, dims, result.tensor, self._emit))
        )

    def _scale(self, total: Value, product: _Product, dims: tuple[int, ...]) -> Value:
        negative = product.negative
        for factor in product.fixed:
            name = DIVIDE if factor.below else MULTIPLY
            other = self.forms.narrow(factor.value, dims, total.tensor, self._emit)
            number = self.tame.number(factor.value)
            if number is not None and number < 0:
                negative, other = not negative, self._emit(build.splat(total.tensor, -number))
            total = self._emit(build.elementwise(name, total, other))
        if not negative:
            return total
        zero = self._emit(build.splat(total.tensor, 0.0))
        return self._emit(build.elementwise(SUBTRACT, zero, total))  # no sum that begins with 0 is -0
