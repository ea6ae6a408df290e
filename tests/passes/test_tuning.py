"""A7: tuning equals a brute-force search, asks for less, and trivial ops do not veto."""

from __future__ import annotations

import itertools
import zlib

import pytest

from jstitch.ir.graph import Op, Value
from jstitch.ir.ops import build
from jstitch.ir.schedule import SchedType, Schedule, blocks, same_spread
from jstitch.ir.types import DType, TensorType
from jstitch.passes.fuse.tune_schedule import tune_schedule
from jstitch.passes.lower.propagate_schedule import Refusal, Schedules, is_trivial, resolve
from jstitch.passes.lower.schedule import distinct_schedules

F32 = DType.F32


class Model:
    """Arbitrary but fixed costs, and how often they were asked for."""

    def __init__(self, salt: int) -> None:
        self.salt, self.calls = salt, 0

    def __call__(self, op: Op, schedule: Schedule) -> float:
        self.calls += 1
        return 1.0 + zlib.crc32(f"{self.salt} {op.name} {op.results[0].shape} {schedule}".encode()) % 100


def pattern() -> tuple[list[Op], list[Op]]:
    """x -> exp -> (row sums, a negated copy): two roots that share exp."""
    x = Value(TensorType((4, 6), F32))
    zero = build.splat(TensorType((), F32), 0.0)
    exp = build.elementwise("stablehlo.exponential", x)
    total = build.reduce("stablehlo.add", exp.result, zero.result, (1,))
    negated = build.elementwise("stablehlo.negate", exp.result)
    return [zero, exp, total, negated], [total, negated]


def brute_force(ops: list[Op], roots: list[Op], model: Model) -> float | None:
    """The least cost over every combination of root schedules with one number of blocks."""
    best: float | None = None
    for chosen in itertools.product(*(distinct_schedules(r.results[0].shape) for r in roots)):
        if len({blocks(r.results[0].shape, s) for r, s in zip(roots, chosen, strict=True)}) > 1:
            continue
        merged = _together(ops, roots, chosen)
        if merged is None:
            continue
        cost = sum(model(op, s) for op, s in merged.items() if s is not None and not is_trivial(op))
        best = cost if best is None else min(best, cost)
    return best


def _together(ops: list[Op], roots: list[Op], chosen: tuple[Schedule, ...]) -> Schedules | None:
    merged: Schedules = {}
    for root, schedule in zip(roots, chosen, strict=True):
        found = resolve(ops, {root: schedule})
        if isinstance(found, Refusal):
            return None
        for op, s in found.items():
            if op in merged and not same_spread(op.results[0].shape, merged[op], s):
                return None
            merged.setdefault(op, s)
    return merged


@pytest.mark.parametrize("salt", range(12))
@pytest.mark.parametrize("number", [1, 2])
def test_tuning_equals_brute_force(salt: int, number: int) -> None:
    ops, roots = pattern()
    roots = roots[:number]
    thorough, quick = Model(salt), Model(salt)
    tuned = tune_schedule(ops, roots, quick)
    assert not isinstance(tuned, Refusal)
    assert tuned.cost == brute_force(ops, roots, thorough)
    assert {blocks(r.results[0].shape, s) for r, s in tuned.roots.items()} == {tuned.blocks}
    assert quick.calls <= thorough.calls


def test_the_search_is_cut_off_early() -> None:
    ops, roots = pattern()
    asked = []
    for salt in range(20):
        thorough, quick = Model(salt), Model(salt)
        tune_schedule(ops, roots, quick)
        brute_force(ops, roots, thorough)
        asked.append((quick.calls, thorough.calls))
    assert sum(q for q, _ in asked) < sum(t for _, t in asked)


def test_a_trivial_op_is_bypassed_and_others_veto() -> None:
    """A transpose between two elementwise ops leaves only one block, unless it is inlined."""
    x = Value(TensorType((4, 6), F32))
    exp = build.elementwise("stablehlo.exponential", x)
    turned = build.transpose(exp.result, (1, 0))
    root = build.elementwise("stablehlo.negate", turned.result)
    ops = [exp, turned, root]
    many = tune_schedule(ops, [root], lambda op, s: 1.0 / blocks(op.results[0].shape, s))
    strict = tune_schedule(
        ops, [root], lambda op, s: 1.0 / blocks(op.results[0].shape, s), bypass=lambda op: False
    )
    assert not isinstance(many, Refusal)
    assert not isinstance(strict, Refusal)
    assert (strict.blocks, many.blocks) == (4, 24) or strict.blocks < many.blocks
    assert many.schedules[exp] is None


def test_rows_and_columns_have_only_one_block_in_common() -> None:
    x = Value(TensorType((4, 6), F32))
    zero = build.splat(TensorType((), F32), 0.0)
    exp = build.elementwise("stablehlo.tanh", x)
    rows, columns = (build.reduce("stablehlo.add", exp.result, zero.result, (d,)) for d in (1, 0))
    tuned = tune_schedule([zero, exp, rows, columns], [rows, columns], lambda op, s: 1.0)
    assert not isinstance(tuned, Refusal)
    assert tuned.blocks == 1
    assert all(s.sched_type is SchedType.ROW and s.sword == 1 for s in tuned.roots.values())
