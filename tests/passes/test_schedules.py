"""A5 and A6: legal schedules, and propagation against an oracle that only runs the op.

The oracle changes one element of an operand at a time and looks which result elements change: block b needs
an element when one of those is in b. No rule of the planner is used in it.
"""

from __future__ import annotations

import math
from functools import lru_cache
from random import Random

import numpy as np
import pytest

from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.ops import OpClass, build, lookup, propagation
from jstitch.ir.ops.evaluate import run_op
from jstitch.ir.schedule import ONE_BLOCK, SchedType, Schedule, block_of, blocks, reshaped
from jstitch.ir.types import DType, TensorType
from jstitch.passes.lower.propagate_schedule import Refusal, propagate, resolve
from jstitch.passes.lower.schedule import distinct_schedules, legal_schedules
from tests.passes.random_graphs import Limits, make_graph

F32 = DType.F32
SHAPES = [(), (1,), (7,), (4, 6), (1, 6), (2, 1, 3), (2, 3, 4), (2, 1, 1, 5)]


@pytest.mark.parametrize("shape", SHAPES)
def test_legal_schedules_are_all_triples(shape: tuple[int, ...]) -> None:
    expected = {
        (d, sword, kind)
        for d, n in enumerate(shape)
        for sword in range(1, n + 1)
        if n % sword == 0
        for kind in SchedType
    } or {(0, 1, SchedType.ROW)}
    assert {(s.split_dim, s.sword, s.sched_type) for s in legal_schedules(shape)} == expected
    assert legal_schedules(shape)[0] == ONE_BLOCK
    assert legal_schedules((3, 0)) == (ONE_BLOCK,)


@pytest.mark.parametrize("shape", SHAPES[2:])
def test_blocks_follow_the_paper(shape: tuple[int, ...]) -> None:
    """blocks = product of the dimensions left (Row) or right (Column) of split_dim, times sword; all full."""
    for s in legal_schedules(shape):
        side = shape[: s.split_dim] if s.sched_type is SchedType.ROW else shape[s.split_dim + 1 :]
        assert blocks(shape, s) == math.prod(side) * s.sword
        counts = np.bincount([block_of(shape, s, i) for i in np.ndindex(shape)])
        assert len(counts) == blocks(shape, s)
        assert len(set(counts)) == 1


def test_reshaped_is_complete() -> None:
    """A schedule of the new shape is found exactly when one spreads the elements alike."""
    pairs = [((4, 6), (24,)), ((24,), (2, 3, 4)), ((2, 3, 4), (6, 4)), ((2, 12), (4, 6)), ((6, 1, 4), (3, 8))]
    for old, new in [*pairs, *((b, a) for a, b in pairs)]:
        for s in legal_schedules(old):
            spread = [block_of(old, s, i) for i in np.ndindex(old)]
            alike = [
                t for t in legal_schedules(new) if [block_of(new, t, i) for i in np.ndindex(new)] == spread
            ]
            found = reshaped(old, s, new)
            assert (found is not None) == bool(alike), (old, s, new)
            assert found is None or found in alike


def dependence(op: Op) -> list[np.ndarray]:
    """Per operand, a matrix (operand element, result element) of who needs whom."""
    rng = np.random.default_rng(0)
    arrays = [_distinct(rng, v.tensor) for v in op.operands]
    before = run_op(op, arrays)[0].reshape(-1)
    found = []
    for k, x in enumerate(arrays):
        rows = []
        for e in range(x.size):
            changed = x.copy().reshape(-1)
            changed[e] = _other(x, e)
            after = run_op(op, [*arrays[:k], changed.reshape(x.shape), *arrays[k + 1 :]])[0].reshape(-1)
            rows.append(before != after)
        found.append(np.array(rows).reshape(x.size, before.size))
    return found


def _distinct(rng: np.random.Generator, type_: TensorType) -> np.ndarray:
    return np.asarray(rng.permutation(type_.size) + 1.0).reshape(type_.shape).astype(type_.dtype.numpy)


def _other(x: np.ndarray, e: int) -> object:
    """A value that is nowhere else."""
    return x.dtype.type(1000 + e)


def check_op(op: Op, complete: bool) -> int:
    """Every legal schedule of one op against the oracle. Returns the number of exact entries seen."""
    needs, shape, exact = dependence(op), op.results[0].shape, 0
    for schedule in distinct_schedules(shape):
        of_result = np.array([block_of(shape, schedule, i) for i in np.ndindex(shape)])
        entries = propagate(op, schedule)
        for k, operand in enumerate(op.operands):
            needed = np.stack(
                [needs[k][:, of_result == b].any(axis=1) for b in range(blocks(shape, schedule))]
            )
            entry = entries[k] if isinstance(entries, tuple) else None
            if entry is None:
                alike = [s for s in distinct_schedules(operand.shape) if _assigns(operand.shape, s, needed)]
                refused_one = isinstance(entries, Refusal) and len(op.operands) > 1
                assert not (complete and alike and not refused_one), (
                    f"{op.name} {op.operands[k].shape} -> {shape} {schedule}: {alike} passes"
                )
            else:
                assert _assigns(operand.shape, entry, needed), f"{op.name} {schedule} -> {entry}"
                exact += 1
    return exact


def _assigns(shape: tuple[int, ...], schedule: Schedule, needed: np.ndarray) -> bool:
    """Whether block b needs exactly what the schedule assigns to b, among the elements read at all."""
    assigned = np.array([block_of(shape, schedule, i) for i in np.ndindex(shape)])
    if blocks(shape, schedule) != len(needed):
        return blocks(shape, schedule) == 1 and len(needed) == 1
    same = np.equal(np.equal(assigned[None], np.arange(len(needed))[:, None]), needed)
    return bool(np.all(same[:, needed.any(axis=0)]))


@lru_cache(maxsize=1)
def instances() -> list[Op]:
    """Ops of random graphs (small, f32), each once per kind and shape."""
    limits = Limits(ops=14, rank=4, elements=48, dtypes=(F32,), empty=False, exact=True, specials=False)
    ops: dict[tuple[object, ...], Op] = {}
    for seed in range(200):
        for op in make_graph(Random(seed), limits).ops:
            sizes = [v.tensor.size for v in (*op.operands, *op.results)]
            floats = all(v.tensor.dtype is F32 for v in op.operands)
            if op.operands and floats and 0 < min(sizes) and max(sizes) <= 64:
                ops.setdefault((op.name, *(v.shape for v in (*op.operands, *op.results))), op)
    by_name: dict[str, list[Op]] = {}
    for op in ops.values():
        by_name.setdefault(op.name, []).append(op)
    return [op for same in by_name.values() for op in same[:8]]


COMPLETE = ("reshape", "transpose", "reduce", "broadcast_in_dim", "negate", "add")


@pytest.mark.parametrize("name", sorted({op.name for op in instances()}))
def test_propagation_equals_the_oracle(name: str) -> None:
    """The elements that a block needs are those that the operand's schedule assigns to it; a refusal or a
    replicated operand of the ops in COMPLETE means that no schedule does."""
    complete = name.removeprefix("stablehlo.") in COMPLETE
    ops = [op for op in instances() if op.name == name]
    assert sum(check_op(op, complete and not _masks(op)) for op in ops) > 0


def _masks(op: Op) -> bool:
    """max, min and their like hide some elements from the oracle's single changes."""
    return op.attrs.get("monoid") in ("stablehlo.maximum", "stablehlo.minimum")


def test_batch_dot_and_gather_equal_the_oracle() -> None:
    lhs, rhs = Value(TensorType((2, 3, 2, 2), F32)), Value(TensorType((2, 3, 2, 3), F32))
    assert check_op(build.batch_dot(lhs, rhs), complete=False) > 0
    data, at = Value(TensorType((3, 4), F32)), Value(TensorType((3, 1), DType.S32))
    attrs = {
        "offset_dims": (),
        "collapsed_slice_dims": (1,),
        "operand_batching_dims": (0,),
        "start_indices_batching_dims": (0,),
        "start_index_map": (1,),
        "index_vector_dim": 1,
        "slice_sizes": (1, 1),
    }
    gather = build.op("stablehlo.gather", (data, at), TensorType((3,), F32), attrs)
    assert propagate(gather, Schedule(0, 3, SchedType.ROW)) == (Schedule(0, 3, SchedType.ROW),) * 2


@pytest.mark.parametrize(
    "name", ["transpose", "reduce", "broadcast_in_dim", "concatenate", "slice", "reverse"]
)
def test_the_oracle_catches_a_wrong_rule(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule replaced by one that hands the schedule on as it is."""
    full = f"stablehlo.{name}"

    def careless(op: Op, schedule: Schedule) -> propagation.Propagated:
        return tuple(schedule if schedule.split_dim < v.tensor.rank else None for v in op.operands)

    monkeypatch.setitem(propagation._BY_NAME, full, careless)
    wrong = 0
    for op in (op for op in instances() if op.name == full):
        try:
            check_op(op, complete=False)
        except (AssertionError, ZeroDivisionError):
            wrong += 1
    assert wrong > 0


def softmax(shape: tuple[int, int]) -> tuple[Graph, dict[str, Op]]:
    x = Value(TensorType(shape, F32))
    low, zero = (build.splat(TensorType((), F32), v) for v in (-math.inf, 0.0))
    top = build.reduce("stablehlo.maximum", x, low.result, (1,))
    wide = build.broadcast(top.result, shape, (0,))
    moved = build.elementwise("stablehlo.subtract", x, wide.result)
    exp = build.elementwise("stablehlo.exponential", moved.result)
    total = build.reduce("stablehlo.add", exp.result, zero.result, (1,))
    below = build.broadcast(total.result, shape, (0,))
    root = build.elementwise("stablehlo.divide", exp.result, below.result)
    ops = (low, zero, top, wide, moved, exp, total, below, root)
    return Graph((x,), ops, root.results), {"exp": exp, "total": total, "root": root}


def test_resolve_gives_every_op_a_schedule_or_names_the_first_that_refuses() -> None:
    graph, ops = softmax((8, 6))
    rows = resolve(graph.ops, {ops["root"]: Schedule(0, 4, SchedType.ROW)})
    assert isinstance(rows, dict)
    assert rows[ops["total"]] == rows[ops["exp"]] == Schedule(0, 4, SchedType.ROW)
    for schedule in (Schedule(1, 2, SchedType.ROW), Schedule(1, 6, SchedType.COLUMN)):
        refusal = resolve(graph.ops, {ops["root"]: schedule})
        assert isinstance(refusal, Refusal)
        assert lookup(refusal.op.name).op_class is OpClass.REDUCTION
        assert "reduction" in refusal.rule
    assert isinstance(resolve(graph.ops, {ops["root"]: ONE_BLOCK}), dict)
