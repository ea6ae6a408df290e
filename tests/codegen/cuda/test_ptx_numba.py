"""What NVVM emits for Numba kernels, run by the PTX interpreter: libdevice, loops, shuffles, shared tiles."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from importlib import util
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from scipy import special

from jstitch.codegen.cuda.ptx import Counts, PtxError, run_ptx

if util.find_spec("numba_cuda") is None:
    pytest.skip("numba-cuda is not installed", allow_module_level=True)
if not hasattr(np, "row_stack"):  # numba-cuda 0.30 still names it at import
    np.row_stack = np.vstack

from numba import cuda, float32, int32, types, uint32


def compile_ptx(function: Callable[..., None], *arrays: np.ndarray) -> tuple[str, str]:
    """PTX of the kernel for sm_90, and its entry's name."""
    pointers = [types.CPointer(getattr(types, array.dtype.name)) for array in arrays]
    options = {"device": False, "output": "ptx", "abi": "numba"}
    text, _ = cuda.compile(function, types.void(*pointers), cc=(9, 0), **options)
    text = text.decode() if isinstance(text, bytes) else text
    return text, str(re.search(r"\.entry\s+([\w$]+)", text)[1])  # type: ignore[index]


def run(function: Callable[..., None], *arrays: np.ndarray, grid: int = 2, block: int = 256) -> Counts:
    return run_ptx(*compile_ptx(function, *arrays), grid, block, 0, arrays)


def elementwise(function: Callable[[Any], Any], values: np.ndarray) -> np.ndarray:
    """The function of `math`, which a kernel may name, on 512 threads."""

    def kernel(x, out):  # type: ignore[no-untyped-def]
        i = cuda.grid(1)
        out[i] = function(x[i])

    values = np.resize(values, 512)
    out = np.zeros_like(values)
    run(kernel, values, out)
    return out


X32 = np.linspace(-20, 20, 512).astype("f4")
X64 = np.linspace(-20, 20, 512)


@pytest.mark.parametrize("name", ["exp", "sin", "cos", "tan", "tanh", "erf", "atan", "expm1", "sinh"])
@pytest.mark.parametrize(("x", "tolerance"), [(X32, 4e-7), (X64, 1e-15)])
def test_libdevice_functions(name: str, x: np.ndarray, tolerance: float) -> None:
    found = elementwise(getattr(math, name), x)
    expected = getattr(special if name == "erf" else np, name if name != "atan" else "arctan")(x.astype("f8"))
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance / 4)


@pytest.mark.parametrize("name", ["log", "log1p", "sqrt", "lgamma"])
def test_libdevice_functions_of_positive_numbers(name: str) -> None:
    x = np.exp(X64 * 2)
    expected = special.gammaln(x) if name == "lgamma" else getattr(np, name)(x)
    np.testing.assert_allclose(elementwise(getattr(math, name), x), expected, rtol=1e-14, atol=1e-15)


def test_reduction_of_huge_arguments_takes_the_slow_path() -> None:
    """sin of a large f32 calls a device function with a local array and a table in memory."""
    x = np.array([1e5, -3e9, 1e20, 3e38, 0.5], "f4")
    np.testing.assert_allclose(elementwise(math.sin, x)[:5], np.sin(x.astype("f8")), rtol=2e-7)


def test_integer_division_by_constants() -> None:
    x = np.random.default_rng(0).integers(-(2**31), 2**31, 512).astype("i4")
    found = np.zeros_like(x)

    def kernel(x, out):  # type: ignore[no-untyped-def]
        i = cuda.grid(1)
        v = x[i]
        out[i] = (v // 7) * 3 + (v % 5) + (v >> 3) ^ (v << 2)

    run(kernel, x, found)
    wide = x.astype("i8")
    assert (found == ((wide // 7) * 3 + (wide % 5) + (wide >> 3) ^ (wide << 2)).astype("i4")).all()


def test_bf16_bits() -> None:
    def round_to_bf16(x, out):  # type: ignore[no-untyped-def]
        i = cuda.grid(1)
        bits = x[i]
        odd = (bits >> uint32(16)) & uint32(1)
        out[i] = uint32(bits + uint32(0x7FFF) + odd) & uint32(0xFFFF0000)

    x = np.random.default_rng(0).standard_normal(512).astype("f4")
    out = np.zeros(512, "u4")
    run(round_to_bf16, x.view("u4"), out)
    found = out.view("f4")
    assert (found == x.astype(ml_dtypes.bfloat16).astype("f4")).all()


def row_sum(x, out):  # type: ignore[no-untyped-def]
    """Strided loop, shuffles inside a warp, shared memory between warps, one thread at the end."""
    tile = cuda.shared.array(8, float32)
    thread = cuda.threadIdx.x
    total = float32(0)
    for i in range(thread, 1000, 256):
        total += x[cuda.blockIdx.x * 1000 + i]
    step = 16
    while step > 0:
        total += cuda.shfl_xor_sync(0xFFFFFFFF, total, step)
        step //= 2
    if thread % 32 == 0:
        tile[thread // 32] = total
    cuda.syncthreads()
    if thread == 0:
        result = float32(0)
        for k in range(8):
            result += tile[k]
        out[cuda.blockIdx.x] = result


def test_row_sums() -> None:
    x, out = np.random.default_rng(0).standard_normal((70, 1000)).astype("f4"), np.zeros(70, "f4")
    counts = run(row_sum, x, out, grid=70)
    np.testing.assert_allclose(out, x.sum(1), atol=1e-4)
    assert counts.read_bytes == x.nbytes
    assert counts.distinct_read == (x.nbytes, 0)
    assert (counts.written_bytes, counts.barriers) == (280, 70)


def test_dropped_barrier_in_emitted_text() -> None:
    x, out = np.zeros((2, 1000), "f4"), np.zeros(2, "f4")
    text, entry = compile_ptx(row_sum, x, out)
    broken = re.sub(r"bar\.sync\s+0;", "", text)
    assert broken != text
    with pytest.raises(
        PtxError, match=r"race: reads what thread 32 of CTA 0 at line \d+ wrote, no barrier between"
    ):
        run_ptx(broken, entry, 2, 256, 0, [x, out])


def test_off_by_one_bound_in_emitted_text() -> None:
    x, out = np.zeros(1999, "f4"), np.zeros(2, "f4")
    with pytest.raises(
        PtxError, match=r"CTA 1: out of bounds: reads 4 bytes at buffer 0 \+ 7996, past its end"
    ):
        run(row_sum, x, out)


def test_divergent_loops() -> None:
    def collatz(n, out):  # type: ignore[no-untyped-def]
        i = cuda.grid(1)
        value, steps = n[i], int32(0)
        while value != 1:
            value = value // 2 if value % 2 == 0 else 3 * value + 1
            steps += 1
        out[i] = steps

    n, out = np.arange(1, 513, dtype="i8"), np.zeros(512, "i4")
    run(collatz, n, out)
    expected = []
    for value in n.tolist():
        steps = 0
        while value != 1:
            value, steps = value // 2 if value % 2 == 0 else 3 * value + 1, steps + 1
        expected.append(steps)
    assert out.tolist() == expected


def test_transpose_through_shared_memory() -> None:
    def transpose(x, out):  # type: ignore[no-untyped-def]
        tile = cuda.shared.array((16, 17), float32)
        column, row = cuda.threadIdx.x % 16, cuda.threadIdx.x // 16
        tile[row, column] = x[cuda.blockIdx.x * 256 + cuda.threadIdx.x]
        cuda.syncthreads()
        out[cuda.blockIdx.x * 256 + cuda.threadIdx.x] = tile[column, row]

    x = np.random.default_rng(0).random((5, 16, 16), np.float32)
    out = np.zeros_like(x)
    run(transpose, x, out, grid=5)
    assert (out == x.transpose(0, 2, 1)).all()
