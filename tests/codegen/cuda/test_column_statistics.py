"""Means, variances and soft maxima of columns in one pass, in the simulator, against float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jstitch.codegen.cuda.emit import emit
from jstitch.codegen.cuda.simulate import simulate_launch
from jstitch.codegen.kernel_ir import Kernel
from jstitch.device_spec import find_spec
from jstitch.frontend.importer import import_module
from jstitch.frontend.target import cuda_profile
from jstitch.passes.base import profile
from jstitch.passes.lower.lower_kernel import lower_kernel
from jstitch.passes.pipeline import run
from jstitch.passes.schedule.kernel_passes import schedule_kernel
from tests.codegen.cuda.machines import run_kernel
from tests.contexts import on

Array = np.ndarray[Any, np.dtype[Any]]
ARENA = 232448
H200 = replace(cuda_profile(find_spec("h200")), columns=False)  # rows: partial results, then strips
MANY = replace(H200, program_work=16, partial_rows=2, max_programs=6)
LONG = replace(H200, program_work=16, partial_rows=2, max_programs=150)
PROFILES = {"h200": H200, "many programs": MANY}


def lowered(f: Callable[..., Any], args: Sequence[Array], chosen: profile.Profile = H200) -> Kernel:
    module = jax.jit(f, keep_unused=True).lower(*args).compiler_ir("stablehlo")
    graph = run(import_module(module), on(chosen))
    return lower_kernel("k", graph.ops, graph.inputs, graph.outputs, chosen)


def simulated(f: Callable[..., Any], args: Sequence[Array], chosen: profile.Profile = H200) -> list[Array]:
    kernel = schedule_kernel(lowered(f, args, chosen), on(chosen))
    emitted = emit(kernel, ARENA)

    def launch(n: int, arrays: list[Array]) -> None:
        simulate_launch(emitted.source, emitted.source.launches[n], arrays)

    return list(run_kernel(kernel, emitted, args, launch))


def normal(*shape: int, mean: float = 0.0, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(mean, 1.0, shape).astype(np.float32)


def batch_norm(x: Any, gamma: Any, beta: Any) -> Any:
    return (x - x.mean(0)) * jax.lax.rsqrt(x.var(0) + 1e-5) * gamma + beta


def batch_norm_gradient(x: Any, gamma: Any, beta: Any, dy: Any) -> Any:
    return jax.vjp(batch_norm, x, gamma, beta)[1](dy)


def softmax(x: Any) -> Any:
    return jax.nn.softmax(x, 0)


def normalised(x: Array) -> tuple[Array, Array]:
    """(x - mean) / deviation and 1 / deviation of columns, in float64."""
    x = x.astype(np.float64)
    scale = 1 / np.sqrt(x.var(0) + 1e-5)
    return (x - x.mean(0)) * scale, scale


def expected_gradient(x: Array, gamma: Array, dy: Array) -> list[Array]:
    (z, scale), dy = normalised(x), dy.astype(np.float64)
    dz = dy * gamma
    return [scale * (dz - dz.mean(0) - z * (dz * z).mean(0)), (dy * z).sum(0), dy.sum(0)]


@pytest.mark.parametrize("which", PROFILES)
@pytest.mark.parametrize(("rows", "columns"), [(512, 64), (301, 40), (24, 4100), (300, 1)])
def test_batch_norm(rows: int, columns: int, which: str) -> None:
    x, gamma, beta = normal(rows, columns, mean=30.0), normal(columns, seed=1), normal(columns, seed=2)
    (found,) = simulated(batch_norm, [x, gamma, beta], PROFILES[which])
    np.testing.assert_allclose(found, normalised(x)[0] * gamma + beta, rtol=0, atol=5e-5)


@pytest.mark.parametrize("which", PROFILES)
@pytest.mark.parametrize(("rows", "columns"), [(512, 64), (301, 40)])
def test_gradient_of_batch_norm(rows: int, columns: int, which: str) -> None:
    x, gamma, beta = normal(rows, columns, mean=3.0), normal(columns, seed=1), normal(columns, seed=2)
    dy = normal(rows, columns, mean=0.5, seed=3)
    found = simulated(batch_norm_gradient, [x, gamma, beta, dy], PROFILES[which])
    for a, b in zip(found, expected_gradient(x, gamma, dy), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-5 * np.abs(b).max())


@pytest.mark.parametrize("which", PROFILES)
@pytest.mark.parametrize(("rows", "columns"), [(512, 64), (301, 40), (24, 4100)])
def test_softmax_of_columns(rows: int, columns: int, which: str) -> None:
    x = normal(rows, columns) * 20
    (found,) = simulated(softmax, [x], PROFILES[which])
    e = np.exp(x.astype(np.float64) - x.max(0))
    np.testing.assert_allclose(found, e / e.sum(0), rtol=3e-5, atol=1e-30)


@pytest.mark.parametrize(
    ("f", "args", "phases"),
    [
        (batch_norm, [(512, 64), (64,), (64,)], 3),
        (batch_norm_gradient, [(512, 64), (64,), (64,), (512, 64)], 3),
        (softmax, [(512, 64)], 3),
        (lambda x: x.var(0), [(512, 64)], 2),
        (lambda x: x.var(), [(512, 64)], 2),
        (lambda x: x.var((0, 2)), [(16, 24, 40)], 2),
        (lambda x: jax.nn.logsumexp(x, 0), [(512, 64)], 2),
    ],
)
def test_columns_are_read_once_for_all_statistics(f: Callable[..., Any], args: Any, phases: int) -> None:
    arrays = [normal(*shape) for shape in args]
    kernel = lowered(f, arrays)
    assert len(kernel.phases) == phases


def column_sums(x: Any, y: Any) -> Any:
    return x.sum(0) * 2 + y.max(0), (x * y).sum(0), x.var(0)


@pytest.mark.parametrize("columns", [33, 64, 70])
def test_many_partial_results_are_combined_by_several_threads(columns: int) -> None:
    x, y = normal(310, columns, mean=2.0), normal(310, columns, seed=1)
    kernel = lowered(column_sums, [x, y], LONG)
    assert "ok = team == 0" in emit(kernel, ARENA).source.text
    a, b = x.astype(np.float64), y.astype(np.float64)
    expected = a.sum(0) * 2 + b.max(0), (a * b).sum(0), a.var(0)
    for found, want in zip(simulated(column_sums, [x, y], LONG), expected, strict=True):
        np.testing.assert_allclose(found, want, rtol=0, atol=1e-6 * np.abs(want).max())


def test_counts_do_not_make_a_team_sum_one_column_after_another() -> None:
    x = normal(310, 64)
    text = emit(lowered(lambda x: x.var(0), [x], LONG), ARENA).source.text
    assert "for i1 in range" not in text


def test_one_number_for_all_elements() -> None:
    x = normal(200, 30, mean=2.0)
    found = simulated(lambda x: (x.mean(), x.var(), jax.nn.logsumexp(x)), [x], MANY)
    y = x.astype(np.float64)
    np.testing.assert_allclose(found, [y.mean(), y.var(), np.log(np.exp(y).sum())], rtol=1e-6)


def test_channels_before_positions() -> None:
    x = normal(16, 24, 40, mean=2.0)
    (found,) = simulated(lambda x: x.var((0, 2)), [x])
    np.testing.assert_allclose(found, x.astype(np.float64).var((0, 2)), rtol=3e-6)


@pytest.mark.parametrize("which", PROFILES)
def test_a_large_mean_costs_no_digits(which: str) -> None:
    x = normal(300, 40, mean=1e4)
    x[:, 0] = 7.25
    (found,) = simulated(lambda x: x.var(0), [x], PROFILES[which])
    assert found[0] == 0
    np.testing.assert_allclose(found, x.astype(np.float64).var(0), rtol=2e-6)


def test_a_first_row_far_from_the_mean() -> None:
    x = normal(300, 40, mean=1e4)
    x[0] = 0
    (found,) = simulated(lambda x: x.var(0), [x])
    np.testing.assert_allclose(found, x.astype(np.float64).var(0), rtol=300 * 2**-22)


def special() -> Array:
    """Columns with infinities, NaN, huge and equal elements."""
    inf = np.inf
    x = normal(300, 16)
    x[5, 2], x[6, 3], x[7, 4], x[:, 5], x[:, 6] = inf, -inf, np.nan, -inf, inf
    x[3, 7], x[4, 7] = inf, -inf
    x[:, 8] *= 1e19
    x[:, 9], x[:, 10], x[0, 11], x[:-1, 12], x[0, 13] = 4, 0, inf, -inf, -inf
    return x


@pytest.mark.parametrize("which", PROFILES)
@pytest.mark.parametrize(
    "f",
    [
        lambda x: (x.mean(0), x.var(0)),
        lambda x: (x - x.mean(0)) * jax.lax.rsqrt(x.var(0) + 1e-5),
        softmax,
        lambda x: jax.nn.logsumexp(x, 0),
        lambda x: jnp.exp(x - x.max(0)).sum(0),
    ],
)
def test_infinities_and_nan_spread_as_in_xla(f: Callable[..., Any], which: str) -> None:
    x = special()
    for a, b in zip(simulated(f, [x], PROFILES[which]), jax.tree.leaves(jax.jit(f)(x)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
