"""The papers as published: their planners are right, and what each paper adds decides something."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jstitch
from jstitch.frontend.importer import import_module
from jstitch.ir.graph import Graph, Op
from jstitch.ir.schedule import SchedType, Schedule, blocks
from jstitch.options import PRESETS, CompileOptions
from jstitch.passes.base.context import Context
from jstitch.passes.base.plan import FusionPlan
from jstitch.passes.explore.search_beams import AS_PUBLISHED
from jstitch.passes.lower.choose_template import best_kernel
from jstitch.passes.pipeline import run
from jstitch.passes.plan_frame import plan_frame
from jstitch.passes.planners import PLANNERS
from tests.contexts import CPU_PROFILE, H200_PROFILE, on
from tests.passes.test_given_templates import gradient, layer_norm

Array = Any
TARGETS = {"cpu": CPU_PROFILE, "h200": H200_PROFILE}


def unlike(x: Array) -> tuple[Array, ...]:
    return jax.nn.softmax(x, 0), jnp.exp(x) * 2, jnp.tanh(x).sum()


def between_products(x: Array) -> Array:
    w = jnp.ones((x.shape[1], x.shape[1])) / x.shape[1]
    return jnp.tanh(layer_norm(x @ w) @ w) + jnp.exp(x)


def turned_around(x: Array) -> Array:
    return jnp.flip(jnp.tanh(x) * x.sum(1, keepdims=True), 1)


KINDS = (layer_norm, gradient, unlike, between_products, turned_around, jax.nn.softmax)
PROGRAMS = {f.__name__: f for f in KINDS}


def graph_of(f: Callable[..., Any], context: Context, shape: tuple[int, ...] = (256, 1024)) -> Graph:
    return run(import_module(jax.jit(f).lower(jnp.zeros(shape)).compiler_ir("stablehlo")), context)


def planned(f: Callable[..., Any], planner: str, target: str = "cpu", **options: Any) -> FusionPlan:
    context = on(TARGETS[target], planner=planner, tune="off", **options)
    return plan_frame(graph_of(f, context), context)


@pytest.mark.parametrize("planner", PRESETS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_right(name: str, planner: str) -> None:
    x = jnp.asarray(np.random.default_rng(0).normal(size=(96, 256)).astype(np.float32))
    options = CompileOptions(planner=planner, tune="off", verify=True, strict=True)
    found = jax.tree.leaves(jstitch.jit(PROGRAMS[name], options=options)(x))
    for a, b in zip(found, jax.tree.leaves(jax.jit(PROGRAMS[name])(x)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("planner", PRESETS)
def test_kernels_of_every_program(planner: str, target: str) -> None:
    context = on(TARGETS[target], planner=planner, tune="off")
    for f in PROGRAMS.values():
        patterns = planned(f, planner, target).patterns
        assert patterns
        for p in patterns:
            best_kernel("k", p.ops, p.inputs, p.outputs, context, p.updates, p.template)


# -- FusionStitching 2018 -------------------------------------------------------------------------------


def test_library_calls_stop_every_pattern() -> None:
    """A chain beside a product is cut where that stands."""

    def f(x: Array) -> tuple[Array, Array]:
        y = x
        for _ in range(4):
            y = jnp.tanh(y * 1.01)
        return y, jnp.tanh(x @ jnp.ones((1024, 1024))) + 1.0

    counts = [len(planned(f, planner).patterns) for planner in ("layers", "fs2018")]
    assert counts[0] < counts[1]


def test_small_ops_of_a_layer_are_packed() -> None:
    def f(*xs: Array) -> list[Array]:
        return [jnp.tanh(x) * 2.0 for x in xs]

    args = [jnp.zeros(100 + k) for k in range(4)]
    context = on(CPU_PROFILE, planner="fs2018", tune="off")
    same = [jnp.zeros(100)] * 4
    for given, wanted in ((same, 1), (args, 4)):
        graph = run(import_module(jax.jit(f).lower(*given).compiler_ir("stablehlo")), context)
        assert len(plan_frame(graph, context).patterns) == wanted  # by shape


def test_kernels_are_built_from_the_schedule_that_is_cheapest() -> None:
    """Times that want 16 blocks give 16 programs."""
    for wanted in (4, 16, 64):

        def seconds(op: Op, schedule: Schedule, wanted: int = wanted) -> float:
            return 1.0 + abs(blocks(op.results[0].shape, schedule) - wanted)

        context = replace(on(CPU_PROFILE, planner="fs2018", tune="off"), times=seconds)
        (pattern,) = plan_frame(graph_of(jax.nn.softmax, context), context).patterns
        kernel = best_kernel("k", pattern.ops, pattern.inputs, pattern.outputs, context, (), pattern.template)
        assert {lane.programs for phase in kernel.phases for lane in phase.lanes} == {wanted}


def test_columns_are_among_the_schedules() -> None:
    def seconds(op: Op, schedule: Schedule) -> float:
        own = blocks(op.results[0].shape, schedule) == 8 and schedule.sched_type is SchedType.COLUMN
        return 1.0 if own else 2.0

    context = replace(on(CPU_PROFILE, planner="fs2018", tune="off"), times=seconds)
    graph = graph_of(lambda x: jax.nn.softmax(x, 0), context)
    (pattern,) = plan_frame(graph, context).patterns
    kernel = best_kernel("k", pattern.ops, pattern.inputs, pattern.outputs, context, (), pattern.template)
    ((lane,),) = (phase.lanes for phase in kernel.phases)
    assert (lane.programs, lane.owns) == (8, 128)


def test_times_are_measured_once_per_machine(tmp_path: Path) -> None:
    x = jnp.ones((64, 256))
    options = CompileOptions(
        planner="fs2018", tune="measure", cache_dir=str(tmp_path), tune_seconds=3.0, strict=True
    )
    jstitch.jit(lambda x: jax.nn.softmax(x) + 1, options=options)(x)
    query = "SELECT key, microseconds FROM times WHERE measured = 1 ORDER BY key"
    with sqlite3.connect(tmp_path / "performance.db") as db:
        first = db.execute(query).fetchall()
        assert first
        assert all(microseconds > 0 for _, microseconds in first)
        jstitch.jit(lambda x: jax.nn.softmax(x) + 1, options=options)(x)
        again = dict(db.execute(query).fetchall())
    assert all(again[key] == microseconds for key, microseconds in first)


# -- FusionStitching 2019 and 2021 ----------------------------------------------------------------------


def test_templates_are_tried() -> None:
    assert [CompileOptions(planner=p).tried for p in ("auto", *PRESETS)] == [1, 1, 8, 8]
    assert CompileOptions(planner="fs2019", templates=20).tried == 20


def test_candidates_are_the_papers_own() -> None:
    """No pattern of the merged layers is among them."""
    for planner in ("fs2019", "fs2021"):
        origins = {p.origin for f in PROGRAMS.values() for p in planned(f, planner, "h200").patterns}
        assert origins.isdisjoint({"plan_layers", "merge_patterns"}), (planner, origins)


def test_the_latency_evaluator_judges_the_beams(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[FusionPlan] = []

    def worst_first(plan: FusionPlan, context: Context) -> float:
        judged.append(plan)
        return float(-len(plan.patterns))

    monkeypatch.setattr("jstitch.passes.planners.latency_seconds", worst_first)
    plan = planned(gradient, "fs2021")
    assert 1 < len(judged) <= 2 * AS_PUBLISHED.width
    assert len(plan.patterns) == max(len(p.patterns) for p in judged)


@pytest.mark.parametrize("planner", PRESETS)
def test_passes_of_ours_are_left_out(planner: str) -> None:
    names = [p.name for p in (*PLANNERS[planner].passes, *PLANNERS[planner].finish)]
    ours = {"merge_patterns", "hand_over", "weigh_cuts", "recompute_outputs", "split_prologues"}
    ours |= {"pack_patterns"}
    assert ours.isdisjoint(names)
