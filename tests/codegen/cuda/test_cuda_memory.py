"""Loads, stores, the shared arena, shuffles and barriers of CUDA kernels, executed as PTX."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_kernels import NUMPY, TARGETS, assemble, kernel, needs_numba_cuda, ptx, run

from jstitch.codegen.launch_ir import Parameter

pytestmark = needs_numba_cuda
VECTORS = [(d, n) for d in NUMPY for n in (2, 4, 8, 16) if n * NUMPY[d].itemsize <= 16]
THREADS = 64


def sample(dtype: str, size: int) -> np.ndarray:
    """Random bits, infinities among them; 1 instead of NaN, whose payload may change."""
    random = np.random.default_rng(3)
    if dtype == "bool":
        return random.integers(0, 2, size).astype(bool)
    bits = random.integers(0, 256, size * NUMPY[dtype].itemsize, np.uint8)
    values = bits.view(NUMPY[dtype])
    if values.dtype.kind in "iu":
        return values
    return np.where(np.isnan(values.astype(np.float64)), np.ones((), values.dtype), values)


def parameters(dtype: str, size: int) -> list[Parameter]:
    return [Parameter("x", dtype, size, "read"), Parameter("y", dtype, size, "write")]


def bits(array: np.ndarray) -> np.ndarray:
    return array.view(np.uint8)


@pytest.mark.parametrize("index_bits", [32, 64])
@pytest.mark.parametrize("dtype", NUMPY)
def test_elements(dtype: str, index_bits: int) -> None:
    """Read, through the arena in reverse, loaded and stored."""
    tile = 32  # bytes before it
    lines = [
        "t = thread()",
        f"shared_store_{dtype}({tile}, t, read_{dtype}(b0, t))",
        "barrier()",
        f"store_{dtype}(b1, t, shared_load_{dtype}({tile}, {THREADS - 1} - t))",
        f"store_{dtype}(b2, t, load_{dtype}(b1, t))",
    ]
    x, y, z = sample(dtype, THREADS), np.zeros(THREADS, NUMPY[dtype]), np.zeros(THREADS, NUMPY[dtype])
    both = [*parameters(dtype, THREADS), Parameter("z", dtype, THREADS, "write")]
    shared = tile + THREADS * 8
    run(kernel(lines, both, block=THREADS, shared=shared, index_bits=index_bits), [x, y, z])
    np.testing.assert_array_equal(bits(y), bits(x[::-1].copy()))
    np.testing.assert_array_equal(bits(z), bits(y))


@pytest.mark.parametrize("capability", [(7, 5), (9, 0)])
@pytest.mark.parametrize(("dtype", "lanes"), VECTORS)
def test_vectors(dtype: str, lanes: int, capability: tuple[int, int]) -> None:
    lines = [
        f"i = thread() * {lanes}",
        f"v = read_{dtype}x{lanes}(b0, i)",
        f"shared_store_{dtype}x{lanes}(0, i, v, 0)",
        "barrier_warp()",
        f"w = shared_load_{dtype}x{lanes}(0, i)",
        f"store_{dtype}x{lanes}(b1, i, w, 0)",
        f"u = load_{dtype}x{lanes}(b1, i)",
        f"y = registers_{compute(dtype)}({2 * lanes})",
        f"for k in unroll({lanes}):",
        f"    y[{lanes} + k] = u[{lanes} - 1 - k]",
        f"store_{dtype}x{lanes}(b2, i, y, {lanes})",
    ]
    size = THREADS * lanes
    x, y, z = sample(dtype, size), np.zeros(size, NUMPY[dtype]), np.zeros(size, NUMPY[dtype])
    both = [*parameters(dtype, size), Parameter("z", dtype, size, "write")]
    source = kernel(lines, both, block=THREADS, shared=size * x.itemsize)
    run(source, [x, y, z], capability)
    np.testing.assert_array_equal(bits(y), bits(x))
    np.testing.assert_array_equal(z.reshape(-1, lanes), x.reshape(-1, lanes)[:, ::-1])
    assert len([line for line in ptx(source, capability).splitlines() if "ld.global.nc" in line]) == 1
    assert len([line for line in ptx(source, capability).splitlines() if "st.global" in line]) == 2


def compute(dtype: str) -> str:
    return dtype if (dtype[0] in "bsu" and dtype != "bf16") or dtype == "f64" else "f32"


@pytest.mark.parametrize("dtype", ["bool", "s8", "u16", "s32", "u64", "f32", "f64", "bf16"])
def test_shuffles(dtype: str) -> None:
    lines = ["t = thread()", f"x = read_{dtype}(b0, t)"]
    lines += [f"store_{dtype}(b1, t * 6 + {k}, shuffle_xor(x, {1 << k}))" for k in range(5)]
    lines += [f"store_{dtype}(b1, t * 6 + 5, shuffle(x, remainder_pos(t * 3 + 1, 32)))"]
    x, y = sample(dtype, THREADS), np.zeros((THREADS, 6), NUMPY[dtype])
    run(kernel(lines, parameters(dtype, THREADS), block=THREADS), [x, y])
    t = np.arange(THREADS)
    lanes = [t ^ (1 << k) for k in range(5)] + [t // 32 * 32 + (t * 3 + 1) % 32]
    np.testing.assert_array_equal(bits(y), bits(np.stack([x[lane] for lane in lanes], 1)))


def test_teams_wait_for_themselves_only() -> None:
    """Two teams of two warps: each one's barrier orders its own writes."""
    lines = [
        "team = quotient(thread(), 64)",
        "t = remainder_pos(thread(), 64)",
        "shared_store_f32(team * 256, t, read_f32(b0, thread()))",
        "barrier_team(1 + team, 64)",
        "store_f32(b1, thread(), shared_load_f32(team * 256, 63 - t))",
    ]
    x, y = np.arange(128, dtype=np.float32), np.zeros(128, np.float32)
    run(kernel(lines, parameters("f32", 128), block=128, shared=512), [x, y])
    np.testing.assert_array_equal(y, x.reshape(2, 64)[:, ::-1].ravel())


@pytest.mark.parametrize(
    ("dtype", "lanes", "expected"),
    [("f32", 4, "v4.f32"), ("bf16", 8, "v4.u32"), ("f8e5m2", 16, "v4.u32"), ("f64", 2, "v2.f64")],
)
def test_sixteen_bytes_are_one_access(dtype: str, lanes: int, expected: str) -> None:
    name = f"{dtype}x{lanes}"
    lines = [f"i = thread() * {lanes}", f"v = read_{name}(b0, i)", f"store_{name}(b1, i, v, 0)"]
    text = ptx(kernel(lines, parameters(dtype, 128 * lanes)))
    assert f"ld.global.nc.{expected}" in text
    assert f"st.global.{expected}" in text


def test_what_the_launch_writes_is_not_read_by_the_cache_of_constants() -> None:
    update = [Parameter("x", "f32", THREADS, "update")]
    text = ptx(kernel(["t = thread()", "store_f32(b0, t, load_f32(b0, t) + float32(1.0))"], update))
    assert "ld.global.f32" in text
    assert ".nc" not in text


@pytest.mark.parametrize("capability", TARGETS)
@pytest.mark.parametrize("dtype", ["f8e4m3fn", "f8e5m2"])
def test_bytes_are_converted_in_pairs(dtype: str, capability: tuple[int, int]) -> None:
    lines = ["i = thread() * 16", f"v = read_{dtype}x16(b0, i)", f"store_{dtype}x16(b1, i, v, 0)"]
    text = ptx(kernel(lines, parameters(dtype, 2048)), capability)
    modern = capability >= (8, 9)
    name = {"f8e4m3fn": "e4m3x2", "f8e5m2": "e5m2x2"}[dtype]
    assert text.count(f"cvt.rn.f16x2.{name}") == text.count(f"cvt.rn.satfinite.{name}.f32") == 8 * modern
    assert assemble(text, capability).spills == 0


def test_pairs_round_in_one_instruction() -> None:
    lines = ["i = thread() * 8", "v = read_f32x4(b0, i)", "store_bf16x4(b1, i, v, 0)"]
    both = [Parameter("x", "f32", 1024, "read"), Parameter("y", "bf16", 1024, "write")]
    assert ptx(kernel(lines, both), (8, 0)).count("cvt.rn.bf16x2.f32") == 2
    assert "bf16x2" not in ptx(kernel(lines, both), (7, 5))


@pytest.fixture(autouse=True)
def quiet() -> Any:
    with np.errstate(all="ignore"):
        yield
