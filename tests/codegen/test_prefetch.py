"""Prefetches: where a lane pauses between its rows they are there, and cover the next rows once."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jstitch
from jstitch.codegen.kernel_ir import Kernel
from jstitch.frontend.importer import import_module
from jstitch.frontend.mlir import parse_module
from jstitch.passes.lower.lower_kernel import lower_kernel
from jstitch.passes.pipeline import run
from jstitch.passes.plan_frame import plan_frame
from jstitch.passes.schedule import stream_results
from tests.codegen.cpu_source import source_of
from tests.contexts import CPU, CPU_PROFILE, on

Array = jax.Array


def softmax(x: Array) -> Array:
    return jax.nn.softmax(x, axis=-1)


def kernel_of(f: Callable[[Array], Array], *shape: int) -> Kernel:
    return kernel_from(f, jax.ShapeDtypeStruct(shape, jnp.float32))


def kernel_from(f: Callable[..., Array], *args: jax.ShapeDtypeStruct) -> Kernel:
    lowered = jax.jit(f).lower(*args)
    graph = run(import_module(parse_module(lowered.as_text())), CPU)
    (pattern,) = plan_frame(graph, on(CPU_PROFILE, tune="off")).patterns
    return lower_kernel("k", pattern.ops, pattern.inputs, pattern.outputs, CPU_PROFILE)


def test_the_next_row_is_asked_for_once_line_by_line() -> None:
    text = source_of(kernel_of(softmax, 1024, 1536))
    ranges = re.findall(
        r"for k in range\((\d+), (\d+)\):\n +prefetch\(b0, r \* 6144 \+ k \* 64 \+ 6144\)", text
    )
    assert [k for lo, hi in ranges for k in range(int(lo), int(hi))] == list(range(6144 // 64))
    assert len(ranges) == 3


@pytest.mark.parametrize("shape", [(128, 1536), (65536, 8), (64, 50000)], ids=["cached", "short", "long"])
def test_rows_that_need_no_prefetch_have_none(shape: tuple[int, int]) -> None:
    assert "prefetch" not in source_of(kernel_of(softmax, *shape))


def gelu_residual_norm(x: Array, residual: Array) -> Array:
    y = jax.nn.gelu(x) + residual
    return y - y.mean(-1, keepdims=True)


def test_results_are_asked_for_before_a_heavy_first_stage() -> None:
    x = jax.ShapeDtypeStruct((1024, 1536), jnp.float32)
    text = source_of(kernel_from(gelu_residual_norm, x, x))
    (asked,) = re.finditer(r"for k in range\(0, 96\):\n +prefetch\((b\d), r \* 6144 \+ k \* 64\)", text)
    assert asked.end() < text.index("tanh(", text.index("def phase0"))
    assert f"store_f32({asked[1]}, r * 1536" in text
    assert text.count("prefetch(") == 1 + 2 * 2  # two arguments in two stages


def test_results_in_the_place_of_an_argument_are_not_asked_for() -> None:
    x = jax.ShapeDtypeStruct((1024, 1536), jnp.float32)
    kernel = kernel_from(gelu_residual_norm, x, x)
    assert "r * 6144 + k * 64)" in source_of(kernel)
    assert "r * 6144 + k * 64)" not in source_of(replace(kernel, aliases={0: 0}))


@pytest.mark.parametrize("cache", [0, 1 << 40], ids=["streamed", "kept"])
def test_single_rows_are_asked_for_however_short_the_pauses(
    monkeypatch: pytest.MonkeyPatch, cache: int
) -> None:
    monkeypatch.setattr(stream_results, "last_level_cache", lambda: cache)
    text = source_of(kernel_of(lambda x: x - x.max(-1, keepdims=True), 1024, 1536))
    assert "r * 6144 + k * 64 + 6144" in text
    assert ("stream(" in text) == (cache == 0)


def test_rows_without_a_pause_are_not_asked_for() -> None:
    assert "prefetch" not in source_of(kernel_of(lambda x: x.max(-1), 1024, 1536))


def test_the_last_row_asks_for_memory_past_the_end_and_nothing_happens() -> None:
    x = np.random.default_rng(0).standard_normal((1024, 1536), np.float32)
    np.testing.assert_allclose(jstitch.jit(softmax)(x), jax.jit(softmax)(x), rtol=1e-5, atol=1e-9)


def test_several_rows_at_a_time_have_none_where_results_are_streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    x = jax.ShapeDtypeStruct((1024, 768), jnp.float32)

    def f(x: Array) -> tuple[Array, Array]:
        y = jax.nn.softmax(x, axis=-1)
        return y, y.sum(0)

    assert "prefetch(" in source_of(kernel_from(f, x))
    monkeypatch.setattr(stream_results, "last_level_cache", lambda: 0)
    assert "prefetch(" not in source_of(kernel_from(f, x))
