"""Accuracy and special values of every float function, against float64 (or longer) and against XLA itself.

Two rules: the error in units of the last place stays below the bound of the table, and below twice XLA's own
error on the same inputs plus one.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import pytest
import scipy.special
from cpu_loop import NUMPY, compile_loop
from jax import lax

import jstitch

Function = Callable[..., Any]


@dataclass(frozen=True)
class Case:
    """A function, where it is interesting, its largest error in ulp (None: no better reference)."""

    xla: Function
    reference: Function
    low: float
    high: float
    ulp32: float
    ulp64: float | None = 2.0


def logistic(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def round_half_away(x: Any) -> Any:
    return np.copysign(np.floor(np.abs(x) + (np.abs(x) < 2**52) * 0.5), x)


CASES = {
    "abs_": Case(lax.abs, np.abs, -5, 5, 0, 0),
    "sign": Case(lax.sign, np.sign, -5, 5, 0, 0),
    "floor": Case(lax.floor, np.floor, -5, 5, 0, 0),
    "ceil": Case(lax.ceil, np.ceil, -5, 5, 0, 0),
    "round_half_even": Case(lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), np.rint, -5, 5, 0, 0),
    "round_half_away": Case(
        lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO), round_half_away, -5, 5, 0, 0
    ),
    "sqrt": Case(lax.sqrt, np.sqrt, 0, 100, 0.51, 0.51),
    "rsqrt": Case(lax.rsqrt, lambda x: 1 / np.sqrt(x), 0, 100, 1.5, 1.5),
    "cbrt": Case(lax.cbrt, np.cbrt, -100, 100, 0.51, 1),
    "exp": Case(lax.exp, np.exp, -87, 88.7, 1.1, 1),
    "expm1": Case(lax.expm1, np.expm1, -10, 10, 1.7, 1),
    "log": Case(lax.log, np.log, 0, 10, 1, 1),
    "log1p": Case(lax.log1p, np.log1p, -1, 10, 1.6, 1),
    "tanh": Case(lax.tanh, np.tanh, -9, 9, 5, 2.5),
    "logistic": Case(lax.logistic, logistic, -87, 20, 2.5, 2.5),
    "sinh": Case(lax.sinh, np.sinh, -5, 5, 0.51, 2),
    "cosh": Case(lax.cosh, np.cosh, -5, 5, 0.51, 2),
    "asinh": Case(lax.asinh, np.arcsinh, -5, 5, 0.51, 2),
    "acosh": Case(lax.acosh, np.arccosh, 1, 5, 0.51, 2),
    "atanh": Case(lax.atanh, np.arctanh, -1, 1, 0.51, 2),
    "sin": Case(lax.sin, np.sin, -10, 10, 1.6, 1),
    "cos": Case(lax.cos, np.cos, -10, 10, 1.6, 1),
    "tan": Case(lax.tan, np.tan, -10, 10, 0.51, 1),
    "asin": Case(lax.asin, np.arcsin, -1, 1, 0.51, 1),
    "acos": Case(lax.acos, np.arccos, -1, 1, 0.51, 1),
    "atan": Case(lax.atan, np.arctan, -10, 10, 0.51, 1),
    "erf": Case(lax.erf, scipy.special.erf, -4, 4, 5, None),
    "erfc": Case(lax.erfc, scipy.special.erfc, -3, 9, 0.51, None),
    "erf_inv": Case(lax.erf_inv, scipy.special.erfinv, -1, 1, 4, None),
    "lgamma": Case(lax.lgamma, scipy.special.gammaln, 0.01, 20, 1, None),
    "digamma": Case(lax.digamma, scipy.special.digamma, 0.01, 20, 1, None),
}
ROUGH64 = {"erf": 1e-15, "erfc": 1e-14, "erf_inv": 1e-14, "lgamma": 1e-14, "digamma": 1e-14}
POLES = np.array([-1.0, -2.0, -3.0, -50.0])  # of the gamma family: scipy's own answers there differ
ZEROS = {"lgamma": (-1e9, 0), "digamma": (-1e9, 0)}  # negative reals: compared by absolute error elsewhere


def sweep(dtype: str, case: Case) -> np.ndarray:
    """Every size of number, both signs, and a dense sample of the interesting interval; no denormals."""
    kind = NUMPY[dtype]
    unsigned, step = (np.uint32, 80021) if dtype == "f32" else (np.uint64, 200000000000003)
    patterns = np.arange(0, np.iinfo(unsigned).max - step, step, dtype=unsigned).view(kind)
    dense = np.random.default_rng(0).uniform(case.low, case.high, 20000).astype(kind)
    x = np.concatenate([patterns, dense])
    return x[~(np.abs(x) < np.finfo(kind).tiny)]


def ulps(got: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Error in ulp of the result; results below the smallest normal count from there."""
    kind = got.dtype.type
    rounded = expected.astype(kind)
    both = np.isfinite(rounded) & np.isfinite(got)
    spacing = np.spacing(np.maximum(np.abs(rounded), np.finfo(kind).tiny))
    difference = np.abs(got.astype(expected.dtype) - expected) / spacing
    flushed = np.abs(expected) < np.finfo(kind).tiny * 1.000001
    difference = np.where(flushed & (np.abs(got) <= np.finfo(kind).tiny), 0, difference)
    return np.where(both, difference, 0).astype(np.float64)


def evaluate(function: Function, x: np.ndarray) -> np.ndarray:
    """XLA's answer."""
    with jax.enable_x64(True):
        return np.asarray(jax.jit(function)(x))


@functools.cache
def xla_answers(values: tuple[float, ...], dtype: str) -> dict[str, np.ndarray]:
    """XLA's answers of every function, in one compilation."""
    x = np.array(values, NUMPY[dtype])
    with jax.enable_x64(True):
        answers = jax.jit(lambda x: {name: case.xla(x) for name, case in CASES.items()})(x)
    return {name: np.asarray(answer) for name, answer in answers.items()}


@pytest.fixture(autouse=True)
def quiet() -> Any:
    with np.errstate(all="ignore"):
        yield


@pytest.mark.parametrize("name", CASES)
def test_f32_error(name: str) -> None:
    case = CASES[name]
    x = sweep("f32", case)
    x = x[x > 0] if name in ZEROS else x
    expected = case.reference(x.astype(np.float64))
    got = compile_loop(f"{name}({{0}})", ("f32",), "f32")(x)
    same_class(got, expected, x)
    error, xla = ulps(got, expected), ulps(evaluate(case.xla, x), expected)
    worst = int(np.argmax(error))
    assert error[worst] <= case.ulp32, f"{name}({x[worst]!r}) = {got[worst]!r}, expected {expected[worst]!r}"
    assert error[worst] <= 2 * xla.max() + 1


@pytest.mark.parametrize("name", [n for n, c in CASES.items() if c.ulp64 is not None])
def test_f64_error(name: str) -> None:
    case = CASES[name]
    x = sweep("f64", case)
    expected = case.reference(x.astype(np.longdouble))
    got = compile_loop(f"{name}({{0}})", ("f64",), "f64")(x)
    same_class(got, expected, x)
    error, xla = ulps(got, expected), ulps(evaluate(case.xla, x), expected)
    worst = int(np.argmax(error))
    assert case.ulp64 is not None
    assert error[worst] <= case.ulp64, f"{name}({x[worst]!r}) = {got[worst]!r}, expected {expected[worst]!r}"
    assert error[worst] <= 2 * xla.max() + 1


def same_class(got: np.ndarray, expected: np.ndarray, x: np.ndarray) -> None:
    """NaN where NaN is expected, and inf where inf is."""
    rounded = expected.astype(got.dtype)
    for test in (np.isnan, np.isposinf, np.isneginf):
        wrong = test(got) != test(rounded)
        assert not wrong.any(), f"at {x[wrong][:5]}: {got[wrong][:5]}, expected {rounded[wrong][:5]}"


@pytest.mark.parametrize("name", ROUGH64)
def test_f64_special_functions(name: str) -> None:
    case = CASES[name]
    x = np.random.default_rng(0).uniform(case.low, case.high, 20000)
    got = compile_loop(f"{name}({{0}})", ("f64",), "f64")(x)
    np.testing.assert_allclose(got, case.reference(x), rtol=ROUGH64[name], atol=ROUGH64[name] / 10)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("name", ["lgamma", "digamma"])
def test_gamma_family_below_zero(name: str, dtype: str) -> None:
    x = np.random.default_rng(0).uniform(-20, 0, 5000).astype(NUMPY[dtype])
    expected = CASES[name].reference(x.astype(np.float64))
    tolerance = 1e-6 if dtype == "f32" else 1e-11
    got = compile_loop(f"{name}({{0}})", (dtype,), dtype)(x)
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)
    poles = compile_loop(f"{name}({{0}})", (dtype,), dtype)(POLES.astype(NUMPY[dtype]))
    assert (np.isposinf(poles) if name == "lgamma" else np.isnan(poles)).all()


EDGES = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 1.5, 2.5, -2.5, 1e30, 200.0)
DENORMALS = (1e-40, -1e-40, 1.1e-38, -1.1e-38)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("name", CASES)
def test_special_values(name: str, dtype: str) -> None:
    """Equal to XLA's, signs of zeros too, except where XLA's is a known defect."""
    x = np.array(EDGES, NUMPY[dtype])
    got = compile_loop(f"{name}({{0}})", (dtype,), dtype)(x)
    expected = xla_answers(EDGES, dtype)[name]
    if name == "digamma":  # at +-0, XLA of jax 0.10 says NaN and that of jax 0.12 -inf: ours is the newer
        expected = np.where((x == 0) & np.isnan(expected), -np.inf, expected)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
    np.testing.assert_allclose(got, expected, rtol=1e-4 if dtype == "f32" else 1e-8, atol=1e-6)
    zero = (got == 0) & (expected == 0)
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(expected[zero]))


@pytest.mark.parametrize("name", CASES)
def test_denormals_are_kept_or_flushed(name: str) -> None:
    """f(x) for a denormal x is f(x) or, as on XLA's threads, f(0)."""
    x = np.array(DENORMALS, np.float32)
    got = compile_loop(f"{name}({{0}})", ("f32",), "f32")(x)
    exact = CASES[name].reference(x.astype(np.float64))
    flushed = CASES[name].reference(np.copysign(0.0, x).astype(np.float64))
    xla = xla_answers(DENORMALS, "f32")[name]
    near = [np.isclose(got, e, rtol=1e-5, atol=1.2e-38, equal_nan=True) for e in (exact, flushed, xla)]
    assert np.logical_or.reduce(near).all(), f"{got}: expected {exact} or {flushed}"


def test_tanh_reaches_one_and_never_passes_it() -> None:
    first, last = (np.float32(bound).view(np.int32) for bound in (4.0, 10.0))
    x = np.arange(first, last, dtype=np.int32).view(np.float32)
    tanh = compile_loop("tanh({0})", ("f32",), "f32")
    for sign in (1, -1):
        got = np.abs(tanh(x * np.float32(sign)))
        assert got.max() == 1
        assert (got[x >= 7.904657] == 1).all()


LIKE_X = ("expm1", "log1p", "tanh", "sinh", "asinh", "atanh", "sin", "tan", "asin", "atan")


@pytest.mark.parametrize("name", LIKE_X)
def test_the_smallest_normal_floats(name: str) -> None:
    """Kernels flush what is smaller to zero, also what they make on the way."""
    x = np.array([1.2e-38, -1.5e-38, 2e-38, 3e-38, 1e-37, 1e-20, -1e-10] * 300, np.float32)
    options = jstitch.CompileOptions(tune="off", strict=True)
    np.testing.assert_array_equal(jstitch.jit(lambda x: CASES[name].xla(x) * 2, options=options)(x), 2 * x)
