"""Loops over rows of a few elements are written out, and vectors are made of many rows."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jstitch
from jstitch.codegen.cpu.build import assembly
from jstitch.codegen.cpu.emit import emit
from jstitch.codegen.cpu.short_rows import (
    GATHERED,
    GROUP,
    LONG,
    SHORT,
    looked_up,
    rows_are_short,
    written_out,
)
from tests.codegen.guarded import overruns
from tests.codegen.test_check_phases import kernels, shape
from tests.shares import one_tuple_in

OPTIONS = jstitch.CompileOptions(tune="off", strict=True, verify=True)
ROWS = """
def phase0(bufs, arena, program):
    t = arena + 64
    for r in range(lo, hi):
        for i in range(0, {first}):
            store_f32(t, {place}, load_f32(x, {row} * 3 + i, 1), 2)
        for i in range(0, {second}):
            for j in range(0, {third}):
                store_f32(z, {column}, load_f32(t, i, 2), 3)
"""


def is_short(
    first: int = 3,
    second: int = 1,
    third: int = 1,
    arena_bytes: int = 128,
    place: str = "i",
    row: str = "r",
    column: str = "r * 3 + j",
    gathers: bool = True,
) -> bool:
    text = ROWS.format(first=first, second=second, third=third, place=place, row=row, column=column)
    (function,) = ast.parse(text).body
    assert isinstance(function, ast.FunctionDef)
    return rows_are_short(function, arena_bytes, gathers)


def test_which_rows_are_short() -> None:
    assert is_short(3, 1, 3)
    assert is_short(SHORT, 2, 4)
    assert not is_short(SHORT + 1, 1, 2), "a row that is stored, too"
    assert not is_short(3, 3, 3), "nine elements in all"
    assert is_short(GATHERED, 1, 1)
    assert not is_short(GATHERED, 1, 1, gathers=False)
    assert not is_short(GATHERED + 1, 1, 1)
    assert not is_short(arena_bytes=1 << 16)
    assert not is_short(place="clamp_index(v, 0, 2)"), "a place that nobody knows"
    assert not is_short(row="quotient(r, 5)"), "rows that lie apart"
    assert not is_short(column="j"), "sums of columns"


def test_what_is_looked_up_is_selected() -> None:
    for place, count in (
        ("clamp_index(int64(v), 0, 2)", 3),
        (f"clamp_index(v, 0, {GATHERED - 1})", GATHERED),
        (f"clamp_index(v, 0, {GATHERED})", None),
        ("clamp_index(v, 1, 2)", None),
        ("clamp_index(v, 0, n)", None),
        ("r + 1", None),
    ):
        assert looked_up(ast.parse(place, mode="eval").body) == count
    text = ROWS.format(first=3, second=1, third=1, place="i", row="r", column="r * 3 + j")
    (function,) = ast.parse(text.replace("load_f32(t, i, 2)", "load_f32(t, clamp_index(v, 0, 2), 2)")).body
    assert isinstance(function, ast.FunctionDef)
    assert rows_are_short(function, 128)


def test_loops_without_loops_inside_are_no_rows() -> None:
    (function,) = ast.parse("def f(bufs, arena, p):\n    for r in range(lo, hi):\n        x = 1\n").body
    assert isinstance(function, ast.FunctionDef)
    assert not rows_are_short(function, 0)


def softmax(x: Any) -> Any:
    return jax.nn.softmax(x)


def losses(x: Any) -> Any:
    """A gather in a row, sums over all rows, and columns."""
    labels = jnp.argmax(x, -1)
    p = jax.nn.log_softmax(x)
    return -jnp.take_along_axis(p, labels[:, None], -1).mean(), p.sum(0), jnp.exp(p).max(-1)


def clipped(x: Any) -> Any:
    y = jnp.clip(x - x[..., :1], -1, 1)
    return (y - y.mean(-1, keepdims=True)) / (y.std(-1, keepdims=True) + 1e-2), y > 0


def pairs(x: Any) -> Any:
    return jax.nn.softmax(x[..., : x.shape[-1] // 2 * 2].reshape(len(x), -1, 2), axis=(1, 2))


@pytest.mark.parametrize("f", [softmax, losses, clipped, pairs])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_short_rows_of_every_width_and_number(f: Callable[..., Any], dtype: Any) -> None:
    numbers = np.random.default_rng(0)
    for rows, width in ((1, 2), (15, 3), (1001, 5), (37, 8)):
        x = jnp.asarray(numbers.standard_normal((rows, width)), dtype)
        found, theirs = jax.tree.leaves(jstitch.jit(f, options=OPTIONS)(x)), jax.tree.leaves(jax.jit(f)(x))
        for a, b in zip(found, theirs, strict=True):
            tolerance = 1e-5 if dtype == jnp.float32 else 4e-2
            np.testing.assert_allclose(*(np.asarray(v, np.float64) for v in (a, b)), tolerance, tolerance)


def cross_entropy(x: Any, labels: Any) -> Any:
    found = jnp.take_along_axis(x, labels[:, None], -1)[:, 0]
    return (jax.scipy.special.logsumexp(x, -1) - found).sum(), found


HALVES_TOO = (jnp.float32, jnp.bfloat16, jnp.float16)


@pytest.mark.parametrize(
    ("width", "dtype"), one_tuple_in(3, itertools.product((2, 3, 8, 10, 17, 32, 33), HALVES_TOO))
)
def test_labels_look_up_what_jax_does(width: int, dtype: Any) -> None:
    """Negative ones, too, and those of no class."""
    numbers = np.random.default_rng(width)
    x = jnp.asarray(numbers.standard_normal((517, width)), dtype)
    labels = numbers.integers(-width, width, 517).astype(np.int32)
    for given in (labels, np.where(np.arange(517) % 9 == 4, width + 1, labels), labels.astype(np.int8)):
        found, theirs = (
            f(x, given) for f in (jstitch.jit(cross_entropy, options=OPTIONS), jax.jit(cross_entropy))
        )
        for a, b in zip(found, theirs, strict=True):
            tolerance = 1e-5 if dtype == jnp.float32 else 4e-2
            np.testing.assert_allclose(*(np.asarray(v, np.float64) for v in (a, b)), tolerance, tolerance)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("width", [3, 8])
def test_nothing_is_written_beside_short_rows(dtype: str, width: int) -> None:
    def f(x: Any) -> Any:
        return (jax.nn.softmax(x) * 100).astype(dtype)

    for kernel in kernels(f, shape(100, width)):
        assert list(overruns(kernel)) == []


def test_vectors_are_of_rows() -> None:
    (kernel,) = kernels(softmax, shape(4096, 3))
    text = assembly(emit(kernel).source)
    assert "ps\t" in text, "nothing is computed in vectors"
    assert text.count("divps") > 0


CHANNELS = """
def phase0(bufs, arena, program):
    for r in range({lo}, {hi}):
        for i in range(0, {turns}):
            store_f32(y, {place}, load_f32(x, r * 3 + i, 1), 2)
"""


@pytest.mark.parametrize(
    ("turns", "place", "lo", "hi", "expected"),
    [
        (3, "r * 3 + i", "lo", "hi", True),
        (3, "i", "lo", "hi", True),
        (SHORT, "r * 8 + i", "lo", "hi", True),
        (SHORT, "i", "lo", "hi", False),
        (SHORT + 1, "r * 9 + i", "lo", "hi", False),
        (1, "r", "lo", "hi", False),
        (GROUP, "r * 3 + i", "0", str(LONG), True),
        (GROUP, "r * 3 + i", "0", str(LONG - 1), False),
        (GROUP + 1, "r * 3 + i", "0", str(LONG), False),
        (3, "quotient(r, 5)", "lo", "hi", False),
    ],
)
def test_which_loops_are_written_out(turns: int, place: str, lo: str, hi: str, expected: bool) -> None:
    text = CHANNELS.format(turns=turns, place=place, lo=lo, hi=hi)
    (function,) = ast.parse(text).body
    assert isinstance(function, ast.FunctionDef)
    assert len(written_out(function)) == expected


def by_channel(x: Any, w: Any) -> Any:
    return jnp.tanh((x - w) * w + x)


@pytest.mark.parametrize("channels", [2, 3, 5, 8])
def test_channels_are_in_vectors_of_rows(channels: int) -> None:
    (kernel,) = kernels(by_channel, shape(4096, channels), shape(channels))
    assert assembly(emit(kernel).source).count("divps") > 0
    numbers = np.random.default_rng(channels)
    x, w = numbers.standard_normal((1003, channels)), numbers.standard_normal(channels)
    args = [a.astype(np.float32) for a in (x, w)]
    found, theirs = (f(*args) for f in (jstitch.jit(by_channel, options=OPTIONS), jax.jit(by_channel)))
    np.testing.assert_allclose(found, theirs, 1e-5, 1e-6)
    assert list(overruns(kernel)) == []
