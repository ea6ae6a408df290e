"""Loads, stores and the narrow floats: every code of every narrow format."""

from __future__ import annotations

import numpy as np
import pytest
from cpu_loop import NUMPY, compile_loop, compile_source, run
from numba.core.errors import TypingError

NARROW = ("f16", "bf16", "f8e4m3fn", "f8e5m2")


def codes(dtype: str) -> np.ndarray:
    """Every value of a narrow format, as that dtype."""
    width = NUMPY[dtype].itemsize
    return np.arange(1 << (8 * width), dtype=np.uint32).astype(f"u{width}").view(NUMPY[dtype])


def boundary_floats() -> np.ndarray:
    """f32 values around everything the narrow formats tell apart: all f32 with few mantissa bits, +-1 ulp."""
    high = np.arange(0, 1 << 16, dtype=np.uint32)
    low = np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)
    return ((high[:, None] << 16) | low).reshape(-1).view(np.float32)


def same_values(got: np.ndarray, expected: np.ndarray) -> None:
    """Bit for bit, where every NaN is as good as another."""
    got32, expected32 = got.astype(np.float32), expected.astype(np.float32)
    np.testing.assert_array_equal(np.isnan(got32), np.isnan(expected32))
    ok = ~np.isnan(expected32)
    np.testing.assert_array_equal(got32[ok].view(np.uint32), expected32[ok].view(np.uint32))


@pytest.mark.parametrize("dtype", NARROW)
def test_load_widens_every_code(dtype: str) -> None:
    values = codes(dtype)
    with np.errstate(all="ignore"):
        same_values(compile_loop("{0}", (dtype,), "f32")(values), values.astype(np.float32))


@pytest.mark.parametrize("dtype", NARROW)
def test_round_trip_keeps_every_code(dtype: str) -> None:
    values = codes(dtype)
    with np.errstate(all="ignore"):
        same_values(compile_loop("{0}", (dtype,), dtype)(values), values)


@pytest.mark.parametrize("dtype", NARROW)
def test_store_and_convert_round_to_nearest_even(dtype: str) -> None:
    values = boundary_floats()
    with np.errstate(all="ignore"):
        expected = values.astype(NUMPY[dtype])
        same_values(compile_loop("{0}", ("f32",), dtype)(values), expected)
        same_values(compile_loop(f"convert_{dtype}({{0}})", ("f32",), "f32")(values), expected)


@pytest.mark.parametrize("dtype", [d for d in NUMPY if d not in NARROW])
def test_round_trip_of_wide_types(dtype: str) -> None:
    raw = np.random.default_rng(0).integers(0, 256, 8000, np.uint8)
    values = (raw & 1 if dtype == "bool" else raw).view(NUMPY[dtype])
    got = compile_loop("{0}", (dtype,), dtype)(values)
    np.testing.assert_array_equal(got.view(np.uint8), values.view(np.uint8))


def test_bool_is_any_nonzero_byte_and_stored_as_one() -> None:
    raw = np.array([0, 1, 2, 128, 255], np.uint8)
    got = compile_loop("{0}", ("bool",), "bool")(raw).view(np.uint8)
    np.testing.assert_array_equal(got, [0, 1, 1, 1, 1])


def test_integer_literals_store_in_any_integer_type() -> None:
    assert compile_loop("7", ("f32",), "s8")(np.zeros(3, np.float32)).tolist() == [7, 7, 7]


def test_in_place() -> None:
    source = """
def kernel(bufs, n):
    p = load_s64(bufs, 0, 1)
    for i in range(n):
        store_f32(p, i, load_f32(p, i, 0) + float32(1.0), 0)
    prefetch(p, 64)
"""
    x = np.arange(100, dtype=np.float32)
    run(compile_source(source), 100, x)
    np.testing.assert_array_equal(x, np.arange(1, 101))


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("load_f32({0}, 0, i)", "literal buffer number"),
        ("load_f32({0}, 0, 4095)", "below 4095"),
        ("maximum({0}, float32(1.0))", "one type"),
        ("exp({0})", "float32 or float64"),
        ("iadd(1.0, 2.0)", "an integer"),
    ],
)
def test_wrong_types_are_named(expression: str, message: str) -> None:
    with pytest.raises(TypingError, match=message):
        compile_loop(expression, ("s64",), "f32")
