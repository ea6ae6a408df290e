"""Sums that are a product of a matrix and few vectors, as the product again.

    %b = broadcast %v;  %p = multiply %m, %b
    %s = reduce add %p {thin}                       ->     %s = dot_general %m, %v

Kernels make such sums as any others (passes/graph/reduce_products.py). XLA has a library for products: its
costs are theirs, and sums that no kernel takes go back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from jstitch.ir.graph import Op, Value
from jstitch.ir.ops import build
from jstitch.ir.ops.build import is_broadcast
from jstitch.ir.types import DType, TensorType
from jstitch.passes.base.product_side import PRODUCT

THIN = "thin"  # attribute of such a sum: a Thin
CONVERT, TRANSPOSE = "stablehlo.convert", "stablehlo.transpose"


@dataclass(frozen=True)
class Thin:
    """What a sum does not say of its product: types of operands and of the result, and other attributes."""

    operands: frozenset[DType]
    result: DType
    attrs: tuple[tuple[str, Any], ...]

    def __str__(self) -> str:
        return f"dot_general of {', '.join(sorted(t.value for t in self.operands))} to {self.result.value}"


def products_back(ops: Iterable[Op]) -> list[Op]:
    """The ops, with products instead of sums; what these were made of is left over."""
    makers: dict[Value, Op] = {}
    found: list[Op] = []
    for op in ops:
        makers |= dict.fromkeys(op.results, op)
        found += tuple(_product(op, makers)) if THIN in op.attrs else (op,)
    return found


@dataclass(frozen=True)
class _Factor:
    """value: as it is in memory. dims: where its dimensions are among those that are summed."""

    value: Value
    dims: tuple[int, ...]

    @classmethod
    def of(cls, v: Value, makers: Mapping[Value, Op], narrow: frozenset[DType]) -> _Factor:
        dims = tuple(range(v.tensor.rank))
        while (op := makers.get(v)) is not None:
            if is_broadcast(op):
                dims = tuple(dims[d] for d in op.attrs["broadcast_dimensions"])
            elif op.name == TRANSPOSE:
                dims = tuple(dims[op.attrs["permutation"].index(d)] for d in range(len(dims)))
            elif op.name != CONVERT or not _widens(op, narrow):
                break
            (v,) = op.operands
        return cls(v, dims)

    def where(self, places: Iterable[int]) -> tuple[int, ...]:
        return tuple(map(self.dims.index, places))


def _widens(op: Op, narrow: frozenset[DType]) -> bool:
    """A conversion; others round, as the program says."""
    before, after = op.operands[0].tensor.dtype, op.results[0].tensor.dtype
    return before in narrow and (before is after or before.itemsize < after.itemsize)


def _product(total: Op, makers: Mapping[Value, Op]) -> Iterator[Op]:
    """The sum itself where something else has become of what it sums."""
    multiply = makers.get(total.operands[0])
    thin: Thin = total.attrs[THIN]
    if multiply is None or multiply.name != "stablehlo.multiply":
        yield total
        return
    left, right = (_Factor.of(v, makers, thin.operands) for v in multiply.operands)
    summed = set(total.attrs["dimensions"])
    both, either = {*left.dims} & {*right.dims}, {*left.dims} | {*right.dims}
    sizes = multiply.result.shape
    whole = all(sizes[d] == n for f in (left, right) for d, n in zip(f.dims, f.value.shape, strict=True))
    if not whole or not summed <= both or either != set(range(len(sizes))):
        yield total
        return
    batch = sorted(both - summed)
    attrs = dict(thin.attrs)
    for name, factor in (("lhs", left), ("rhs", right)):
        attrs[f"{name}_batching_dimensions"] = factor.where(batch)
        attrs[f"{name}_contracting_dimensions"] = factor.where(sorted(summed))
    order = [*batch, *(d for factor in (left, right) for d in factor.dims if d not in both)]
    result = Value(TensorType(tuple(sizes[d] for d in order), thin.result))
    yield Op(PRODUCT, (left.value, right.value), (result,), attrs).located(total)
    wide = build.convert(result, total.results[0].tensor.dtype)
    kept = [d for d in range(len(sizes)) if d not in summed]
    yield wide
    yield replace(build.transpose(wide.result, [order.index(d) for d in kept]), results=total.results)
