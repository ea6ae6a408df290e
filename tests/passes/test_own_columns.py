"""Programs that own columns: chosen where they are better, right on all machines, asked for by templates."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jstitch
from jstitch.codegen.cuda.emit import emit
from jstitch.codegen.interpret_kernel import interpret_kernel
from jstitch.codegen.kernel_ir import Kernel, Store
from jstitch.frontend.importer import import_module
from jstitch.ir.graph import Graph
from jstitch.ir.interpret import interpret
from jstitch.passes.base.context import Context
from jstitch.passes.base.profile import Profile
from jstitch.passes.lower.build_nest import CannotLowerError
from jstitch.passes.lower.check_kernel import check_kernel
from jstitch.passes.lower.choose_template import best_kernel
from jstitch.passes.lower.lower_kernel import lower_kernel
from jstitch.passes.pipeline import run
from jstitch.passes.schedule.kernel_passes import schedule_kernel
from jstitch.passes.schedule.latency import kernel_latency
from tests.codegen.cuda import stitched
from tests.codegen.cuda.machines import run_kernel
from tests.codegen.cuda.stitched import SPEC, stitch
from tests.contexts import CPU_PROFILE, H200_PROFILE, on
from tests.shares import one_tuple_in

Array = Any
SMALL = replace(SPEC, sms=4)  # so few multiprocessors that tests need few columns
TARGETS: dict[str, Profile] = {
    "cpu": CPU_PROFILE,
    "h200": replace(H200_PROFILE, machine=replace(H200_PROFILE.machine, device=SMALL)),
}
REDUCTIONS = (jnp.max, jnp.sum, jnp.mean, jnp.min, jnp.var)


SHORT = (5,), (9,), (12,), (4, 3), (1, 8), (3, 1, 2)
LONG = (64,), (200,), (13, 8), (333,)


def program(
    seed: int, target: str, middles: Sequence[tuple[int, ...]] = SHORT
) -> tuple[Callable[..., Any], list[np.ndarray]]:
    """Sums over all but the last dimension, or but the first, too, what is made of them; and arguments."""
    random, numbers = Random(seed), np.random.default_rng(seed)
    lead = random.choice(((), (), (), (2,), (3,)))
    middle = random.choice(middles)
    dtype = random.choice((np.float32, np.float32, np.float16))
    columns = random.choice((1024, 1280, 1291) if target == "cpu" else (256, 320, 517))
    columns = columns * 4 // dtype().itemsize
    shape = (*lead, *middle, columns)
    axes = tuple(range(len(lead), len(shape) - 1))
    turns = [
        (random.choice(REDUCTIONS), random.random() < 0.5, random.randrange(4 if dtype is np.float32 else 3))
        for _ in range(random.randint(1, 3))
    ]
    returned = random.randrange(3)

    def f(x: Array, scale: Array, weights: Array) -> tuple[Array, ...]:
        y = x * scale + weights.reshape(*middle, 1)
        made: list[Array] = []
        for reduce, keeps, then in turns:
            found = reduce(y, axis=axes, keepdims=keeps)
            s = found if keeps else jnp.expand_dims(found, axes)
            y = (y - s, jnp.exp(-jnp.abs(y - s)), y * jnp.tanh(s), jnp.where(y > s, y, s * 0.5))[then]
            made.append(found)
        return ((y,), (y, *made), (*made, (y * y).sum(axes)))[returned]

    sizes = shape, (columns,), middle
    return f, [numbers.normal(size=size).astype(dtype) for size in sizes]


def graph_of(f: Callable[..., Any], args: Sequence[Any], context: Context) -> Graph:
    return run(import_module(jax.jit(f, keep_unused=True).lower(*args).compiler_ir("stablehlo")), context)


def lower(graph: Graph, context: Context) -> Kernel:
    return best_kernel("k", graph.ops, graph.inputs, graph.outputs, context)


def widths(kernel: Kernel) -> set[int]:
    return {lane.owns for phase in kernel.phases for lane in phase.lanes}


def close(found: Sequence[Any], graph: Graph, args: Sequence[np.ndarray]) -> None:
    for a, b in zip(found, interpret(graph, args), strict=True):
        error = 2e-2 if a.dtype == np.float16 else 1e-4
        size = float(np.abs(b).max())
        np.testing.assert_allclose(np.float64(a), np.float64(b), rtol=error, atol=error * max(1.0, size))


def softmax(x: Array) -> Array:
    return jax.nn.softmax(x, 0)


def batch_norm(x: Array, gamma: Array, beta: Array) -> Array:
    return (x - x.mean(0)) * jax.lax.rsqrt(x.var(0) + 1e-5) * gamma + beta


SLOW = (0, 5, 12, 3, 10, 11, 13, 14)  # many rows, which are interpreted one by one


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "seed", [pytest.param(n, marks=pytest.mark.slow if n in SLOW else ()) for n in range(16)]
)
def test_kernels_in_strips_compute_the_same(seed: int, target: str) -> None:
    f, args = program(seed, target)
    context = on(TARGETS[target], verify=True)
    graph = graph_of(f, args, context)
    kernel = lower(graph, context)
    check_kernel(kernel)
    close(interpret_kernel(kernel, args), graph, args)


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_in_no_strip_is_made_once(target: str) -> None:
    """Also of ops that have no place in the user's code until they are lowered."""

    def f(x: Array, n: Array) -> tuple[Array, Array]:
        return jax.nn.softmax(x, 0), (n * n).min()

    args = [np.ones((6, 1291), np.float32), np.arange(8, dtype=np.int32)]
    context = on(TARGETS[target], verify=True)
    found = graph_of(f, args, context)
    graph = Graph(found.inputs, tuple(replace(op, loc="", scope="") for op in found.ops), found.outputs)
    kernel = lower(graph, context)
    assert len(widths(kernel)) > 2  # strips, columns behind them, and what is in none
    (result,) = (b for b in kernel.results if b.type.shape == ())
    assert sum(isinstance(i, Store) and i.buffer is result for *_, i in kernel.instructions()) == 1
    close(interpret_kernel(kernel, args), graph, args)


@pytest.mark.parametrize("target", TARGETS)
def test_most_such_programs_own_columns_in_one_phase(target: str) -> None:
    owned = 0
    for seed in range(16):
        f, args = program(seed, target)
        context = on(TARGETS[target])
        kernel = lower(graph_of(f, args, context), context)
        if widths(kernel) != {0}:
            owned += 1
            assert len(kernel.phases) == 1, seed
    assert owned > 8


@pytest.mark.parametrize("seed", range(12))
def test_launches_in_strips(seed: int) -> None:
    """In the simulator, with races and bounds."""
    f, args = program(seed, "h200")
    context = on(TARGETS["h200"])
    graph = graph_of(f, args, context)
    made = stitch(graph, TARGETS["h200"], donate=seed % 2 == 0)
    close(made.run([a.copy() for a in args], stitched.simulated), graph, args)


@pytest.mark.parametrize("seed", range(10))
def test_threads_that_share_sums_know_what_these_are_about(seed: int) -> None:
    """Sums so long that several threads of a team share each: all of them read what was made of the last."""
    f, given = program(seed, "h200", LONG)
    args, context = [a.astype(np.float32) for a in given], on(TARGETS["h200"])
    graph = graph_of(f, args, context)
    kernel = schedule_kernel(lower(graph, context), context)
    for threads in (0, 256, 1024):
        phases = (
            replace(phase, lanes=tuple(replace(lane, threads=threads) for lane in phase.lanes))
            for phase in kernel.phases
        )
        asked = replace(kernel, phases=tuple(phases))
        emitted = emit(asked, SPEC.shared_optin)
        found = run_kernel(asked, emitted, [a.copy() for a in args], stitched.simulated(emitted))
        close(found, graph, args)


def masked_sum(x: Array) -> Array:
    return jnp.where(x > x.mean(0), x, 0.0).sum(0)


@pytest.mark.parametrize("rows", [64, 333])
def test_sums_of_what_is_above_the_mean(rows: int) -> None:
    """Of 1,024 threads 128 knew the mean; the others summed by what was in their registers."""
    context = on(TARGETS["h200"])
    x = np.random.default_rng(0).standard_normal((rows, 260), np.float32)
    graph = graph_of(masked_sum, [x], context)
    made = stitch(graph, TARGETS["h200"])
    assert any("every part" in e.source.text for e in made.kernels.values())
    machines = [stitched.simulated, *[stitched.interpreted] * (stitched.WHY_NO_PTX is None)]
    for machine in machines:
        close(made.run([x.copy()], machine), graph, [x])


@pytest.mark.skipif(stitched.WHY_NO_PTX is not None, reason=str(stitched.WHY_NO_PTX))
@pytest.mark.parametrize("rows", [24, 130])
def test_strips_as_ptx(rows: int) -> None:
    """Threads of a team share the sum of a column."""
    args = [np.random.default_rng(0).normal(size=(rows, 256)).astype(np.float32)]
    graph = graph_of(softmax, args, on(TARGETS["h200"]))
    made = stitch(graph, TARGETS["h200"])
    assert any("every part of the sums" in source.text for source in made.sources)
    close(made.run(args, stitched.interpreted), graph, args)


@pytest.mark.parametrize("seed", range(6))
def test_on_this_machine(seed: int) -> None:
    f, args = program(seed, "cpu")
    found = jstitch.jit(f, options=jstitch.CompileOptions(tune="off", strict=True))(*args)
    context = on(CPU_PROFILE)
    close([np.asarray(v) for v in found], graph_of(f, args, context), args)


@pytest.mark.parametrize("target", TARGETS)
def test_columns_switched_off(target: str) -> None:
    """Sums over rows then take phases for partial results."""
    profile = TARGETS[target]
    graph = graph_of(softmax, [jnp.zeros((64, 4096))], on(profile))
    owned, rows = (lower(graph, on(p)) for p in (profile, replace(profile, columns=False)))
    assert (len(owned.phases), widths(rows)) == (1, {0})
    assert len(rows.phases) > 1
    assert owned.scratch_bytes == 0 < rows.scratch_bytes


def test_rows_where_strips_find_no_room() -> None:
    """Also where the user gives an arena in which sums of a strip's columns do not fit."""
    context = on(CPU_PROFILE, arena_bytes=256, verify=True)
    graph = graph_of(softmax, [jnp.zeros((64, 4096))], context)
    assert widths(lower(graph, context)) == {0}


def gelu_of_a_sum(x: Array, b: Array, g: Array) -> Any:
    """The gradients of a bias and of what it is added to: many ops, and few columns to share them."""
    return jax.vjp(lambda x, b: jax.nn.gelu(x + b), x, b)[1](g)


def test_rows_where_strips_would_take_longer_on_a_gpu() -> None:
    """By the latency-evaluator: 48 strips leave most of an H200 idle for long, two launches more do not."""
    context = on(H200_PROFILE, verify=True)
    args = [jnp.zeros((4, 128, 768)), jnp.zeros(768), jnp.zeros((4, 128, 768))]
    graph = graph_of(gelu_of_a_sum, args, context)
    strips = lower_kernel("k", graph.ops, graph.inputs, graph.outputs, H200_PROFILE)
    assert widths(strips) == {16}
    kernel = lower(graph, context)
    assert widths(kernel) == {0}
    assert kernel_latency(kernel, context).seconds < kernel_latency(strips, context).seconds
    several = on(H200_PROFILE, verify=True, templates=8)
    tried = lower(graph_of(gelu_of_a_sum, args, several), several)
    assert kernel_latency(tried, several).seconds <= kernel_latency(kernel, context).seconds


def test_the_option_switches_columns_off() -> None:
    x = jnp.zeros((64, 4096))
    for target in ("cpu", "h200"):
        texts = (
            str(jstitch.explain(softmax, jstitch.CompileOptions(target=target, tune="off", without=w))(x))
            for w in ((), ("columns",))
        )
        assert ["strips of" in text for text in texts] == [True, False]


@pytest.mark.parametrize(
    ("f", "shapes"),
    [
        (softmax, [(100_000, 512)]),  # a strip would not stay near its program
        (softmax, [(64, 100)]),  # too few columns
        (lambda x: jax.nn.softmax(x, -1), [(64, 4096)]),  # nothing crosses rows
        (lambda x: jax.nn.softmax(x, 0) + jax.nn.softmax(x, 1), [(64, 4096)]),  # rows are needed, too
        (lambda x: jax.nn.softmax(x, 1), [(512, 64, 256)]),  # rows are enough
    ],
)
def test_rows_where_these_are_better(f: Callable[..., Any], shapes: Sequence[tuple[int, ...]]) -> None:
    for profile in (CPU_PROFILE, H200_PROFILE):
        graph = graph_of(f, [jnp.zeros(s) for s in shapes], on(profile))
        assert widths(lower(graph, on(profile))) == {0}


# -- templates --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("f", [softmax, batch_norm])
def test_a_kernels_own_template_gives_it_again(f: Callable[..., Any], target: str) -> None:
    context = on(TARGETS[target])
    args = [jnp.zeros((64, 4096)), jnp.zeros(4096), jnp.zeros(4096)][: 1 if f is softmax else 3]
    graph = graph_of(f, args, context)
    kernel = lower(graph, context)
    again = lower(graph, on(TARGETS[target], template=str(kernel.template)))
    assert again.template == kernel.template
    assert widths(again) == widths(kernel) != {0}


STRIPS = itertools.product([2, 4], [32, 64, 256, 1024])


@pytest.mark.parametrize(("programs", "width"), one_tuple_in(3, STRIPS))
def test_strips_that_are_asked_for(width: int, programs: int) -> None:
    args = [np.random.default_rng(0).normal(size=(6, 2048)).astype(np.float32)]
    for profile, team in ((CPU_PROFILE, "THREAD"), (TARGETS["h200"], "CTA_128")):
        text = f"reduce_0[{team}, GRID_{programs}-THREAD_{width}-{team}]S;"
        if 2048 // width < programs:
            continue
        context = on(profile, template=text)
        graph = graph_of(softmax, args, context)
        kernel = lower(graph, context)
        lane, *_ = kernel.phases[0].lanes
        assert (lane.owns, lane.rows, lane.programs) == (width, 2048 // width, programs)
        assert lane.threads == (1 if profile.most_threads == 1 else 128) or lane.threads == 0
        close(interpret_kernel(kernel, args), graph, args)


def test_rows_that_are_asked_for() -> None:
    context = on(CPU_PROFILE, template="reduce_0.partial[GRID_8-THREAD_4, THREAD];")
    kernel = lower(graph_of(softmax, [jnp.zeros((64, 4096))], context), context)
    assert widths(kernel) == {0}
    assert kernel.phases[0].lanes[0].programs == 8


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("reduce_0[THREAD, GRID_8-THREAD_5000-THREAD]S;", "a part of 4096 columns"),
        ("reduce_0[THREAD, GRID_4-THREAD_4096-THREAD]S;", "a part of 4096 columns"),
        (
            "reduce_0[THREAD, GRID_8-THREAD_64-THREAD]S; divide_0[THREAD, GRID_8-THREAD_128-THREAD];",
            "one width",
        ),
    ],
)
def test_strips_that_cannot_be(text: str, why: str) -> None:
    context = on(CPU_PROFILE, template=text)
    graph = graph_of(softmax, [jnp.zeros((64, 4096))], context)
    with pytest.raises(CannotLowerError, match=why):
        lower(graph, context)


def test_columns_of_what_reduces_rows_are_refused() -> None:
    context = on(CPU_PROFILE, template="reduce_0[THREAD, GRID_8-THREAD_64-THREAD]S;")
    graph = graph_of(lambda x: jax.nn.softmax(x, 1), [jnp.zeros((64, 4096))], context)
    with pytest.raises(CannotLowerError, match="keeps the last"):
        lower(graph, context)


@pytest.mark.parametrize(("programs", "team"), [(2, 128), (3, 256), (5, 64), (2, 1024)])
def test_launches_whose_programs_take_strips_in_turn(programs: int, team: int) -> None:
    """Threads of a team share sums, and exchange them again for the next strip."""
    text = f"reduce_0[CTA_{team}, GRID_{programs}-THREAD_40-CTA_{team}]S;"
    args = [np.random.default_rng(1).normal(size=(70, 450)).astype(np.float32)]
    options = jstitch.CompileOptions(tune="off", strict=True, verify=True, template=text)
    graph = graph_of(softmax, args, on(TARGETS["h200"]))
    made = stitch(graph, TARGETS["h200"], options=options)
    (source,) = made.sources
    assert source.launches[0].block == max(team, 256)
    close(made.run(args, stitched.simulated), graph, args)
