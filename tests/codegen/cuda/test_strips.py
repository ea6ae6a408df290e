"""Statistics of columns in two launches: each program combines the partial results of its own strip."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jstitch.codegen.cuda.emit import Emitted, emit
from jstitch.codegen.kernel_ir import Kernel, StripLane
from jstitch.frontend.importer import import_module
from jstitch.passes.base import profile
from jstitch.passes.base.context import Context
from jstitch.passes.schedule import in_strips as pass_
from jstitch.passes.schedule.in_strips import in_strips, two_phases
from jstitch.passes.schedule.kernel_passes import schedule_kernel
from jstitch.passes.schedule.latency_gpu import gpu_phases
from jstitch.passes.schedule.latency_value import Latency
from tests.codegen.cuda import stitched
from tests.codegen.cuda.machines import run_kernel
from tests.codegen.cuda.test_column_statistics import (
    ARENA,
    H200,
    MANY,
    batch_norm,
    batch_norm_gradient,
    expected_gradient,
    lowered,
    normal,
    normalised,
    softmax,
)
from tests.contexts import on

Array = np.ndarray[Any, np.dtype[Any]]


def in_strips_seconds(kernel: Kernel, context: Context) -> float:
    device = context.machine.device
    assert device is not None
    return sum(gpu_phases(kernel, context.machine, device), Latency()).seconds


def square_norm(x: Any) -> Any:
    return x * jax.lax.rsqrt((x * x).mean(0) + 1e-5)


def kernel_of(
    f: Callable[..., Any], args: Sequence[Array], chosen: profile.Profile = H200
) -> tuple[Kernel, Emitted]:
    kernel = schedule_kernel(lowered(f, args, chosen), on(chosen))
    return kernel, emit(kernel, ARENA)


def run(
    f: Callable[..., Any],
    args: Sequence[Array],
    machine: stitched.MakeMachine,
    chosen: profile.Profile = H200,
    launches: int = 2,
) -> list[Array]:
    kernel, emitted = kernel_of(f, args, chosen)
    assert len(emitted.made.buffers) == launches
    return list(run_kernel(kernel, emitted, args, machine(emitted)))


def wanted_softmax(x: Array) -> Array:
    e = np.exp(x.astype(np.float64) - x.max(0))
    found: Array = e / e.sum(0)
    return found


@pytest.mark.parametrize("chosen", [H200, MANY], ids=["h200", "many programs"])
@pytest.mark.parametrize(("rows", "columns"), [(512, 64), (301, 40), (200, 256), (77, 3000), (130, 96)])
def test_softmax_over_rows_is_two_launches(rows: int, columns: int, chosen: profile.Profile) -> None:
    x = normal(rows, columns) * 20
    (found,) = run(softmax, [x], stitched.simulated, chosen)
    np.testing.assert_allclose(found, wanted_softmax(x), rtol=3e-5, atol=1e-30)


@pytest.mark.skipif(stitched.WHY_NO_PTX is not None, reason=str(stitched.WHY_NO_PTX))
def test_softmax_over_rows_as_ptx() -> None:
    x = normal(150, 64) * 20
    (found,) = run(softmax, [x], stitched.interpreted, MANY)
    np.testing.assert_allclose(found, wanted_softmax(x), rtol=3e-5, atol=1e-30)


@pytest.mark.skipif(stitched.WHY_NO_PTX is not None, reason=str(stitched.WHY_NO_PTX))
def test_gradient_of_batch_norm_as_ptx() -> None:
    x, gamma, beta = normal(150, 64, mean=3.0), normal(64, seed=1), normal(64, seed=2)
    dy = normal(150, 64, mean=0.5, seed=3)
    found = run(batch_norm_gradient, [x, gamma, beta, dy], stitched.interpreted, MANY)
    for a, b in zip(found, expected_gradient(x, gamma, dy), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 * np.abs(b).max())


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16])
def test_statistics_that_are_results_and_read_by_the_rows(dtype: Any) -> None:
    """Batch norm that returns its statistics: one band stores them, every band has them in its tile."""

    def norm(x: Any, running: Any) -> Any:
        mean, variance = x.mean(0), x.var(0)
        y = (x - mean) * jax.lax.rsqrt(variance + 1e-5)
        return y, mean.astype(dtype), 0.9 * running + 0.1 * variance

    x, running = normal(300, 64, mean=2.0), normal(64, seed=1)
    y, mean, after = run(norm, [x, running], stitched.simulated, MANY)
    np.testing.assert_allclose(y, normalised(x)[0], rtol=0, atol=5e-5)
    np.testing.assert_allclose(mean.astype(np.float64), x.mean(0), rtol=1e-2)
    np.testing.assert_allclose(after, 0.9 * running + 0.1 * x.var(0), rtol=1e-5)


def test_bytes_are_those_of_the_rows_and_few_more() -> None:
    """The array is read twice and written once; partial results are few."""
    for rows, columns in ((16384, 256), (4096, 4096), (1024, 1024)):
        _, emitted = kernel_of(softmax, [np.zeros((rows, columns), np.float32)])
        moved = sum(x.bytes_read + x.bytes_written for x in emitted.source.launches)
        assert 3.0 <= moved / (rows * columns * 4) <= 3.15


def norm_of(rows: int, columns: int) -> Emitted:
    shapes = ((rows, columns), columns, columns)
    return kernel_of(batch_norm, [np.zeros(s, np.float32) for s in shapes])[1]


def test_a_device_stays_busy() -> None:
    """Few columns of many rows, too, are cut into bands enough for all multiprocessors."""
    for rows, columns in ((16384, 256), (1024, 16384), (65536, 64)):
        found = norm_of(rows, columns).source.launches
        assert len(found) == 2
        assert all(launch.grid >= stitched.SPEC.sms for launch in found)


@pytest.mark.parametrize("seed", range(12))
def test_strips_are_no_slower_than_three_launches(seed: int) -> None:
    """By the evaluator, on random members of the class."""
    drawn = Random(seed)
    rows = 49 * drawn.choice([1, 4, 16, 64, 512]) * drawn.choice([1, 8])
    x = np.zeros((rows, 16 * drawn.randrange(2, 100)), np.float32)
    kernel, context = lowered(drawn.choice([softmax, square_norm]), [x], H200), on(H200)
    made, least = in_strips(kernel, context), in_strips_seconds(kernel, context)
    assert in_strips_seconds(made, context) <= least
    forms = list(two_phases(kernel, 0, stitched.SPEC.sms))
    assert all(in_strips_seconds(made, context) <= 1.1 * in_strips_seconds(form, context) for form in forms)


def test_rows_overwritten_in_place_are_read_before() -> None:
    found = stitched.stitch(stitched_graph(softmax, (200, 64)), MANY, donate=True)
    x = normal(200, 64)
    (y,) = found.run([x], stitched.simulated)
    assert any(b.aliases for e in found.kernels.values() for b in e.made.buffers)
    np.testing.assert_allclose(y, wanted_softmax(x), rtol=3e-5)


@pytest.fixture
def wherever_possible(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strips, whatever they cost."""

    def latency(kernel: Kernel, machine: Any, device: Any) -> Latency:
        in_strips = any(isinstance(phase.lanes[0], StripLane) for phase in kernel.phases)
        return Latency(launches=1.0 if in_strips else 2.0)

    monkeypatch.setattr(pass_, "_latency", latency)


@pytest.mark.usefixtures("wherever_possible")
@pytest.mark.parametrize("columns", [33, 64])
def test_one_program_of_rows_has_nothing_to_combine(columns: int) -> None:
    x = np.arange(30 * columns, dtype=np.uint16).reshape(30, columns)
    (found,) = run(lambda x: x * x.sum(0, dtype=jnp.uint16), [x], stitched.simulated)
    np.testing.assert_array_equal(found, x * x.sum(0, dtype=np.uint16))


def stitched_graph(f: Callable[..., Any], *shapes: tuple[int, ...]) -> Any:
    args = [jnp.zeros(s) for s in shapes]
    return import_module(jax.jit(f).lower(*args).compiler_ir("stablehlo"))


def position(x: Any) -> Any:
    return (x - x.mean(0)) * jnp.arange(64, dtype=jnp.float32)


def shifted(x: Any) -> Any:
    return x - jnp.roll(x.mean(0), 1)


@pytest.mark.parametrize("f", [position, shifted])
def test_columns_that_know_their_number_or_their_neighbour_stay_three(f: Callable[..., Any]) -> None:
    x = normal(300, 64)
    (found,) = run(f, [x], stitched.simulated, MANY, launches=3)
    np.testing.assert_allclose(found, jax.jit(f)(x), rtol=0, atol=2e-5 * 64)


def test_what_another_launch_reads_stays_in_memory() -> None:
    """The phases are left alone when a fourth one looks at the columns' statistics."""
    kernel = lowered(softmax, [normal(300, 64)], MANY)
    forms = list(two_phases(kernel, 0, stitched.SPEC.sms))
    assert forms
    assert all(isinstance(phase.lanes[0], StripLane) for form in forms for phase in form.phases)
    longer = replace(kernel, phases=(*kernel.phases, kernel.phases[-1]))
    assert not any(list(two_phases(longer, n, stitched.SPEC.sms)) for n in (0, 1))


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1024, 16384])
@pytest.mark.parametrize("hidden", [256, 1000, 4096, 16384])
def test_every_size_of_softmax(rows: int, hidden: int) -> None:
    _, emitted = kernel_of(partial(jax.nn.softmax, axis=0), [np.zeros((rows, hidden), np.float32)])
    assert len(emitted.made.buffers) == 2
