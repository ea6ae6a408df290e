"""Functions of two floats: powers, angles, remainders, order, neighbours; predicates."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cpu_loop import NUMPY, compile_loop
from jax import lax
from test_cpu_math import same_class, ulps

import jstitch

VALUES = [0.0, 1.0, 2.0, 3.0, 0.5, 0.3, 1.5, 1e30, 1e-30, 8388609.0, 16777216.0, np.inf]
EDGES = np.array([np.nan, *VALUES, *(-v for v in VALUES)])
FUNCTIONS = {
    "pow_": (lax.pow, np.power),
    "atan2": (lax.atan2, np.arctan2),
    "remainder_": (lax.rem, np.fmod),
    "next_after": (lax.nextafter, np.nextafter),
    "maximum": (lax.max, np.maximum),
    "minimum": (lax.min, np.minimum),
    "add_reassoc": (lax.add, np.add),
    "mul_reassoc": (lax.mul, np.multiply),
    "mul_rounded": (lax.mul, np.multiply),
}
ULPS = {"pow_": 1.1, "atan2": 0.6, "remainder_": 0.0}


@pytest.fixture(autouse=True)
def quiet() -> Any:
    with np.errstate(all="ignore"):
        yield


def call(name: str, dtype: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return compile_loop(f"{name}({{0}}, {{1}})", (dtype, dtype), dtype)(x, y)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_special_values(name: str, dtype: str) -> None:
    """Every pair of edge values gives C's answer, with the right sign of zero."""
    edges = EDGES.astype(NUMPY[dtype])
    x, y = np.repeat(edges, edges.size), np.tile(edges, edges.size)
    got, expected = call(name, dtype, x, y), FUNCTIONS[name][1](x, y)
    if name in ("maximum", "minimum"):
        ties = (x == 0) & (y == 0)
        sign = np.signbit(x) & np.signbit(y) if name == "maximum" else np.signbit(x) | np.signbit(y)
        expected = np.where(ties, np.where(sign, -0.0, 0.0), expected)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
    np.testing.assert_allclose(got, expected, rtol=1e-6 if dtype == "f32" else 1e-14, atol=0)
    zero = (got == 0) & (expected == 0)
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(expected[zero]))


@pytest.mark.parametrize("name", ["pow_", "atan2", "remainder_", "maximum", "minimum"])
def test_special_values_are_xlas(name: str) -> None:
    edges = EDGES.astype(np.float32)
    x, y = np.repeat(edges, edges.size), np.tile(edges, edges.size)
    got, expected = call(name, "f32", x, y), np.asarray(jax.jit(FUNCTIONS[name][0])(x, y))
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1.2e-38)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("name", ULPS)
def test_error(name: str, dtype: str) -> None:
    random = np.random.default_rng(3)
    x, y = random.uniform(-8, 8, (2, 40000)).astype(NUMPY[dtype])
    x, y = (np.exp(v).astype(NUMPY[dtype]) if name == "pow_" and v is x else v for v in (x, y))
    wide = np.float64 if dtype == "f32" else np.longdouble
    expected = FUNCTIONS[name][1](x.astype(wide), y.astype(wide))
    got = call(name, dtype, x, y)
    same_class(got, expected, x)
    with jax.enable_x64(True):
        xla = ulps(np.asarray(jax.jit(FUNCTIONS[name][0])(x, y)), expected).max()
    error = ulps(got, expected).max()
    assert error <= ULPS[name]
    assert error <= 2 * xla + 1


def test_pow_near_the_limits() -> None:
    random = np.random.default_rng(4)
    x = np.exp(random.uniform(-87, 88, 40000)).astype(np.float32)
    y = (random.uniform(-88, 88, 40000) / np.log(x.astype(np.float64))).astype(np.float32)
    expected = np.power(x.astype(np.float64), y.astype(np.float64))
    got = call("pow_", "f32", x, y)
    same_class(got, expected, x)
    assert ulps(got, expected).max() <= ULPS["pow_"]


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_is_finite(dtype: str) -> None:
    x = EDGES.astype(NUMPY[dtype])
    np.testing.assert_array_equal(compile_loop("is_finite({0})", (dtype,), "bool")(x), np.isfinite(x))


def test_literals_of_numba_types() -> None:
    x = np.linspace(-2, 2, 9, dtype=np.float32)
    got = compile_loop("maximum({0}, float32(0.5)) * float32(2.0)", ("f32",), "f32")(x)
    np.testing.assert_array_equal(got, np.maximum(x, 0.5) * 2)
    i = np.arange(9, dtype=np.int32)
    np.testing.assert_array_equal(compile_loop("iadd({0}, int32(3))", ("s32",), "s32")(i), i + 3)
    np.testing.assert_array_equal(compile_loop("shl({0}, 3)", ("s32",), "s32")(i), i << 3)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_neighbours_of_narrow_floats_stay_xlas(dtype: Any) -> None:
    """Kernels compute with float32, where the neighbours are others."""
    x = jnp.array([1.0, np.inf, 2.0, -3.5] * 300, dtype)
    y = jnp.array([2.0, 0.0, 0.0, -9.0] * 300, dtype)

    def f(x: Any, y: Any) -> Any:
        return jnp.nextafter(jnp.abs(x * 0.5), y) * 2.0

    found = jstitch.jit(f, options=jstitch.CompileOptions(tune="off", strict=True))(x, y)
    expected = np.nextafter(np.abs(np.asarray(x)) / dtype(2), np.asarray(y)) * dtype(2)
    np.testing.assert_array_equal(np.float32(found), np.float32(expected))
