"""Few rows on a GPU: more threads each, as the latency-evaluator says, and the same results."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jstitch.codegen.interpret_kernel import interpret_kernel
from jstitch.codegen.kernel_ir import Kernel
from jstitch.frontend.importer import import_module
from jstitch.ir.interpret import interpret
from jstitch.passes.lower.check_kernel import check_kernel
from jstitch.passes.lower.choose_template import best_kernel
from jstitch.passes.pipeline import run
from jstitch.passes.schedule.kernel_passes import schedule_kernel
from jstitch.passes.schedule.latency import kernel_latency
from jstitch.passes.schedule.widen_teams import widen_teams
from tests.codegen.cuda import stitched
from tests.codegen.cuda.stitched import PROFILES, stitch
from tests.contexts import CPU, H200_PROFILE, on

Array = jax.Array
H200 = on(H200_PROFILE)


def gates(x: Array, c: Array) -> tuple[Array, Array]:
    """A cell of a recurrence."""
    i, f, g, o = jnp.split(x, 4, axis=-1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    return jax.nn.sigmoid(o) * jnp.tanh(c), c


def look(x: Array, c: Array) -> tuple[Array, Array]:
    """Attention of one query for each row."""
    n = c.shape[-1]
    keys = x.reshape(x.shape[0], 4, n)
    weights = jax.nn.softmax(jnp.sum(jnp.tanh(keys + c[:, None]), -1))
    return jnp.sum(weights[..., None] * keys, 1), weights


def norm(x: Array, c: Array) -> Array:
    return (x - c.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


FUNCTIONS = (gates, look, norm)


def args(rows: int, width: int, seed: int = 0) -> list[np.ndarray]:
    numbers = np.random.default_rng(seed)
    return [numbers.standard_normal(s, np.float32) for s in ((rows, 4 * width), (rows, width))]


def graph_of(f: Any, given: list[np.ndarray]) -> Any:
    return run(import_module(jax.jit(f).lower(*given).compiler_ir("stablehlo")), H200)


def kernel_of(f: Any, given: list[np.ndarray]) -> Kernel:
    graph = graph_of(f, given)
    return best_kernel("k", graph.ops, graph.inputs, graph.outputs, H200)


def teams(kernel: Kernel) -> set[int]:
    return {lane.threads for phase in kernel.phases for lane in phase.lanes}


@pytest.mark.parametrize("f", FUNCTIONS)
def test_few_rows_get_more_threads_and_take_less_time(f: Any) -> None:
    kernel = kernel_of(f, args(8, 512))
    widened = widen_teams(kernel, H200)
    assert teams(kernel) == {0}
    assert max(teams(widened)) >= 128
    narrow = replace(H200, options=H200.options.replace(without=("widen_teams",)))
    before, after = kernel_latency(kernel, narrow).seconds, kernel_latency(kernel, H200).seconds
    assert after < 0.7 * before


@pytest.mark.parametrize("seed", range(12))
def test_never_slower_by_the_evaluator_and_the_same_results(seed: int) -> None:
    drawn = Random(seed)
    f, rows = drawn.choice(FUNCTIONS), drawn.choice([2, 3, 8, 31, 64, 500])
    given = args(rows, drawn.choice([7, 32, 96, 300]), seed)
    graph = graph_of(f, given)
    kernel = best_kernel("k", graph.ops, graph.inputs, graph.outputs, H200)
    widened = schedule_kernel(kernel, H200)
    assert check_kernel(widened) == ()
    narrow = replace(H200, options=H200.options.replace(without=("widen_teams",)))
    assert kernel_latency(kernel, H200).seconds <= kernel_latency(kernel, narrow).seconds
    for a, b in zip(interpret_kernel(widened, given), interpret(graph, given), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("f", FUNCTIONS)
@pytest.mark.parametrize(("rows", "width"), [(5, 300), (8, 64)])
def test_launches_of_few_rows(f: Any, rows: int, width: int) -> None:
    """In the simulator, and as PTX where there is a compiler."""
    given = args(rows, width)
    graph = graph_of(f, given)
    made = stitch(graph, PROFILES["h200"], options=H200.options.replace(tune="off", strict=True))
    machines = [stitched.simulated, *[stitched.interpreted] * (stitched.WHY_NO_PTX is None)]
    for machine in machines:
        for a, b in zip(made.run(given, machine), interpret(graph, given), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_what_fills_the_gpu_or_was_asked_for_is_left_alone() -> None:
    many = kernel_of(norm, args(20_000, 64))
    assert widen_teams(many, H200) is many
    few = kernel_of(norm, args(8, 512))
    assert widen_teams(few, CPU) is few
    asked = tuple(
        replace(phase, lanes=tuple(replace(lane, threads=32, exact=True) for lane in phase.lanes))
        for phase in few.phases
    )
    given = replace(few, phases=asked)
    assert widen_teams(given, H200) is given


def rolled_norm(x: Array, gamma: Array) -> Array:
    """The place in a row is a number of one stage, whose threads share it out, and a loop of another."""
    x = x - jnp.roll(x, -1, 1)
    return jax.nn.log_softmax(x / (jnp.sqrt((x * x).sum(-1, keepdims=True)) + 1e-3) * gamma[:, None], 1)


def test_a_loop_of_one_stage_is_a_dealt_number_of_another() -> None:
    numbers = np.random.default_rng(0)
    given = [numbers.standard_normal(s, np.float32) for s in ((144, 8, 15), (8,))]
    graph = graph_of(rolled_norm, given)
    made = stitch(graph, PROFILES["h200"], options=H200.options.replace(tune="off", strict=True))
    machines = [stitched.simulated, *[stitched.interpreted] * (stitched.WHY_NO_PTX is None)]
    for machine in machines:
        for a, b in zip(made.run(given, machine), interpret(graph, given), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def moments(x: Array, c: Array) -> tuple[Array, Array]:
    """Of columns: the last launch combines what many programs have summed, by one row's elements."""
    return x.mean(0), x.var(0) + (x[:, : c.shape[1]] * c).sum()


@pytest.mark.parametrize("width", [8, 50])
def test_the_partial_sums_of_columns_are_shared_by_more_threads(width: int) -> None:
    """1,024 threads are 32 slices, which are combined in two steps."""
    given = args(3000, width)
    graph = graph_of(moments, given)
    context = replace(H200, options=H200.options.replace(tune="off", strict=True))
    made = stitch(graph, PROFILES["h200"], options=context.options)
    (kernel,) = made.kernels
    last = kernel.phases[-1]
    assert max(lane.threads for lane in last.lanes if lane.rows == 1) >= 512
    machines = [stitched.simulated, *[stitched.interpreted] * (stitched.WHY_NO_PTX is None)]
    for machine in machines:
        for a, b in zip(made.run(given, machine), interpret(graph, given), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
