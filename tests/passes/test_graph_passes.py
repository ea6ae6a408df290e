"""Graph passes: each keeps what the graph computes, and does what it is for."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from jstitch.frontend.importer import import_module
from jstitch.ir.graph import Graph, Op, Value
from jstitch.ir.interpret import interpret
from jstitch.ir.ops import build
from jstitch.ir.types import DType, TensorType
from jstitch.ir.verify import check
from jstitch.passes.base.named_pass import NamedPass
from jstitch.passes.base.run_passes import Step
from jstitch.passes.graph.canonicalize import canonicalize
from jstitch.passes.graph.clone_broadcasts import clone_broadcasts
from jstitch.passes.graph.cse import cse
from jstitch.passes.graph.dce import dce
from jstitch.passes.graph.fold_constants import MAX_ELEMENTS, fold_constants
from jstitch.passes.pipeline import (
    PIPELINE,
    dump_after,
    frames,
    run,
    stop_after,
    verify_after,
)
from tests.contexts import CPU
from tests.passes.random_graphs import Limits, arguments, classes, make_graph, random_graphs

F32 = DType.F32


def assert_same_results(before: Graph, after: Graph, seed: int) -> None:
    """Every bit, but for the payload of NaNs and the sign of zeros."""
    args = arguments(before, seed)
    for a, b in zip(interpret(before, args), interpret(after, args), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a.astype(np.float64), b.astype(np.float64))


@pytest.mark.parametrize("step", PIPELINE, ids=lambda step: step.name)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(graph=random_graphs(), seed=st.integers(0, 99))
def test_each_pass_keeps_the_results(step: NamedPass, graph: Graph, seed: int) -> None:
    check(graph)
    assert_same_results(graph, check(step.run(graph, CPU), step.name), seed)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(graph=random_graphs(Limits(ops=25)), seed=st.integers(0, 99))
def test_the_pipeline_keeps_the_results(graph: Graph, seed: int) -> None:
    assert_same_results(graph, run(graph, CPU, after=verify_after), seed)


def test_random_graphs_reach_every_class() -> None:
    graphs = [make_graph(Random(seed)) for seed in range(200)]
    assert set.union(*map(classes, graphs)) == {
        "LIGHT",
        "EXPENSIVE",
        "REDUCTION",
        "SHAPE",
        "INDEX",
        "CONSTANT",
    }
    ranks = {v.tensor.rank for g in graphs for v in g.inputs}
    assert {0, 1, 2, 3, 6} <= ranks
    assert any(v.tensor.size == 0 for g in graphs for v in g.inputs)


def of(inputs: list[Value], ops: list[Op], *outputs: Value) -> Graph:
    return check(Graph(tuple(inputs), tuple(ops), outputs or ops[-1].results))


def names(graph: Graph) -> list[str]:
    return [op.name.removeprefix("stablehlo.") for op in graph.ops]


def test_canonicalize_merges_chains() -> None:
    x = Value(TensorType((4, 8), F32))
    ops = [build.transpose(x, (1, 0))]
    ops.append(build.transpose(ops[-1].result, (1, 0)))
    ops.append(build.reshape(ops[-1].result, (32,)))
    ops.append(build.reshape(ops[-1].result, (2, 16)))
    ops.append(build.reverse(ops[-1].result, ()))
    graph = dce(canonicalize(of([x], ops)))
    assert names(graph) == ["reshape"]
    assert graph.ops[0].operands == (x,)


def test_canonicalize_makes_keepdims_part_of_the_broadcast() -> None:
    x = Value(TensorType((4,), F32))
    kept = build.broadcast(x, (4, 1), (0,))
    wide = build.broadcast(kept.result, (4, 8), (0, 1))
    graph = dce(canonicalize(of([x], [kept, wide])))
    assert names(graph) == ["broadcast_in_dim"]
    assert graph.ops[0].attrs["broadcast_dimensions"] == (0,)


@pytest.mark.parametrize(("zero", "simpler"), [(-0.0, True), (0.0, False)])
def test_adding_zero_goes_only_when_the_sign_of_zero_survives(zero: float, simpler: bool) -> None:
    x = Value(TensorType((3,), F32))
    splat = build.splat(x.tensor, zero)
    graph = canonicalize(of([x], [splat, build.add(x, splat.result)]))
    assert (graph.outputs == (x,)) is simpler


@pytest.mark.parametrize("dtype", [jnp.bool_, jnp.int8, jnp.uint8, jnp.int32])
@pytest.mark.parametrize(("op", "bits"), [(lax.bitwise_and, ~0), (lax.bitwise_or, 0), (lax.bitwise_xor, 0)])
def test_a_reduction_of_one_element_that_starts_from_no_bits_is_a_reshape(
    op: Any, bits: int, dtype: Any
) -> None:
    for value, simpler in ((bits, True), (~bits, False)):
        start = np.asarray(value & 1 if dtype == jnp.bool_ else value).astype(dtype)
        f = jax.jit(lambda x: lax.reduce(x, start, op, (1,)))  # noqa: B023
        lowered = f.lower(jax.ShapeDtypeStruct((5, 1), dtype))
        graph = dce(canonicalize(import_module(lowered.compiler_ir("stablehlo"))))
        assert (names(graph) == ["reshape"]) is simpler


@pytest.mark.parametrize(
    ("middle", "target", "merged"),
    [(DType.F32, DType.S8, False), (DType.S32, DType.S8, True), (DType.F32, DType.F16, True)],
)
def test_convert_chains_merge_when_nothing_is_lost(middle: DType, target: DType, merged: bool) -> None:
    """s16 -> f32 -> s8 saturates where s16 -> s8 wraps."""
    x = Value(TensorType((3,), DType.S16))
    first = build.convert(x, middle)
    graph = dce(canonicalize(of([x], [first, build.convert(first.result, target)])))
    assert (len(graph.ops) == 1) is merged


def test_fold_computes_splats_of_any_size_and_bounds_dense_ones() -> None:
    a, b = (build.splat(TensorType((4096, 4096), F32), v) for v in (2.0, 4.0))
    graph = dce(fold_constants(of([], [a, b, build.elementwise("stablehlo.divide", a.result, b.result)])))
    (op,) = graph.ops
    assert op.attrs["value"].strides == (0, 0)
    assert float(op.attrs["value"][0, 0]) == 0.5
    dense = build.constant(np.arange(MAX_ELEMENTS + 1, dtype=np.float32))
    big = of([], [dense, build.elementwise("stablehlo.negate", dense.result)])
    assert names(fold_constants(big)) == ["constant", "negate"]


def test_cse_merges_equal_ops_and_keeps_opaque_ones() -> None:
    x = Value(TensorType((3,), F32))
    pair = [build.elementwise("stablehlo.exponential", x) for _ in range(2)]
    opaque = [
        Op("stablehlo.custom_call", (x,), (Value(x.type),), {"call_target_name": "f"}) for _ in range(2)
    ]
    total = build.add(pair[0].result, pair[1].result)
    graph = cse(Graph((x,), (*pair, *opaque, total), total.results))
    assert Counter(names(graph)) == {"exponential": 1, "custom_call": 2, "add": 1}
    assert graph.ops[-1].operands[0] is graph.ops[-1].operands[1]


def test_cse_tells_constants_apart_by_dtype_and_sign() -> None:
    ops = [build.splat(TensorType((2,), F32), v) for v in (0.0, -0.0, 0.0)]
    ops.append(build.splat(TensorType((2,), DType.S32), 0))
    graph = cse(of([], ops, *(op.result for op in ops)))
    assert len(graph.ops) == 3


def test_dce_keeps_effects_and_what_they_read() -> None:
    x = Value(TensorType((3,), F32))
    dead = build.elementwise("stablehlo.exponential", x)
    read = build.elementwise("stablehlo.negate", x)
    effect = Op("stablehlo.custom_call", (read.result,), (), {"has_side_effect": True})
    graph = dce(Graph((x,), (dead, read, effect), (x,)))
    assert names(graph) == ["negate", "custom_call"]


def test_passes_go_into_regions_and_frames_finds_them() -> None:
    p, x = Value(TensorType((), DType.BOOL)), Value(TensorType((2,), F32))
    same = build.reshape(x, (2,))
    branch = Graph((), (same,), same.results)
    choice = Op("stablehlo.if", (p,), (Value(x.type),), regions=(branch, Graph((), (), (x,))))
    graph = of([p, x], [choice])
    after = run(graph, CPU, after=verify_after)
    assert [len(frame.ops) for frame in frames(after)] == [1, 0, 0]


def test_every_reader_gets_its_own_broadcast() -> None:
    s, x = Value(TensorType((4,), F32)), Value(TensorType((4, 8), F32))
    wide = build.broadcast(s, (4, 8), (0,))
    readers = [build.add(x, wide.result), build.elementwise("stablehlo.multiply", x, wide.result)]
    graph = check(clone_broadcasts(of([s, x], [wide, *readers], *(r.result for r in readers))))
    assert names(graph).count("broadcast_in_dim") == 2
    assert all(len(users) == 1 for v, users in graph.users().items() if v not in graph.inputs)


def test_pipeline_callbacks(tmp_path: Path) -> None:
    graph, seen = make_graph(Random(1)), list[str]()

    def watch(step: Step[Graph]) -> None:
        seen.append(step.name)
        dump_after(tmp_path, first=2)(step)
        stop_after("cse")(step)

    run(graph, CPU, after=watch)
    assert seen[-1] == "cse"
    assert sorted(p.name for p in tmp_path.iterdir())[0] == "02_canonicalize.txt"
    assert len(list(tmp_path.iterdir())) == len(seen) < len(PIPELINE)


def test_concatenates_of_concatenates_are_one() -> None:
    """Along one dimension, where nothing else reads the inner one."""
    parts = [Value(TensorType((2, n), F32)) for n in (3, 1, 4, 2)]
    inner = build.concatenate(parts[:2], 1)
    outer = build.concatenate([inner.result, *parts[2:]], 1)
    (found,) = dce(canonicalize(Graph(tuple(parts), (inner, outer), outer.results))).ops
    assert found.operands == tuple(parts)
    both = Graph(tuple(parts), (inner, outer), (outer.result, inner.result))
    assert canonicalize(both) is both
    crossed = build.concatenate([inner.result, inner.result], 0)
    twice = Graph(tuple(parts), (inner, crossed), crossed.results)
    assert canonicalize(twice) is twice


def test_fold_computes_numbers_of_the_same_bits() -> None:
    """Of one number as well; one that is several narrower ones has no dimension, and they have one."""
    one = build.constant(np.float32(1.5))
    bits = build.op("stablehlo.bitcast_convert", [one.result], TensorType((), DType.S32))
    (folded,) = dce(fold_constants(of([], [one, bits]))).ops
    assert int(folded.attrs["value"]) == int(np.float32(1.5).view(np.int32))
    narrow = build.op("stablehlo.bitcast_convert", [one.result], TensorType((4,), DType.U8))
    (folded,) = dce(fold_constants(of([], [one, narrow]))).ops
    assert folded.attrs["value"].tolist() == np.float32(1.5).reshape(1).view(np.uint8).tolist()
