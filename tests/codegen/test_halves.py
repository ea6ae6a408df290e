"""Pairs of bf16: which loops are over words, and that both halves hold what single elements would."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cpu_loop import compile_source, run

import jstitch
from jstitch.frontend.importer import import_module
from jstitch.frontend.mlir import parse_module
from jstitch.options import CompileOptions
from jstitch.passes.base.context import Context
from jstitch.passes.lower.lower_kernel import lower_kernel
from jstitch.passes.pipeline import run as run_passes
from jstitch.passes.plan_frame import plan_frame
from jstitch.passes.schedule import kernel_passes
from tests.codegen.cpu_source import source_of
from tests.contexts import CPU, CPU_PROFILE

Array = jax.Array
BF16 = jnp.bfloat16
OPTIONS = CompileOptions(tune="off", strict=True)

WORDS = """
def kernel(bufs, n):
    low, high, out = load_s64(bufs, 0, 63), load_s64(bufs, 1, 63), load_s64(bufs, 2, 63)
    for i in range(n):
        store_u32(out, i, pack_bf16(load_f32(low, i, 1), load_f32(high, i, 2)), 3)
"""
HALVES = """
def kernel(bufs, n):
    words, low, high = load_s64(bufs, 0, 63), load_s64(bufs, 1, 63), load_s64(bufs, 2, 63)
    for i in range(n):
        store_f32(low, i, low_bf16(load_u32(words, i, 1)), 2)
        store_f32(high, i, high_bf16(load_u32(words, i, 1)), 3)
"""


def text_of(f: Callable[..., Any], *args: Any) -> str:
    graph = run_passes(import_module(parse_module(jax.jit(f).lower(*args).as_text())), CPU)
    patterns = plan_frame(graph, Context(OPTIONS, CPU_PROFILE)).patterns
    return "\n".join(source_of(lower_kernel("k", p.ops, p.inputs, p.outputs, CPU_PROFILE)) for p in patterns)


def normal(*shape: int, seed: int = 0, dtype: Any = BF16) -> Array:
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape, np.float32), dtype)


def special(*shape: int) -> Array:
    """Every bf16 there is, as often as it fits."""
    codes = np.resize(np.arange(1 << 16, dtype=np.uint16), shape)
    return jnp.asarray(codes.view(BF16))


def same_values(got: np.ndarray, expected: np.ndarray) -> None:
    """Bit for bit, where every NaN is as good as another."""
    nan = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(got), nan)
    np.testing.assert_array_equal(got[~nan].view(np.uint32), expected[~nan].view(np.uint32))


def rms_norm(x: Array, g: Array) -> Array:
    return x * jax.lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + 1e-5) * g


def scale_and_shift(x: Array, g: Array, b: Array) -> Array:
    return jnp.tanh(x * g) + b


def test_words_hold_what_numpy_rounds_to() -> None:
    high = np.arange(0, 1 << 16, dtype=np.uint32)
    low = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    values = ((high[:, None] << 16) | low).reshape(-1).view(np.float32)
    others = values[::-1].copy()
    words = np.zeros(values.size, np.uint32)
    run(compile_source(WORDS), words.size, values, others, words)
    halves = words.view(BF16).reshape(-1, 2).astype(np.float32)
    with np.errstate(all="ignore"):
        same_values(halves[:, 0], values.astype(BF16).astype(np.float32))
        same_values(halves[:, 1], others.astype(BF16).astype(np.float32))


def test_halves_widen_every_code() -> None:
    codes = np.arange(1 << 16, dtype=np.uint32)
    words = codes | (codes[::-1] << 16)
    low, high = np.zeros(words.size, np.float32), np.zeros(words.size, np.float32)
    run(compile_source(HALVES), words.size, words, low, high)
    np.testing.assert_array_equal(low.view(np.uint32), codes << 16)
    np.testing.assert_array_equal(high.view(np.uint32), codes[::-1] << 16)


@pytest.mark.parametrize(("rows", "columns"), [(8, 64), (7, 96), (64, 1024)])
def test_rows_are_read_and_written_in_words(rows: int, columns: int) -> None:
    text = text_of(rms_norm, normal(rows, columns), normal(columns))
    assert "_bf16(b" not in text
    assert text.count("load_u32(") == 3
    assert text.count("store_u32(") == 1
    assert f"range(0, {columns // 2})" in text


@pytest.mark.parametrize(
    ("f", "args"),
    [
        (rms_norm, (normal(16, 65), normal(65))),  # a row's elements begin at an odd place
        (lambda x, g: rms_norm(x[:, 1:65], g), (normal(16, 65), normal(64))),
        (lambda x, g: x * g + x, (normal(16, 64), normal(64, dtype=jnp.float32))),  # half are wider
        (lambda x, g: x * g + x, (normal(16, 64, dtype=jnp.float16), normal(64, dtype=jnp.float16))),
    ],
)
def test_other_loops_stay(f: Callable[..., Array], args: tuple[Array, ...]) -> None:
    text = text_of(f, *args)
    assert "def phase0" in text
    assert "_u32(" not in text


@pytest.mark.parametrize("shape", [(16, 64), (33, 128), (64, 1024)])
def test_elements_are_those_of_single_loops(shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    args = special(*shape), normal(shape[1]), normal(shape[1], seed=1)
    assert "pack_bf16" in text_of(scale_and_shift, *args)
    paired = jstitch.jit(scale_and_shift, options=OPTIONS)(*args)
    others = tuple(p for p in kernel_passes.CPU_PASSES if p.name != "pair_halves")
    monkeypatch.setattr(kernel_passes, "CPU_PASSES", others)
    assert "pack_bf16" not in text_of(scale_and_shift, *args)
    single = jstitch.jit(lambda *a: scale_and_shift(*a), options=OPTIONS)(*args)
    same_values(np.asarray(paired, np.float32), np.asarray(single, np.float32))


def test_sums_take_both_halves() -> None:
    x, g = normal(40, 512), normal(512, seed=1)
    got = np.asarray(jstitch.jit(rms_norm, options=OPTIONS)(x, g), np.float32)
    wide = np.asarray(x, np.float64)
    exact = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-5) * np.asarray(g, np.float64)
    np.testing.assert_allclose(got, exact, rtol=2**-7, atol=1e-6)
