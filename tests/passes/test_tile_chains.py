"""Tilings of chains of products: all are right, those that are asked for are what runs, one is chosen."""

from __future__ import annotations

import json
import math
import sqlite3
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jstitch
from jstitch.codegen.interpret_kernel import interpret_kernel
from jstitch.codegen.kernel_ir import Kernel, Lane
from jstitch.frontend.kernel_clock import KernelClock
from jstitch.ir.graph import Graph
from jstitch.ir.types import DType
from jstitch.passes.base.context import Context
from jstitch.passes.base.plan import FusionPattern
from jstitch.passes.base.profile import Profile
from jstitch.passes.fuse.find_chains import find_chains
from jstitch.passes.fuse.tile_chains import search_chain, templates_of, timed_tilings
from jstitch.passes.lower.apply_template import TemplateError
from jstitch.passes.lower.check_kernel import check_kernel
from jstitch.passes.lower.lower_kernel import lower_kernel
from jstitch.passes.lower.tile_rows import Products, StepTile, step_tiles
from jstitch.passes.plan_frame import plan_frame
from jstitch.runtime.performance_library import FILE, PerformanceLibrary
from jstitch.template import parse_template
from tests.contexts import CPU, CPU_PROFILE, H200, H200_PROFILE, on
from tests.passes.chain_programs import FLOATS, HALVES, close, program
from tests.passes.test_own_columns import graph_of

Array = Any
TARGETS = {"cpu": (CPU_PROFILE, FLOATS), "h200": (H200_PROFILE, HALVES)}
WIDTHS = (64, 96, 160)  # of what is between products


def _small(seed: int) -> bool:
    """Few enough products for the interpreter, which takes a turn for each."""
    q, _, v, _ = program(seed, FLOATS, WIDTHS)[1]
    return q.size * v.shape[-2] + v.size * q.shape[-2] < 60_000


SEEDS = [*filter(_small, range(500))]
QUICK, MORE = SEEDS[:8], SEEDS[8:]


def pattern_of(graph: Graph) -> FusionPattern:
    return FusionPattern(tuple(graph.ops), tuple(graph.inputs), tuple(graph.outputs), "drawn")


def lane_of(kernel: Kernel) -> Lane:
    """The one that multiplies."""
    lanes = [lane for phase in kernel.phases for lane in phase.lanes]
    return max(lanes, key=lambda lane: lane.step)


def blocks_of(kernel: Kernel) -> set[int]:
    """How many there are."""
    return {loop.hi for loop, _ in lane_of(kernel).loops if loop is not None}


def lowered(of: Graph | FusionPattern, profile: Profile, **more: Any) -> Kernel:
    return lower_kernel("k", of.ops, of.inputs, of.outputs, profile, **more)


# -- every tiling is right ----------------------------------------------------------------------------------


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("seed", [*QUICK, *(pytest.param(n, marks=pytest.mark.slow) for n in MORE)])
def test_tilings_of_drawn_chains(seed: int, target: str) -> None:
    profile, kinds = TARGETS[target]
    context = on(profile, tune="off")
    f, args = program(seed, kinds, WIDTHS)
    graph = graph_of(f, args, context)
    (pattern,) = find_chains(graph, context).patterns
    given = dict(zip(graph.inputs, args, strict=True))
    if not given.keys() >= {*pattern.inputs} or [*pattern.outputs] != [*graph.outputs]:
        pytest.skip("a part of it is outside of the chain")
    templates = templates_of(pattern, context)
    assert templates is not None
    timed = [tile for tile, _ in timed_tilings(pattern, context)]
    for tile in Random(seed).sample(timed, min(3, len(timed))):
        try:
            kernel = lowered(pattern, profile, template=templates.template(tile))
        except TemplateError:
            assert tile.block  # columns that cannot go in blocks
            continue
        assert lane_of(kernel).step == tile.rows
        assert blocks_of(kernel) == ({args[2].shape[-2] // tile.block} if tile.block else set())
        check_kernel(kernel)
        close(interpret_kernel(kernel, [given[v].copy() for v in pattern.inputs]), f, args)


# -- asked for ----------------------------------------------------------------------------------------------


def attention(q: Array, k: Array, v: Array) -> Array:
    return jnp.einsum("bqk,bkd->bqd", jax.nn.softmax(jnp.einsum("bqd,bkd->bqk", q, k) * 0.125), v)


SHAPES = ((2, 96, 16), (2, 320, 16), (2, 320, 24))
NUMBERS = [np.random.default_rng(n).standard_normal(s).astype(np.float32) for n, s in enumerate(SHAPES)]
ASKED = "dot_general_0[GRID_4-THREAD_48, GRID, THREAD_{}-THREAD, THREAD]S;"


def test_a_template_of_a_chain_says_its_columns() -> None:
    graph = graph_of(attention, NUMBERS, CPU)
    for columns in (32, 40, 160):
        kernel = lowered(graph, CPU_PROFILE, template=parse_template(ASKED.format(columns)))
        assert lane_of(kernel).step == 48
        assert f"THREAD_{columns}-THREAD" in str(kernel.template)
        again = lowered(graph, CPU_PROFILE, template=kernel.template)
        assert again.template == kernel.template


@pytest.mark.parametrize("columns", [48, 100, 640])
def test_blocks_that_do_not_divide_a_row_are_refused(columns: int) -> None:
    graph = graph_of(attention, NUMBERS, CPU)
    with pytest.raises(TemplateError, match=f"{columns} columns"):
        lowered(graph, CPU_PROFILE, template=parse_template(ASKED.format(columns)))


def test_users_ask_for_tilings_of_chains() -> None:
    options = jstitch.CompileOptions(template=ASKED.format(64), tune="off", calibrated=False)
    f = jstitch.jit(attention, options=options)
    np.testing.assert_allclose(f(*NUMBERS), jax.jit(attention)(*NUMBERS), rtol=1e-5, atol=1e-5)
    story = str(jstitch.explain(attention, options=options)(*NUMBERS))
    assert "48 at a step" in story
    assert "quickest by MCFuser's model" in story


# -- chosen -------------------------------------------------------------------------------------------------


def causal(q: Array, k: Array, v: Array) -> Array:
    s = jnp.einsum("bqd,bkd->bqk", q, k, preferred_element_type=jnp.float32) * 0.125
    seen = jnp.arange(q.shape[1])[:, None] >= jnp.arange(k.shape[1])
    p = jax.nn.softmax(jnp.where(seen, s, -1e9)).astype(v.dtype)
    return jnp.einsum("bqk,bkd->bqd", p, v)


def frame_of(batch: int, rows: int, columns: int, width: int) -> Graph:
    shapes = (batch, rows, width), (batch, columns, width), (batch, columns, width)
    return graph_of(causal, [jax.ShapeDtypeStruct(s, jnp.bfloat16) for s in shapes], H200)


def test_the_search_decides_what_runs() -> None:
    """Without it, other rows go together."""
    frame = frame_of(96, 2048, 512, 64)
    (chosen,) = plan_frame(frame, H200).patterns
    off = replace(H200, options=replace(H200.options, without=("tile_chains",)))
    (known,) = plan_frame(frame, off).patterns
    assert known.template is None
    assert chosen.template is not None
    first, best = (lowered(frame, H200_PROFILE, template=p.template) for p in (known, chosen))
    assert lane_of(first).step != lane_of(best).step


@pytest.mark.parametrize("seed", range(6))
def test_what_is_chosen_is_no_slower_by_the_evaluator(seed: int) -> None:
    random = Random(seed)
    rows, columns = random.choice((128, 480, 2048)), random.choice((128, 768, 1000, 4096))
    frame = frame_of(random.choice((1, 8, 96)), rows, columns, random.choice((32, 64, 128)))
    found = search_chain(pattern_of(frame), Context(H200.options, H200_PROFILE))
    assert found.template is not None
    assert found.seconds <= found.first_seconds
    assert found.lowered <= found.tilings


def test_tilings_do_not_depend_on_the_order_of_products() -> None:
    for profile in (CPU_PROFILE, H200_PROFILE):
        found = {
            step_tiles(Products(tuple(sorted(shapes)), 4096, 512, DType.BF16), profile)
            for shapes in (((512, 64), (32, 512)), ((32, 512), (512, 64)))
        }
        assert len(found) == 1


def test_rows_that_no_tile_divides() -> None:
    """A prime number of rows goes at once, its columns in blocks, or not by tiles at all."""
    assert step_tiles(Products(((64, 512), (512, 64)), 1021, 1021, DType.F32), CPU_PROFILE)[0].rows == 1021
    assert step_tiles(Products(((64, 521), (521, 64)), 100_003, 100_003, DType.F32), CPU_PROFILE)[
        -1
    ] == StepTile(1)
    huge = Products(((64, 512), (512, 64)), 50_000_000_021, 50_000_000_021, DType.F32)
    assert StepTile(1) in step_tiles(huge, CPU_PROFILE)


def test_tilings_are_measured_where_that_is_asked_for(tmp_path: Path) -> None:
    """On this CPU, once: the library has the times afterwards."""
    shapes = (2, 24, 8), (2, 64, 8), (2, 64, 8)
    args = [np.random.default_rng(0).standard_normal(s).astype(np.float32) for s in shapes]
    options = jstitch.CompileOptions(tune="measure", cache_dir=str(tmp_path), calibrated=False)
    story = str(jstitch.explain(attention, options=options)(*args))
    assert "quickest as measured" in story
    with sqlite3.connect(tmp_path / FILE) as db:
        rows = db.execute("SELECT key, measured FROM times").fetchall()
    assert len(rows) > 1
    assert all(measured and json.loads(key)[0] == "kernel" for key, measured in rows)
    measured = [line for line in story.splitlines() if "as measured" in line]
    again = str(jstitch.explain(attention, options=options)(*args))
    assert [line for line in again.splitlines() if "as measured" in line] == measured
    f = jstitch.jit(attention, options=options)
    np.testing.assert_allclose(f(*args), jax.jit(attention)(*args), rtol=1e-5, atol=1e-5)


def test_without_seconds_nothing_is_measured(tmp_path: Path) -> None:
    library = PerformanceLibrary(tmp_path / FILE, "here", "now")
    context = on(CPU_PROFILE, tune="measure")
    graph = graph_of(attention, NUMBERS, CPU)
    kernel = lowered(graph, CPU_PROFILE)
    assert KernelClock(library, context, 0.0)(kernel) == math.inf
    seconds = KernelClock(library, context, 5.0)(kernel)
    assert 0 < seconds < 1
    assert KernelClock(library, context, 0.0)(kernel) == seconds
