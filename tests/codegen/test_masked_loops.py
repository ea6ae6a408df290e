"""Short loops that fill no whole number of vectors end in one with a mask, with the same results."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jstitch
from jstitch.codegen.cpu.lower_text import lower_text
from jstitch.codegen.cpu.processor import host_has
from jstitch.codegen.parse_text import functions_of
from tests.codegen.guarded import overruns
from tests.codegen.test_check_phases import kernels, shape
from tests.codegen.test_lower_text import HEAD, names
from tests.shares import one_tuple_in

MASK = "llvm.loop.vectorize.predicate.enable"
OPTIONS = jstitch.CompileOptions(tune="off", strict=True, verify=True)
WIDTHS = (1, 9, 24, 31, 47, 65, 127, 250)


@pytest.mark.skipif(not host_has("avx512f"), reason="masks are registers of their own on AVX-512 only")
@pytest.mark.parametrize(
    ("trips", "masked"),
    [*((n, True) for n in (9, 24, 47, 65, 250)), *((n, False) for n in (7, 16, 256, 1000))],
)
def test_which_loops_are(trips: int, masked: bool) -> None:
    body = f"    for i in range(0, {trips}):\n        store_f32(y, i, load_f32(x, i, 0) * float32(2.0), 1)\n"
    text = lower_text(functions_of(HEAD + body), names(), {f"jstitch_test_masked_{trips}": "phase0"})
    assert (MASK in str(text)) == masked


@pytest.mark.skipif(not host_has("avx512f"), reason="masks are registers of their own on AVX-512 only")
@pytest.mark.parametrize(("trips", "instructions", "written"), [(250, 20, True), (250, 400, False)])
def test_vectors_are_written_out_where_they_are_few(trips: int, instructions: int, written: bool) -> None:
    """So that the mask is a constant; what would be a long text stays a loop."""
    multiplied = "load_f32(x, i, 0)" + " * float32(2.0)" * instructions
    body = f"    for i in range(0, {trips}):\n        store_f32(y, i, {multiplied}, 1)\n"
    text = lower_text(functions_of(HEAD + body), names(), {f"jstitch_test_written_{instructions}": "phase0"})
    assert ("llvm.loop.unroll.full" in str(text)) == written


def centred(x: Any) -> Any:
    y = x - x.mean(-1, keepdims=True)
    return y / (jnp.sqrt((y * y).mean(-1, keepdims=True)) + 1e-3)


def extremes(x: Any) -> Any:
    return x.max(-1), x.min(-1), jnp.argmax(x, -1)


DTYPES = jnp.float32, jnp.bfloat16
ROW_BY_ROW = (centred, jax.nn.softmax, extremes, lambda x: jnp.where(x > 0, x, -x).sum(-1))


@pytest.mark.parametrize(("dtype", "f"), one_tuple_in(3, itertools.product(DTYPES, ROW_BY_ROW)))
def test_rows_of_every_width(f: Callable[..., Any], dtype: Any) -> None:
    """Nothing behind a row is read into a sum or a maximum, nor written."""
    numbers = np.random.default_rng(0)
    for width in WIDTHS:
        x = jnp.asarray(numbers.standard_normal((37, width)) - 3, dtype)  # below the zeros of a mask
        found, theirs = jax.tree.leaves(jstitch.jit(f, options=OPTIONS)(x)), jax.tree.leaves(jax.jit(f)(x))
        for a, b in zip(found, theirs, strict=True):
            tolerance = 1e-5 if a.dtype == jnp.float32 else 2e-2
            np.testing.assert_allclose(
                np.asarray(a, np.float64), np.asarray(b, np.float64), rtol=tolerance, atol=tolerance
            )


def test_a_number_that_is_none_stays_in_its_row() -> None:
    x = np.ones((8, 47), np.float32)
    x[3, 46], x[5, 0] = np.nan, np.inf
    found = np.asarray(jstitch.jit(lambda x: x.sum(-1) + x.max(-1), options=OPTIONS)(x))
    assert np.isnan(found[3])
    assert np.isinf(found[5])
    assert (np.delete(found, [3, 5]) == 48).all()


@pytest.mark.skipif(not host_has("avx512f"), reason="masks are registers of their own on AVX-512 only")
@pytest.mark.parametrize(("stored", "masked"), [("convert_f32(j) * float32(2.0)", True), ("j", False)])
def test_which_loops_with_numbers_of_columns_are(stored: str, masked: bool) -> None:
    """A 32-bit number of a column, of which one is left: LLVM may store more than it, but no float of it."""
    store = "store_f32" if masked else "store_s32"
    body = f"    for i in range(0, 29):\n        j = convert_s32(i)\n        {store}(y, i, {stored}, 1)\n"
    text = lower_text(functions_of(HEAD + body), names(), {f"jstitch_test_numbered_{masked}": "phase0"})
    assert (MASK in str(text)) == masked


@pytest.mark.parametrize("dtype", ["float32", "int32", "bfloat16", "int8", "bool"])
@pytest.mark.parametrize("width", [13, 17, 33])
def test_nothing_is_written_behind_the_last_row(dtype: str, width: int) -> None:
    """LLVM writes a whole float where one narrow element is left, and it knows the mask: 17 of 2 x 16."""

    def polynomial(x: Any, scale: Any, shift: Any) -> Any:
        y = x * scale
        for _ in range(6):
            y = jnp.where(y > 0, y * x + jnp.arange(width), x / (1.0 + y * y))
        return (y + shift).astype(dtype)

    (kernel,) = kernels(polynomial, shape(40, width), shape(40, 1), shape(width))
    assert list(overruns(kernel)) == []
