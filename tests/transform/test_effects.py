"""Effects inside stitched calls: left to XLA, in order, under every transformation JAX allows."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import io_callback
from transform_support import assert_same, assert_stitched, jit, stitch

import jstitch

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def test_debug_print_ordered(capfd: pytest.CaptureFixture[str]) -> None:
    @jit
    def f(x: Any) -> Any:
        jax.debug.print("first {}", x.sum(), ordered=True)
        y = jnp.tanh(x) * 2
        jax.debug.print("second {}", (y > 0).sum(), ordered=True)
        return y

    since = jstitch.record_count()
    assert_same(f(X), jnp.tanh(X) * 2)
    jax.effects_barrier()
    assert capfd.readouterr().out.split() == ["first", "15.0", "second", "5"]
    assert_stitched(since)


def test_debug_print_unordered_and_transformed(capfd: pytest.CaptureFixture[str]) -> None:
    def f(x: Any) -> Any:
        jax.debug.print("saw {}", x.sum())
        return jnp.exp(-x).sum()

    since = jstitch.record_count()
    assert_same(jax.jit(jax.grad(stitch(f)))(X), -jnp.exp(-X))
    assert_same(jax.vmap(stitch(f))(X), jnp.exp(-X).sum(1))
    jax.effects_barrier()
    assert sorted(capfd.readouterr().out.split()) == sorted("saw 15.0 saw 3.0 saw 12.0".split())
    assert_stitched(since)


def test_dead_results_keep_their_effects(capfd: pytest.CaptureFixture[str]) -> None:
    @jax.jit
    def f(x: Any) -> Any:
        stitch(lambda y: jax.debug.print("alive {}", y.sum()) or jnp.sin(y))(x)
        return x * 1.5

    assert_same(f(X), X * np.float32(1.5))
    jax.effects_barrier()
    assert capfd.readouterr().out.split() == ["alive", "15.0"]


def test_io_callback_ordered_with_results() -> None:
    seen: list[float] = []

    def count(v: Any) -> Any:
        seen.append(float(v))
        return np.float32(len(seen))

    def f(x: Any) -> Any:
        a = io_callback(count, jax.ShapeDtypeStruct((), "float32"), x.sum(), ordered=True)
        b = io_callback(count, jax.ShapeDtypeStruct((), "float32"), x.max(), ordered=True)
        return jnp.tanh(x) * a + b

    since = jstitch.record_count()
    inner = stitch(f)
    found = jax.jit(lambda x: inner(inner(x)))(X)
    jax.effects_barrier()
    first = np.tanh(X) * 1 + 2
    assert_same(found, jnp.asarray(np.tanh(first) * 3 + 4))
    assert seen[:2] == [15.0, 5.0]
    np.testing.assert_allclose(seen[2:], [first.sum(), first.max()], rtol=1e-6)
    assert_stitched(since)


def test_ordered_effects_in_loops_inside_and_outside() -> None:
    seen: list[int] = []

    def log(i: Any) -> None:
        io_callback(lambda v: seen.append(int(v)), None, i, ordered=True)

    def inside(x: Any) -> Any:
        return lax.fori_loop(0, 3, lambda i, y: (log(i), jnp.sin(y))[1], x)

    outside = stitch(lambda i, y: (log(i + 10), jnp.cos(y) * 2)[1])

    @jax.jit
    def f(x: Any) -> Any:
        return lax.fori_loop(0, 3, outside, stitch(inside)(x))

    f(X)
    jax.effects_barrier()
    assert seen == [0, 1, 2, 10, 11, 12]


def test_unordered_io_callback() -> None:
    seen: list[float] = []
    f = jit(lambda x: (io_callback(lambda v: seen.append(float(v)), None, x.sum()), jnp.exp(x))[1])
    f(X)
    jax.effects_barrier()
    assert seen == [15.0]


def test_io_callback_is_not_differentiable_as_in_jax() -> None:
    def f(x: Any) -> Any:
        return io_callback(np.sin, jax.ShapeDtypeStruct((), "float32"), x) * 2

    for g in (f, stitch(f)):
        with pytest.raises(ValueError, match="do not support JVP"):
            jax.grad(g)(1.0)


def test_pure_callback() -> None:
    def f(x: Any) -> Any:
        host = jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x, vmap_method="sequential")
        return jnp.tanh(host) + x

    assert_same(jit(f)(X), jnp.tanh(jnp.sin(X)) + X)
    assert_same(jax.vmap(stitch(f))(X), jnp.tanh(jnp.sin(X)) + X)
