"""Sums inside a kernel: invariant factors outside, equal sums once, variances block by block."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np
import pytest

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.interpret import interpret
from jstitch.ir.ops import build
from jstitch.ir.types import DType, TensorType
from jstitch.passes.base.profile import Profile
from jstitch.passes.base.row_access import is_reduction
from jstitch.passes.lower.block_variances import block_variances
from jstitch.passes.lower.factor_sums import factor_sums
from tests.contexts import CPU_PROFILE

Rewrite = Callable[[Sequence[Op], Collection[Value]], list[Op]]
ROWS, COLUMNS = 6144, 128


class Body:
    """Ops over x and y [rows, columns], k [columns] and h [rows]."""

    def __init__(self, rows: int = 24, columns: int = 8, dtype: DType = DType.F32) -> None:
        self.shape = (rows, columns)
        self.x, self.y = (Value(TensorType(self.shape, dtype)) for _ in range(2))
        self.k, self.h = Value(TensorType((columns,), dtype)), Value(TensorType((rows,), dtype))
        self.ops: list[Op] = []
        self.zero = self.emit(build.splat(TensorType((), dtype), 0.0))

    def emit(self, op: Op) -> Value:
        self.ops.append(op)
        return op.result

    def do(self, name: str, *operands: Value) -> Value:
        return self.emit(build.elementwise(f"stablehlo.{name}", *operands))

    def spread(self, v: Value, dim: int = 1) -> Value:
        return self.emit(build.broadcast(v, self.shape, (dim,)))

    def total(self, v: Value, dim: int = 0) -> Value:
        return self.emit(build.reduce("stablehlo.add", v, self.zero, (dim,)))

    def root(self, v: Value) -> Value:
        """The inverse of a length that is not 0."""
        square = self.do("multiply", v, v)
        return self.do("rsqrt", self.do("add", square, self.number(v, 1e-5)))

    def number(self, v: Value, value: float) -> Value:
        return self.emit(build.splat(v.tensor, value))

    def mean(self, v: Value) -> Value:
        total = self.total(v)
        return self.spread(self.do("divide", total, self.number(total, float(self.shape[0]))))

    def deviation(self) -> Value:
        return self.do("subtract", self.x, self.mean(self.x))

    def variance(self) -> Value:
        d = self.deviation()
        return self.total(self.do("multiply", d, d))

    def run(self, ops: Sequence[Op], outputs: Sequence[Value], offset: float = 0.0) -> list[np.ndarray]:
        inputs = (self.x, self.y, self.k, self.h)
        rng = np.random.default_rng(0)
        args = [rng.standard_normal(v.shape).astype(np.float32) + np.float32(offset) for v in inputs]
        return list(interpret(Graph(inputs, tuple(ops), tuple(outputs)), args))

    def check(self, rewrite: Rewrite, *outputs: Value, rtol: float = 2e-5, offset: float = 0.0) -> list[Op]:
        """The rewritten ops, whose outputs are those of the ops before."""
        after = rewrite(self.ops, outputs)
        both = zip(self.run(self.ops, outputs, offset), self.run(after, outputs, offset), strict=True)
        for a, b in both:
            np.testing.assert_allclose(b, a, rtol=rtol, atol=rtol * np.abs(a).max())
        return after


def sums(ops: Sequence[Op]) -> int:
    return sum(is_reduction(op) for op in ops)


def test_invariant_factors_leave_the_sum_and_equal_sums_meet() -> None:
    b = Body()
    k, product = b.spread(b.root(b.k)), b.do("multiply", b.x, b.y)
    first = b.total(b.do("multiply", product, k))
    second = b.total(b.do("negate", b.do("multiply", b.do("multiply", b.x, k), b.y)))
    third = b.total(b.do("divide", product, k))
    after = b.check(factor_sums, first, second, third)
    assert (sums(b.ops), sums(after)) == (3, 1)


@pytest.mark.parametrize("powers", [1, 2])
def test_no_power_of_a_factor_leaves_the_sum_of_which_it_keeps_the_range(powers: int) -> None:
    b = Body()
    root, found = b.spread(b.root(b.k)), b.x
    for _ in range(powers):
        found = b.do("multiply", found, root)
    after = b.check(factor_sums, b.total(found))
    assert (after == b.ops) == (powers > 1)


@pytest.mark.parametrize("name", ["multiply", "divide"])
def test_a_factor_of_any_size_stays(name: str) -> None:
    b = Body()
    s = b.total(b.do(name, b.do("multiply", b.x, b.y), b.spread(b.k)))
    assert factor_sums(b.ops, [s]) == b.ops


@pytest.mark.parametrize(("value", "leaves"), [(-2.0, True), (0.0, False), (np.inf, False), (1e-9, False)])
def test_numbers_leave_if_they_are_neither_large_nor_small(value: float, leaves: bool) -> None:
    b = Body()
    s = b.total(b.do("multiply", b.x, b.number(b.x, value)))
    after = factor_sums(b.ops, [s])
    assert (after != b.ops) == leaves
    if leaves:
        zero = [np.zeros(v.shape, np.float32) for v in (b.x, b.y, b.k, b.h)]
        (found,) = interpret(Graph((b.x, b.y, b.k, b.h), tuple(after), (s,)), zero)
        assert not np.signbit(found).any()  # 0 + 0 * -2


def test_no_root_leaves_the_sum_of_a_square() -> None:
    b = Body()
    square = b.do("multiply", b.x, b.x)
    s = b.total(b.do("multiply", square, b.spread(b.root(b.k))))
    assert factor_sums(b.ops, [s]) == b.ops


@pytest.mark.parametrize("shifted", ["by its maximum", "by that of all", "by another"])
def test_the_total_of_a_softmax_is_a_factor(shifted: str) -> None:
    """It is at least 1, if the maximum is that of what is summed."""
    b = Body()
    least = b.emit(build.splat(b.zero.tensor, -np.inf))
    most = b.emit(build.reduce("stablehlo.maximum", b.x, least, (0,)))
    greatest = b.emit(build.reduce("stablehlo.maximum", b.x, least, (0, 1)))
    everywhere = b.emit(build.broadcast(greatest, b.shape, ()))
    shift = {"by its maximum": b.spread(most), "by that of all": everywhere}.get(shifted, b.y)
    e = b.do("exponential", b.do("subtract", b.x, shift))
    share = b.do("divide", e, b.spread(b.total(e)))
    after = b.check(factor_sums, b.total(b.do("multiply", b.y, share)))
    assert any(op.name == "stablehlo.divide" and op.result.tensor.rank == 1 for op in after) == (
        shifted == "by its maximum"
    )


def test_two_outputs_may_be_one_sum() -> None:
    b = Body()
    product = b.do("multiply", b.x, b.y)
    one, two = b.total(product), b.total(b.do("multiply", product, b.number(b.x, 1.0)))
    assert sums(b.check(factor_sums, one, two)) == 1


def test_a_factor_may_be_a_sum_that_was_taken_apart() -> None:
    """What stands for the factor's sum is new: the old one is made by nobody."""
    b = Body()
    first = b.total(b.do("negate", b.x))
    second = b.total(b.do("multiply", b.y, b.spread(first)))
    third = b.do("subtract", b.x, b.spread(second))
    after = b.check(factor_sums, second, third)
    made = {v for op in after for v in op.results}
    assert {v for op in after for v in op.operands} <= made | {b.x, b.y}


def test_a_sum_along_the_other_dimension_keeps_its_factor() -> None:
    b = Body()
    ops = factor_sums(b.ops, [b.total(b.do("multiply", b.x, b.spread(b.k)), dim=1)])
    assert ops == b.ops


def test_a_sum_of_deviations_is_zero_times_the_mean() -> None:
    b = Body()
    s = b.total(b.do("multiply", b.deviation(), b.spread(b.k)))
    after = factor_sums(b.ops, [s])
    assert sums(after) == 1
    assert not b.run(after, [s])[0].any()
    assert np.isnan(b.run(after, [s], offset=np.inf)[0]).all()


def test_a_deviation_from_another_value_is_summed() -> None:
    b = Body()
    d = b.do("subtract", b.y, b.mean(b.x))
    assert sums(b.check(factor_sums, b.total(d))) == 2


def test_narrow_floats_are_left_alone() -> None:
    b = Body(dtype=DType.BF16)
    s = b.total(b.do("multiply", b.x, b.spread(b.k)))
    assert factor_sums(b.ops, [s]) == b.ops


def in_blocks(ops: Sequence[Op], outputs: Collection[Value]) -> list[Op]:
    return block_variances(ops, outputs, CPU_PROFILE)


@pytest.mark.parametrize("offset", [0.0, 1000.0])
def test_variances_are_made_in_blocks(offset: float) -> None:
    b = Body(ROWS, COLUMNS)
    q = b.variance()
    after = b.check(in_blocks, q, rtol=1e-3 if offset else 2e-5, offset=offset)
    assert sums(after) == 4
    exact = b.run(after, [q], offset)[0]
    x = np.random.default_rng(0).standard_normal((ROWS, COLUMNS)).astype(np.float32) + np.float32(offset)
    np.testing.assert_allclose(exact, ROWS * x.astype(np.float64).var(0), rtol=2e-5)


def test_small_inputs_and_rows_without_divisors_are_left_alone() -> None:
    for rows in (64, 6151):
        b = Body(rows, COLUMNS)
        assert block_variances(b.ops, [b.variance()], CPU_PROFILE) == b.ops


def test_a_profile_may_do_without_blocks() -> None:
    b = Body(ROWS, COLUMNS)
    q = b.variance()
    assert block_variances(b.ops, [q], Profile(variance_block=0)) == b.ops
