"""The CPU's micro-kernel for products: any sizes and strides, and what is not finite."""

from __future__ import annotations

import ctypes
from functools import cache
from random import Random
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numba import cfunc, types

from jstitch.codegen.cpu import math
from jstitch.codegen.cpu.panel import PANEL_BYTES

ARGUMENTS = 15
FIXED = 16  # drawn products, of code for their sizes


TYPES: dict[str, Any] = {"f32": np.float32, "bf16": ml_dtypes.bfloat16}


@cache
def compiled(left: str, right: str) -> Any:
    """The C function, and the object that keeps it."""
    product = math.functions()[f"multiply_{left}_{right}"]

    @cfunc(types.void(*[types.int64] * ARGUMENTS))
    def run(c, c_at, a, a_at, b, b_at, panel, c_row, a_row, a_col, b_row, b_col, m, n, k):  # type: ignore[no-untyped-def]
        product(c, c_at, a, a_at, b, b_at, panel, c_row, a_row, a_col, b_row, b_col, m, n, k)

    return ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * ARGUMENTS)(run.address), run


def of_sizes(left: str, right: str, rows: int, columns: int, depth: int) -> Any:
    """The same, for products of one size, which is known when it is compiled: as kernels have them."""
    product = math.functions()[f"multiply_{left}_{right}"]

    @cfunc(types.void(*[types.int64] * ARGUMENTS))
    def run(c, c_at, a, a_at, b, b_at, panel, c_row, a_row, a_col, b_row, b_col, m, n, k):  # type: ignore[no-untyped-def]
        product(c, c_at, a, a_at, b, b_at, panel, c_row, a_row, a_col, b_row, b_col, rows, columns, depth)

    return ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * ARGUMENTS)(run.address), run


def multiply(
    c: np.ndarray, a: np.ndarray, b: np.ndarray, at: tuple[int, int, int] = (0, 0, 0), fixed: bool = False
) -> None:
    """c = a @ b for views of whatever strides; at: what is added to each address and taken from it again.

    fixed: by code for these sizes only.
    """
    panel = np.full(PANEL_BYTES // 4, np.nan, np.float32)
    strides = [s // x.itemsize for x in (c, a, b) for s in x.strides]
    del strides[1]
    places = [x for m, n in zip((c, a, b), at, strict=True) for x in (m.ctypes.data - m.itemsize * n, n)]
    sizes = (*c.shape, a.shape[1])
    names = [name for x in (a, b) for name, kind in TYPES.items() if x.dtype == kind]
    function, _ = of_sizes(*names, *sizes) if fixed else compiled(*names)
    function(*places, panel.ctypes.data, *strides, *sizes)


def matrix(random: Random, rows: int, columns: int, seed: int) -> np.ndarray:
    """Of any layout: rows or columns side by side, or neither."""
    numbers, kind = np.random.default_rng(seed), random.choice(tuple(TYPES.values()))
    extra = random.choice((0, 0, 3, 16))
    match random.randrange(3):
        case 0:
            return numbers.standard_normal((rows, columns + extra), np.float32).astype(kind)[:, :columns]
        case 1:
            return numbers.standard_normal((columns, rows + extra), np.float32).astype(kind)[:, :rows].T
    return numbers.standard_normal((2 * rows, 3 * columns), np.float32).astype(kind)[::2, ::3]


@pytest.mark.parametrize("seed", range(120))
def test_drawn_products(seed: int) -> None:
    random = Random(seed)
    m, n = (random.choice((1, 2, 4, 5, 11, 12, 13, 31, 32, 33, 64, 100)) for _ in range(2))
    k = random.choice((1, 2, 15, 16, 17, 100, 255, 256, 257, 600))
    a, b = matrix(random, m, k, seed), matrix(random, k, n, seed + 1)
    whole = np.full((m + 2, n + 5), 7.0, np.float32)
    c = whole[1 : m + 1, 2 : n + 2]
    at = (random.randrange(99), random.randrange(99), random.randrange(99))
    multiply(c, a, b, at, fixed=seed < FIXED)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(c, exact, rtol=1e-5, atol=1e-5 * k**0.5)
    c[...] = 7.0
    assert (whole == 7.0).all(), "what lies around the result stays"


@pytest.mark.parametrize("kind", TYPES.values())
def test_what_is_not_finite_stays_in_its_row_and_column(kind: Any) -> None:
    """Panels are filled up with zeros, which infinities must not meet in any column of the result."""
    a, b = np.ones((13, 40), kind), np.ones((40, 33), kind)
    a[3, 7], a[5, 0], b[9, 32] = np.inf, np.nan, -np.inf
    c = np.zeros((13, 33), np.float32)
    multiply(c, a, b)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(c, a.astype(np.float32) @ b.astype(np.float32))
