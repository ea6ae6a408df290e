"""Short loops that fill no whole number of vectors: the last vector begins earlier, with the same results."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jstitch
from jstitch.codegen.cpu import lower_text as module
from jstitch.codegen.cpu.lower_text import lower_text
from jstitch.codegen.cpu.processor import host_has
from jstitch.codegen.parse_text import functions_of
from jstitch.runtime.machine_code import compile_modules
from tests.codegen.test_lower_text import HEAD, names, run

OPTIONS = jstitch.CompileOptions(tune="off", strict=True, verify=True)
VECTOR = 8 if host_has("avx2") else 4
MASKS = pytest.mark.skipif(host_has("avx512f"), reason="loops end in masked vectors there")
NUMBERS = itertools.count()


def loops(body: str) -> int:
    """Those that are one vector, of the LLVM module."""
    symbol = f"jstitch_test_overlap_{next(NUMBERS)}"
    text = str(lower_text(functions_of(HEAD + body), names(), {symbol: "phase0"}))
    return text.count("followup_vectorized")


def doubled(trips: int) -> str:
    return f"    for i in range(0, {trips}):\n        store_f32(y, i, load_f32(x, i, 0) * float32(2.0), 1)\n"


@MASKS
@pytest.mark.parametrize("trips", [9, 11, 20, 31, 47, 63, 130, 255])
def test_short_loops_are(trips: int) -> None:
    left = trips % VECTOR
    assert loops(doubled(trips)) == (left > 1 or (left == 1 and trips < 2 * VECTOR))


@MASKS
@pytest.mark.parametrize("trips", [1, VECTOR - 1, VECTOR, 3 * VECTOR, 2 * VECTOR + 1, 257])
def test_others_are_not(trips: int) -> None:
    assert loops(doubled(trips)) == 0


ONCE = {
    "in its place": """
    for i in range(0, 20):
        store_f32(y, i, load_f32(y, i, 1) * float32(2.0), 1)
""",
    "a running total": """
    t = float32(0.0)
    for i in range(0, 20):
        t = add_reassoc(t, load_f32(x, i, 0))
        store_f32(y, i, t, 1)
""",
    "a total of another kind": """
    t = float32(0.0)
    for i in range(0, 20):
        v = load_f32(x, i, 0)
        t = select(v > float32(0.5), v, t)
    store_f32(y, 0, t, 1)
""",
    "a name with two values": """
    for i in range(0, 20):
        v = load_f32(x, i, 0)
        v = add_reassoc(v, float32(1.0))
        store_f32(y, i, v, 1)
""",
    "a condition": """
    for i in range(0, 20):
        if load_f32(x, i, 0) > float32(0.5):
            store_f32(y, i, float32(1.0), 1)
""",
    "every other element": """
    for i in range(0, 20):
        store_f32(y, i, load_f32(x, 2 * i, 0), 1)
""",
    "elements of a table": """
    for i in range(0, 20):
        store_f32(y, i, load_f32(x, quotient(i, 3), 0), 1)
""",
}


@MASKS
@pytest.mark.parametrize("name", ONCE)
def test_what_must_run_once_does(name: str) -> None:
    assert loops(ONCE[name]) == 0


TOTALS = """
    most = float32(-inf)
    least = float32(inf)
    total = float32(0.0)
    times = float32(1.0)
    count = int32(0)
    for i in range(0, {trips}):
        x_is_large = load_f32(x, i, 0) > float32(0.2)
        v = convert_f32(convert_s32(i)) - select(x_is_large, float32(9.0), float32(2.0))
        most = max_reassoc(most, v)
        least = min_reassoc(least, v)
        total = add_reassoc(total, v)
        times = mul_reassoc(times, select(v > float32(3.0), float32(2.0), float32(1.0)))
        count = iadd(count, convert_s32(v > float32(3.0)))
        store_f32(y, i + 8, v, 1)
    store_f32(y, 0, most, 1)
    store_f32(y, 1, least, 1)
    store_f32(y, 2, total, 1)
    store_f32(y, 3, times, 1)
    store_s32(y, 4, count, 1)
"""


@pytest.mark.parametrize("trips", [5, 9, 13, 20, 31, 47])
def test_totals_have_every_element_once(trips: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small whole numbers: sums and products of them are exact in any order."""
    body = TOTALS.format(trips=trips)

    def made() -> np.ndarray:
        symbol = f"jstitch_test_totals_{next(NUMBERS)}"
        lowered = lower_text(functions_of(HEAD + body), names(), {symbol: "phase0"})
        return run(compile_modules([lowered]), symbol)

    if not host_has("avx512f"):
        assert loops(body) == (trips > VECTOR and trips % VECTOR > 0)
    found = made()
    monkeypatch.setattr(module, "vector_of", lambda *_: 0)
    np.testing.assert_array_equal(found, made())
    assert found.any()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "bool"])
@pytest.mark.parametrize("width", [9, 13, 20, 47])
def test_donated_arguments(width: int, dtype: str) -> None:
    """Results that take an argument's memory are made once: a second time would read the first one's."""

    def f(x: jax.Array) -> jax.Array:
        y = x.astype(jnp.float32)
        return (y * jnp.float32(1.5) + 1 / (1 + y.sum(-1, keepdims=True) ** 2)).astype(x.dtype)

    x = np.asarray(np.random.default_rng(0).normal(size=(33, width)) * 3).astype(jnp.dtype(dtype))
    found = jstitch.jit(f, donate_argnums=0, options=OPTIONS)(jnp.asarray(x))
    expected = jax.jit(f)(jnp.asarray(x))
    tolerance = {"float32": 1e-5, "bfloat16": 2e-2}.get(dtype, 0)
    np.testing.assert_allclose(np.asarray(found, float), np.asarray(expected, float), tolerance, tolerance)
