"""Values in the simulator: indices, literals, functions and memory of every dtype against NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from jstitch.codegen.cuda.simulate_functions import DTYPES, vectorised
from jstitch.codegen.intrinsics import INTRINSICS
from tests.codegen.cuda.simulated import floats, run, zeros


def test_index_arithmetic() -> None:
    y = zeros(64, np.int64)
    body = """
    i = (thread() * 3 - 5) * 2 + 40
    q = quotient(i, 7) + remainder_pos(i, 7) * 100
    c = clamp_index(int64(i) - 60, 0, 20)
    s = select(thread() < 4, q, c)
    store_s64(y, thread(), int64(s) * 2)
    """
    run(body, {"y": ("write", y)}, block=64)
    t = np.arange(64)
    i = (t * 3 - 5) * 2 + 40
    expected = np.where(t < 4, i // 7 + i % 7 * 100, np.clip(i - 60, 0, 20)) * 2
    np.testing.assert_array_equal(y, expected)


def test_literals_comparisons_and_selects() -> None:
    x, y = floats(32), zeros(32)
    x[3] = np.nan
    body = """
    v = read_f32(x, thread())
    p = and_(v > float32(-0.5), not_(v == float32(inf)))
    store_f32(y, thread(), select(or_(p, False), -v, float32(-inf)))
    """
    run(body, {"x": ("read", x), "y": ("write", y)})
    np.testing.assert_array_equal(y, np.where(x > -0.5, -x, -np.inf).astype(np.float32))


@pytest.mark.parametrize("name", DTYPES)
def test_memory_of_every_dtype(name: str) -> None:
    """Loads widen and stores round, in global memory and in the arena, one element and vectors."""
    dtype = DTYPES[name].numpy
    width = min(16, 16 // dtype.itemsize)
    x = (np.random.default_rng(0).normal(size=32 * width) * 9).astype(np.float32)
    given = np.abs(x).astype(dtype) if name.startswith("u") else x.astype(dtype)
    y, z = zeros(given.size, dtype), zeros(32, dtype)
    body = f"""
    v = read_{name}x{width}(x, thread() * {width})
    shared_store_{name}x{width}(16, thread() * {width}, v, 0)
    barrier_warp()
    w = shared_load_{name}x{width}(16, (31 - thread()) * {width})
    store_{name}x{width}(y, thread() * {width}, w, 0)
    store_{name}(z, thread(), shared_load_{name}(16, thread()))
    """
    counts = run(body, {"x": ("read", given), "y": ("write", y), "z": ("write", z)}, shared=16 + given.nbytes)
    np.testing.assert_array_equal(y, given.reshape(32, width)[::-1].ravel())
    np.testing.assert_array_equal(z, given[:32])
    assert counts.shared_bytes == 16 + given.nbytes


def test_narrow_floats_are_float32_in_registers() -> None:
    x = np.linspace(1, 2, 32).astype(ml_dtypes.bfloat16)
    y = zeros(32, ml_dtypes.bfloat16)
    body = "store_bf16(y, thread(), (read_bf16(x, thread()) + float32(0.001)) * float32(3))"
    run(body, {"x": ("read", x), "y": ("write", y)})
    wide = (x.astype(np.float32) + np.float32(0.001)) * np.float32(3)
    np.testing.assert_array_equal(y, wide.astype(ml_dtypes.bfloat16))


@pytest.mark.parametrize(
    "name", sorted(n for n in INTRINSICS if vectorised(n) and not n.startswith("bitcast_"))
)
def test_functions_are_those_of_the_scalar_vocabulary(name: str) -> None:
    """Over lanes as one by one, for every dtype that the scalar function takes."""
    tried, function = 0, vectorised(name)
    assert function is not None
    for dtype in (np.float32, np.float64, np.int32, np.uint8, np.int64, np.bool_):
        x = (np.random.default_rng(1).normal(size=(3, 9)) * 3).astype(dtype)
        for arity in (1, 2):
            try:
                with np.errstate(all="ignore"):
                    expected = [
                        INTRINSICS[name].reference(*(x[k, i] for k in range(arity))) for i in range(9)
                    ]
            except Exception:
                continue
            with np.errstate(all="ignore"):
                found = function(*x[:arity])
            np.testing.assert_array_equal(found, np.asarray(expected))
            tried += 1
    assert tried


@pytest.mark.parametrize(("given", "name", "there", "back"), [
    (np.float32, "f32", "u32", "f32"),
    (np.float64, "f64", "s64", "f64"),
    (np.int16, "s16", "u16", "s16"),
])  # fmt: skip
def test_bitcasts(given: Any, name: str, there: str, back: str) -> None:
    x = floats(32).astype(given)
    y, z = zeros(32, DTYPES[there].numpy), zeros(32, given)
    body = f"""
    v = bitcast_{there}(read_{name}(x, thread()))
    store_{there}(y, thread(), v)
    store_{name}(z, thread(), bitcast_{back}(v))
    """
    run(body, {"x": ("read", x), "y": ("write", y), "z": ("write", z)})
    np.testing.assert_array_equal(y, x.view(y.dtype))
    np.testing.assert_array_equal(z, x)
