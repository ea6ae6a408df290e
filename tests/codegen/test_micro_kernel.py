"""The CPU's micro-kernel for products: any sizes and strides, and what is not finite."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from random import Random
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from jstitch.codegen.cpu.compile_kernel import compile_kernel
from jstitch.codegen.cpu.panel import PANEL_BYTES
from jstitch.codegen.kernel_source import KernelSource, PhaseSource
from jstitch.runtime.native_object import load_objects

ARGUMENTS = 15
FIXED = 16  # drawn products, of code for their sizes


TYPES: dict[str, Any] = {"f32": np.float32, "bf16": ml_dtypes.bfloat16}


def text_of(left: str, right: str, sizes: Sequence[int]) -> str:
    """A kernel whose table has the product's numbers. sizes: those that are known when it is compiled."""
    numbers = [f"load_s64(bufs, {n}, 0)" for n in range(ARGUMENTS - len(sizes))]
    given = ", ".join([*numbers, *map(str, sizes)])
    return f"def product(bufs, arena, program):\n    multiply_{left}_{right}({given})\n"


@cache
def compiled(left: str, right: str, *sizes: int) -> Any:
    """The C function. sizes: as kernels have them, or none."""
    symbol = "_".join(map(str, ("jstitch_test_product", left, right, *sizes)))
    phase = PhaseSource("product", 1, 1)
    source = KernelSource("product", text_of(left, right, sizes), ARGUMENTS, 0, 0, 0, (phase,))
    made = compile_kernel(source, [symbol])
    (address,) = load_objects(made.own, [symbol], made.shared)
    return ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 3)(address)


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
    function = compiled(*names, *(sizes if fixed else ()))
    table = (ctypes.c_int64 * ARGUMENTS)(*places, panel.ctypes.data, *strides, *sizes)
    function(ctypes.addressof(table), 0, 0)


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
