"""Integer arithmetic with XLA's answers, conversions, bit casts and index arithmetic."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from cpu_loop import NUMPY, compile_loop, compile_loops
from jax import lax

SIGNED, UNSIGNED = ("s8", "s16", "s32", "s64"), ("u8", "u16", "u32", "u64")
BINARY = {
    "iadd": lax.add,
    "isub": lax.sub,
    "imul": lax.mul,
    "idiv": lax.div,
    "irem": lax.rem,
    "and_": lax.bitwise_and,
    "or_": lax.bitwise_or,
    "xor": lax.bitwise_xor,
    "shl": lax.shift_left,
    "shr_logical": lax.shift_right_logical,
    "shr_arithmetic": lax.shift_right_arithmetic,
    "maximum": lax.max,
    "minimum": lax.min,
}
UNARY = {
    "ineg": lax.neg,
    "iabs": lax.abs,
    "isign": lax.sign,
    "not_": lax.bitwise_not,
    "popcnt": lax.population_count,
    "clz": lax.clz,
}
LOGIC = {
    "and_": np.logical_and,
    "or_": np.logical_or,
    "xor": np.logical_xor,
    "maximum": np.logical_or,
    "minimum": np.logical_and,
}


def samples(dtype: str) -> np.ndarray:
    """The ends, small numbers, shift amounts around the width, and random bits."""
    info = np.iinfo(NUMPY[dtype])
    edges = [info.min, info.min + 1, info.max, info.max - 1, *range(-3 if info.min else 0, 10)]
    edges += [info.bits - 1, info.bits, info.bits + 1]
    random = np.random.default_rng(1).integers(info.min, info.max, 40, NUMPY[dtype], endpoint=True)
    return np.concatenate([np.array(edges, NUMPY[dtype]), random])


def pairs(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    values = samples(dtype)
    return np.repeat(values, values.size), np.tile(values, values.size)


@pytest.mark.parametrize("dtype", SIGNED + UNSIGNED)
def test_binary_is_xlas(dtype: str) -> None:
    x, y = pairs(dtype)
    with jax.enable_x64(True):
        expected = jax.jit(lambda x, y: {name: f(x, y) for name, f in BINARY.items()})(x, y)
    loop = compile_loops(tuple((f"{name}({{0}}, {{1}})", dtype) for name in BINARY), (dtype, dtype))
    for name, got in zip(BINARY, loop.all(x, y), strict=True):
        np.testing.assert_array_equal(got, expected[name], err_msg=name)


@pytest.mark.parametrize("dtype", SIGNED + UNSIGNED)
def test_unary_is_xlas(dtype: str) -> None:
    x = samples(dtype)
    functions = UNARY if dtype in SIGNED else UNARY | {"iabs": lambda x: x}
    with jax.enable_x64(True):
        expected = jax.jit(lambda x: {name: f(x) for name, f in functions.items()})(x)
    loop = compile_loops(tuple((f"{name}({{0}})", dtype) for name in UNARY), (dtype,))
    for name, got in zip(UNARY, loop.all(x), strict=True):
        np.testing.assert_array_equal(got, expected[name], err_msg=name)


def truth_table() -> tuple[np.ndarray, np.ndarray]:
    return np.array([False, False, True, True]), np.array([False, True, False, True])


def test_bool_logic() -> None:
    x, y = truth_table()
    loop = compile_loops(tuple((f"{name}({{0}}, {{1}})", "bool") for name in LOGIC), ("bool", "bool"))
    for name, got in zip(LOGIC, loop.all(x, y), strict=True):
        np.testing.assert_array_equal(got, LOGIC[name](x, y), err_msg=name)
    np.testing.assert_array_equal(compile_loop("not_({0})", ("bool",), "bool")(x), ~x)


@pytest.mark.parametrize("dtype", ["s8", "u8", "s32", "u32", "s64", "u64", "bool", "f32", "f64"])
def test_comparisons(dtype: str) -> None:
    if dtype == "bool":
        x, y = truth_table()
    elif dtype[0] == "f":
        values = np.array([0, -0.0, 1, -1, np.inf, -np.inf, np.nan], NUMPY[dtype])
        x, y = np.repeat(values, values.size), np.tile(values, values.size)
    else:
        x, y = pairs(dtype)
    operators = ("==", "!=", "<", "<=", ">", ">=")
    loop = compile_loops(tuple((f"{{0}} {operator} {{1}}", "bool") for operator in operators), (dtype, dtype))
    for operator, got in zip(operators, loop.all(x, y), strict=True):
        np.testing.assert_array_equal(got, eval(f"x {operator} y"), err_msg=operator)


def floats(dtype: str) -> np.ndarray:
    values = [0.0, -0.0, 0.5, -0.5, 1.5, -1.5, 127.6, -128.9, 255.9, 300, -300, 1e9, -1e9, 3e9, 1e20, -1e20]
    values += [2.0**31, -(2.0**31), 2.0**63, -(2.0**63), 2.0**64, np.inf, -np.inf, np.nan, 16777217]
    return np.array(values, NUMPY[dtype])


CONVERSIONS = ["bool", *SIGNED, *UNSIGNED, "f16", "bf16", "f32", "f64", "f8e4m3fn", "f8e5m2"]


@pytest.mark.parametrize("source", ["bool", *SIGNED, *UNSIGNED, "f32", "f64"])
def test_conversions_are_xlas(source: str) -> None:
    if source == "bool":
        x = np.array([False, True])
    else:
        x = floats(source) if source[0] == "f" else samples(source)
    with jax.enable_x64(True):
        expected = jax.jit(lambda v: {t: lax.convert_element_type(v, NUMPY[t]) for t in CONVERSIONS})(x)
    loop = compile_loops(tuple((f"convert_{t}({{0}})", t) for t in CONVERSIONS), (source,))
    for target, got in zip(CONVERSIONS, loop.all(x), strict=True):
        if NUMPY[target].kind in "biu":
            np.testing.assert_array_equal(got, expected[target], err_msg=target)
        else:  # XLA's threads flush denormals
            got64, expected64 = (np.asarray(a).astype(np.float64) for a in (got, expected[target]))
            tiny = float(np.finfo(np.float32).tiny)
            np.testing.assert_allclose(got64, expected64, rtol=0, atol=tiny, err_msg=target)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("f32", "u32"),
        ("f32", "s32"),
        ("u32", "f32"),
        ("f64", "u64"),
        ("s64", "f64"),
        ("s8", "u8"),
        ("u16", "s16"),
    ],
)
def test_bitcast(source: str, target: str) -> None:
    raw = np.random.default_rng(2).integers(0, 256, 800, np.uint8)
    got = compile_loop(f"bitcast_{target}({{0}})", (source,), target)(raw.view(NUMPY[source]))
    np.testing.assert_array_equal(got.view(np.uint8), raw)


def test_index_arithmetic_takes_literals() -> None:
    i = np.arange(0, 100000, 37, dtype=np.int64)
    np.testing.assert_array_equal(compile_loop("quotient({0}, 768)", ("s64",), "s64")(i), i // 768)
    np.testing.assert_array_equal(compile_loop("remainder_pos({0}, 768)", ("s64",), "s64")(i), i % 768)
    clamped = compile_loop("clamp_index(isub({0}, 500), 0, 1000)", ("s64",), "s64")(i)
    np.testing.assert_array_equal(clamped, np.clip(i - 500, 0, 1000))


def test_select_of_any_type() -> None:
    p = np.array([True, False, True])
    for dtype in ("bool", "s8", "u64", "f32", "f64"):
        x, y = np.array([0, 1, 1], NUMPY[dtype]), np.array([1, 0, 0], NUMPY[dtype])
        got = compile_loop("select({0}, {1}, {2})", ("bool", dtype, dtype), dtype)(p, x, y)
        np.testing.assert_array_equal(got, np.where(p, x, y))
