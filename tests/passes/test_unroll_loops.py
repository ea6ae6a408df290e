"""Short loops become straight-line code with the same results; others stay; random keys fuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jstitch
from jstitch.frontend.importer import import_module
from jstitch.frontend.mlir import parse_module
from jstitch.ir.graph import Graph
from jstitch.ir.interpret import interpret
from jstitch.ir.verify import check
from jstitch.passes.fuse.unroll_loops import MAX_OPS, MAX_TRIPS, unroll_loops
from jstitch.passes.pipeline import run
from jstitch.runtime.report import last_report, record_count
from tests.contexts import CPU, CPU_PROFILE, H200, on

X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
KEY = np.array([3, 42], np.uint32)
OPTIONS = jstitch.CompileOptions(tune="off", strict=True, verify=True)
Loop = Callable[..., Any]


def imported(f: Loop, *args: Any) -> Graph:
    return import_module(parse_module(jax.jit(f).lower(*args).as_text()))


def loops(graph: Graph) -> int:
    return sum(op.name == "stablehlo.while" for op in graph.walk())


def assert_unrolled(f: Loop, *args: Any, left: int = 0) -> Graph:
    """`left` loops stay, and every bit of the results with them."""
    before = imported(f, *args)
    after = check(unroll_loops(before, CPU))
    assert loops(after) == left < loops(before) or loops(after) == left == loops(before)
    for a, b in zip(interpret(before, args), interpret(after, args), strict=True):
        np.testing.assert_array_equal(a, b)
    return after


def fori(low: int, high: int) -> Loop:
    return lambda x: lax.fori_loop(low, high, lambda i, y: y * 0.5 + i, x)


@pytest.mark.parametrize("trips", [0, 1, 5, MAX_TRIPS])
def test_short_loops_are_written_out(trips: int) -> None:
    graph = assert_unrolled(fori(2, 2 + trips), X)
    assert sum(op.name == "stablehlo.multiply" for op in graph.walk()) == trips


def test_long_loops_stay() -> None:
    assert_unrolled(fori(0, MAX_TRIPS + 1), X, left=1)


def test_big_bodies_stay() -> None:
    def body(i: Any, y: Any) -> Any:
        for n in range(MAX_OPS // 4):
            y = jnp.sin(y) * np.float32(n + 0.5)
        return y

    assert_unrolled(lambda x: lax.fori_loop(0, 4, body, x), X, left=1)


def counter(start: int, step: Callable[[Any], Any], test: Callable[[Any], Any]) -> Loop:
    def f(x: Any) -> Any:
        return lax.while_loop(lambda c: test(c[0]), lambda c: (step(c[0]), c[1] * 0.5 + 1), (start, x))

    return f


@pytest.mark.parametrize(
    ("step", "test"),
    [
        (lambda i: i - 3, lambda i: i > -4),
        (lambda i: i * 2 + 1, lambda i: i < 40),
        (lambda i: i + 1, lambda i: i != 7),
        (lambda i: i + 2, lambda i: (i < 9) & (i >= 0)),
    ],
    ids=["down", "power", "until", "two bounds"],
)
def test_any_counter_that_constants_decide(step: Callable[[Any], Any], test: Callable[[Any], Any]) -> None:
    assert_unrolled(counter(3, step, test), X)


def test_a_counter_that_never_ends_or_depends_on_data_stays() -> None:
    before = imported(counter(3, lambda i: i * 1, lambda i: i < 4), X)
    assert unroll_loops(before, CPU) is before

    def f(x: Any, n: Any) -> Any:
        return lax.fori_loop(0, n, lambda i, y: y * 0.5, x)

    assert_unrolled(f, X, np.int32(3), left=1)


def test_bodies_with_reductions_and_contractions_stay() -> None:
    assert_unrolled(lambda x: lax.fori_loop(0, 3, lambda i, y: y - y.sum(1, keepdims=True), x), X, left=1)
    assert_unrolled(lambda x: lax.fori_loop(0, 3, lambda i, y: y @ jnp.eye(4, dtype=y.dtype), x), X, left=1)


def test_captures_swaps_and_nesting() -> None:
    def f(x: Any) -> Any:
        outer = jnp.exp(x)

        def body(i: Any, carry: Any) -> Any:
            a, b = carry
            inner = lax.fori_loop(0, 2, lambda j, z: z + outer * j + i, a)
            return b, inner  # the carried values change places

        return lax.fori_loop(0, 3, body, (x, outer))

    assert_unrolled(f, X)


def test_a_loop_around_one_that_stays() -> None:
    def long(y: Any) -> Any:
        return lax.fori_loop(0, 100, lambda i, z: z * 0.9, y)

    def f(x: Any) -> Any:
        return lax.fori_loop(0, 3, lambda i, y: long(lax.fori_loop(0, 2, lambda j, z: z + 1, y)), x)

    after = unroll_loops(imported(f, X), CPU)
    assert loops(after) == 2


def bits(key: Any) -> Any:
    return jax.random.bits(key, (5, 7))


def split(key: Any) -> Any:
    keys = jax.random.split(key, 3)
    return jax.random.key_data(keys) if jnp.issubdtype(keys.dtype, jax.dtypes.prng_key) else keys


def dropout(key: Any) -> Any:
    return jnp.where(jax.random.bernoulli(key, 0.8, X.shape), X / 0.8, 0)


def uniform(key: Any) -> Any:
    return jax.random.uniform(key, (33,), minval=-1.0, maxval=3.0)


@pytest.mark.parametrize("f", [bits, split, dropout, uniform])
@pytest.mark.parametrize("new", [False, True], ids=["uint32", "key"])
def test_random_bits_are_one_kernel_with_every_bit(f: Loop, new: bool) -> None:
    key = jax.random.wrap_key_data(jnp.asarray(KEY)) if new else KEY
    since = record_count()
    found = jstitch.jit(lambda k: f(k), options=OPTIONS)(key)
    np.testing.assert_array_equal(np.asarray(found), np.asarray(jax.jit(f)(key)))
    assert [r.kernels for r in last_report(since)] == [1]


def test_normal_and_fold_in_have_no_loop_left() -> None:
    graph = run(imported(lambda key: jax.random.normal(jax.random.fold_in(key, 5), (4, 3)), KEY), CPU)
    assert loops(graph) == 0
    (found,) = interpret(graph, [KEY])
    expected = jax.random.normal(jax.random.fold_in(KEY, 5), (4, 3))
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6)


def test_short_scans_that_are_kernels_stay() -> None:
    """On a CPU; what their turns leave in stacks would be written there turn by turn."""
    xs = np.linspace(-1, 1, 5 * 16 * 8, dtype=np.float32).reshape(5, 16, 8)

    def f(xs: Any) -> Any:
        return lax.scan(lambda c, x: (c * 0.5 + x, jnp.tanh(c)), jnp.zeros((16, 8)), xs)

    before = imported(f, xs)
    assert loops(unroll_loops(before, CPU)) == loops(before) == 1
    assert loops(unroll_loops(before, H200)) == 0
    assert loops(unroll_loops(before, on(CPU_PROFILE, without=("recurrences",)))) == 0
    for want, found in zip(jax.jit(f)(xs), jstitch.jit(f, options=OPTIONS)(xs), strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-6, atol=1e-6)
