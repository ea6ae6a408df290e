"""Streamed results: which are, what goes where, and that every byte arrives, whatever the shape and dtype.

The machine's cache is made tiny, so that small arrays are beyond it.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cpu_loop import assembly, compile_source

import jstitch
from jstitch.codegen.cpu.build import call
from jstitch.codegen.kernel_ir import (
    Buffer,
    Kernel,
    Lane,
    Load,
    Loop,
    Nest,
    Phase,
    Space,
    Stage,
    Store,
    Streamed,
)
from jstitch.frontend.importer import import_module
from jstitch.frontend.mlir import parse_module
from jstitch.ir.expr import Ref
from jstitch.ir.index import Var, add, mul, var
from jstitch.ir.types import DType, TensorType
from jstitch.options import CompileOptions
from jstitch.passes.base.context import Context
from jstitch.passes.lower.lower_kernel import lower_kernel
from jstitch.passes.pipeline import run
from jstitch.passes.plan_frame import plan_frame
from jstitch.passes.schedule import stream_results as stream
from tests.codegen.cpu_source import emitted, source_of
from tests.contexts import CPU, CPU_PROFILE

Array = jax.Array
OPTIONS = CompileOptions(tune="off", strict=True)
ON_X86 = platform.machine() in ("x86_64", "AMD64")
needs_x86 = pytest.mark.skipif(not ON_X86, reason="only x86 has these stores")

FLUSH = """
def kernel(bufs, n):
    p = load_s64(bufs, 0, 63)
    tile = load_s64(bufs, 1, 63)
    stream(p, load_s64(bufs, 2, 63), tile, n)
    end_streams()
"""


@pytest.fixture
def beyond(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every result is beyond the last-level cache, and none too small."""
    monkeypatch.setattr(stream, "last_level_cache", lambda: 0)
    monkeypatch.setattr(stream, "SMALL", 0)


def kernels(f: Callable[..., Any], *args: Any) -> list[Kernel]:
    graph = run(import_module(parse_module(jax.jit(f).lower(*args).as_text())), CPU)
    patterns = plan_frame(graph, Context(OPTIONS, CPU_PROFILE)).patterns
    return [lower_kernel("k", p.ops, p.inputs, p.outputs, CPU_PROFILE) for p in patterns]


def text_of(f: Callable[..., Any], *args: Any) -> str:
    return "\n".join(source_of(kernel) for kernel in kernels(f, *args))


def flushes(text: str) -> list[str]:
    return re.findall(r"^ +(stream\(.*)$", text, re.MULTILINE)


def both(f: Callable[..., Any], *args: Any) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Results of jstitch.jit and of jax.jit."""
    ours, theirs = jstitch.jit(f, options=OPTIONS), jax.jit(lambda *a: f(*a))
    return [np.asarray(x) for x in jax.tree.leaves(ours(*args))], [
        np.asarray(x) for x in jax.tree.leaves(theirs(*args))
    ]


def normal(*shape: int, seed: int = 0, dtype: Any = jnp.float32) -> Array:
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape, np.float32), dtype)


def layer_norm(x: Array) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + 1e-5)


# -- the flush --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def flush() -> Any:
    return compile_source(FLUSH)


@pytest.mark.parametrize("count", [0, 1, 2, 31, 63, 64, 65, 100, 127, 128, 129, 255, 1000, 4096])
def test_a_flush_writes_its_bytes_and_no_others(flush: Any, count: int) -> None:
    tile = np.random.default_rng(count).integers(0, 256, 4096 + 64, np.uint8)
    for offset in range(64):
        for shift in (0, 1, 4, 36):
            memory = np.full(count + 192, 7, np.uint8)
            table = np.array([memory.ctypes.data, tile.ctypes.data + shift, offset], np.int64)
            flush(table.ctypes.data, count)
            expected = np.full(count + 192, 7, np.uint8)
            expected[offset : offset + count] = tile[shift : shift + count]
            np.testing.assert_array_equal(memory, expected)


@needs_x86
def test_whole_lines_go_past_the_caches(flush: Any) -> None:
    text = assembly(flush)
    assert re.search(r"v?movnt(ps|dq|pd)", text)
    assert "sfence" in text


# -- what is streamed -------------------------------------------------------------------------------------


def cache_of(monkeypatch: pytest.MonkeyPatch, nbytes: int) -> None:
    monkeypatch.setattr(stream, "last_level_cache", lambda: nbytes)


def test_a_working_set_of_twice_the_last_cache_is_streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    x = jax.ShapeDtypeStruct((4096, 768), jnp.float32)
    cache_of(monkeypatch, 4096 * 768 * 4)  # x and the result: two of them
    assert len(flushes(text_of(layer_norm, x))) == 1
    cache_of(monkeypatch, 4096 * 768 * 4 + 1)
    assert flushes(text_of(layer_norm, x)) == []


def test_a_small_result_of_a_large_kernel_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    cache_of(monkeypatch, 1 << 20)
    assert flushes(text_of(lambda x: x.sum(0), normal(1 << 10, 1 << 10))) == []
    assert flushes(text_of(lambda x: x * 2.0 + 1.0, normal(1 << 10, 1 << 10))) != []


def test_only_what_is_read_of_an_argument_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    cache_of(monkeypatch, 1 << 22)
    table = jax.ShapeDtypeStruct((1 << 16, 256), jnp.float32)
    rows = jax.ShapeDtypeStruct((1 << 11,), jnp.int32)
    assert flushes(text_of(lambda t, i: jnp.tanh(t[i]) * 2.0, table, rows)) == []


def test_donated_arguments_are_overwritten_in_their_caches(beyond: None) -> None:
    kernel = kernels(lambda x: x * 2.0 + 1.0, normal(1 << 12))[0]
    streamed = stream.stream_results(kernel)
    in_place = stream.stream_results(Kernel(**{**vars(kernel), "aliases": {0: 0}}))
    assert any(isinstance(i, Streamed) for *_, i in streamed.instructions())
    assert not any(isinstance(i, Streamed) for *_, i in in_place.instructions())


def copy_kernel(read_again: bool) -> Kernel:
    """o0 = a0, row by row; read_again: and o1 = o0 in a second phase."""
    tensor, i, r = TensorType((64, 256), DType.F32), Var("i", 256), Var("r", 64)
    x, y, z = Buffer("a0", tensor, Space.ARG), *(Buffer(f"o{n}", tensor, Space.RESULT, n) for n in (0, 1))
    at = add(var(i), mul(var(r), 256))

    def phase(source: Buffer, target: Buffer) -> Phase:
        body = (Load("v0", source, at, 2), Store(target, at, Ref("v0"), 2))
        nest = Nest((Loop(r, 0, 1), Loop(i, 0, 256)), (), body, ())
        return Phase((Lane(64, 1, 1, (Stage((nest,), "copy"),), False, 1),))

    phases = (phase(x, y), phase(y, z)) if read_again else (phase(x, y),)
    return Kernel("copy", (x,), (y, z)[: len(phases)], (), (), phases, 0, 0)


def test_what_a_later_phase_reads_is_not(beyond: None) -> None:
    assert len(flushes(source_of(copy_kernel(False)))) == 1
    once = source_of(copy_kernel(True))
    assert [re.sub(r"b\d", "b", f) for f in flushes(once)] == ["stream(b, r * 1024, b, 1024)"]
    assert once.index("stream(") > once.index("def phase1")


def test_short_runs_are_not(beyond: None) -> None:
    """An odd one has parts of lines at its ends."""
    assert flushes(text_of(layer_norm, normal(64, stream.RUN // 4))) != []
    assert flushes(text_of(layer_norm, normal(64, stream.RUN // 4 - 16))) == []
    assert flushes(text_of(layer_norm, normal(64, stream.ODD_RUN // 4 + 1))) != []
    assert flushes(text_of(layer_norm, normal(64, stream.ODD_RUN // 4 - 1))) == []


def test_tiles_hold_whole_lines_of_a_row_in_equal_parts(beyond: None) -> None:
    assert flushes(text_of(layer_norm, normal(64, 768)))[0].endswith("* 4)")
    assert "tensor<384xf32>" in text_of(layer_norm, normal(64, 768))


def test_the_machine_says_how_large_its_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for n, size in enumerate(("32K", "1024K", "16384K")):
        (tmp_path / f"index{n}").mkdir()
        (tmp_path / f"index{n}" / "size").write_text(f"{size}\n")
    monkeypatch.setattr(stream, "CACHES", tmp_path)
    assert stream.last_level_cache.__wrapped__() == 16 << 20
    monkeypatch.setattr(stream, "CACHES", tmp_path / "nowhere")
    assert stream.last_level_cache.__wrapped__() == stream.USUAL_CACHE


def test_a_thread_ends_its_streams_before_its_program_ends(beyond: None) -> None:
    last = text_of(layer_norm, normal(64, 128)).rstrip().splitlines()[-1]
    assert last == "    end_streams()"


# -- every byte arrives -----------------------------------------------------------------------------------

ROWS = [(64, 96), (33, 767), (5, 1024), (3, 5000), (1, 70001), (300, 1025)]
DTYPES = [jnp.float32, jnp.float16, jnp.bfloat16, jnp.int8, jnp.uint16, jnp.int32, jnp.bool_]


@pytest.mark.parametrize("shape", ROWS, ids=str)
def test_rows_of_every_length(beyond: None, shape: tuple[int, int]) -> None:
    ours, theirs = both(layer_norm, normal(*shape))
    np.testing.assert_allclose(ours[0], theirs[0], rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("size", [1003, 40001])
def test_elements_of_every_dtype(beyond: None, dtype: Any, size: int) -> None:
    def f(x: Array) -> tuple[Array, Array]:
        y = x * 3.0
        return (y > 0.5) if dtype is jnp.bool_ else y.astype(dtype), jnp.minimum(x, 0.0)

    x = jnp.abs(normal(size)) if np.issubdtype(dtype, np.unsignedinteger) else normal(size)
    assert len(flushes(text_of(f, x))) == 2
    ours, theirs = both(f, x)
    for found, expected in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_unrolled_rows_go_each_to_its_own_place(beyond: None) -> None:
    def f(x: Array) -> tuple[Array, Array]:
        return x * 2.0 + 1.0, x.sum(0)

    x = normal(1024, 768)
    assert len(flushes(text_of(f, x))) == 4
    ours, theirs = both(f, x)
    np.testing.assert_array_equal(ours[0], theirs[0])
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-4, atol=1e-4)


def test_loops_that_write_one_run_together_share_a_tile(beyond: None) -> None:
    def f(x: Array) -> Array:
        return x - x.mean((1, 3), keepdims=True)

    x = normal(4, 49, 16, 8)
    assert [text for text in flushes(text_of(f, x)) if text.endswith(", 512)")]
    ours, theirs = both(f, x)
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-5, atol=1e-6)


def test_parts_of_a_row_by_different_loops(beyond: None) -> None:
    def f(x: Array, y: Array) -> Array:
        return jnp.concatenate([jnp.tanh(x), y * 2.0], -1)

    ours, theirs = both(f, normal(50, 300), normal(50, 111, seed=1))
    np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("skew", [0, 4, 12, 52])
def test_memory_that_is_not_aligned(beyond: None, skew: int) -> None:
    made = emitted(kernels(lambda x: x * 2.0 + 1.0, normal(41, 301))[0])
    assert flushes(made.source.text)
    x = np.asarray(normal(41, 301))
    memory = np.full(x.nbytes + 256, 7, np.uint8)
    start = -memory.ctypes.data % 64 + 64 + skew
    out = memory[start : start + x.nbytes].view(np.float32).reshape(x.shape)
    call(made.source, [x], [out])
    np.testing.assert_array_equal(out, x * 2 + 1)
    assert (memory[:start] == 7).all()
    assert (memory[start + x.nbytes :] == 7).all()


def test_all_threads_together(beyond: None) -> None:
    x = normal(4096, 333)
    f = jstitch.jit(layer_norm, options=OPTIONS)
    first = np.asarray(f(x))
    np.testing.assert_allclose(first, jax.jit(layer_norm)(x), rtol=2e-5, atol=2e-6)
    for _ in range(20):
        np.testing.assert_array_equal(np.asarray(f(x)), first)
