"""Every dtype and odd shape through a stitched call, forward and, where it has one, backward."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from transform_support import assert_same, assert_stitched, jit, stitch

import jstitch

TOLERANCE = {"bfloat16": 2e-2, "float16": 2e-3, "float32": 2e-5, "float64": 1e-12}
INTEGERS = ("int8", "int16", "int32", "uint8", "uint16", "uint32")


def _data(dtype: str, shape: tuple[int, ...] = (3, 8)) -> jax.Array:
    return jnp.asarray(np.random.default_rng(0).uniform(-2, 2, shape), dtype)


def norm(x: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred * lax.rsqrt((centred * centred).mean(-1, keepdims=True) + 1e-3)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_floats(dtype: str) -> None:
    x = _data(dtype)
    since = jstitch.record_count()
    tolerance = TOLERANCE[dtype]
    assert_same(jit(norm)(x), jax.jit(norm)(x), rtol=tolerance, atol=tolerance)

    def gradient(f: Any) -> Any:
        return jax.jit(jax.grad(lambda y: jnp.sum(f(y) * jnp.cos(y))))

    assert_same(gradient(stitch(norm))(x), gradient(norm)(x), rtol=4 * tolerance, atol=4 * tolerance)
    assert_stitched(since, backward=True)


def test_double_precision() -> None:
    with jax.enable_x64(True):
        x = _data("float64")
        assert x.dtype == jnp.float64
        f, plain = stitch(norm), norm
        assert_same(jax.jit(f)(x), jax.jit(plain)(x), rtol=1e-12, atol=1e-12)
        found = jax.jit(jax.grad(lambda y: jnp.sum(f(y) * y)))(x)
        expected = jax.jit(jax.grad(lambda y: jnp.sum(plain(y) * y)))(x)
        assert_same(found, expected, rtol=1e-11, atol=1e-11)
        assert_same(jit(lambda n: n * 3 + 2**40)(np.int64(5)), jnp.int64(15 + 2**40))
    # The same function outside the context: traced again, not taken from the cache.
    assert jax.jit(f)(_data("float32")).dtype == jnp.float32


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers(dtype: str) -> None:
    x = jnp.arange(24).reshape(3, 8).astype(dtype) * 11

    def f(x: Any) -> Any:
        return (x * 7 - 3) ^ (x << 1), x.max(0), (x % 5).sum(), x > 40

    since = jstitch.record_count()
    assert_same(jit(f)(x), jax.jit(f)(x))
    assert_stitched(since)


def test_booleans() -> None:
    x = _data("float32") > 0

    def f(x: Any) -> Any:
        return ~x | x[::-1], x.any(0), x.all(), jnp.where(x, 1.0, -1.0)

    assert_same(jit(f)(x), jax.jit(f)(x))


def test_complex_is_left_to_xla_in_a_mixed_call() -> None:
    x = _data("float32")

    def f(x: Any) -> Any:
        z = lax.complex(jnp.tanh(x), x)
        return z * jnp.conj(z), jnp.exp(jnp.abs(z) + x)

    assert_same(jit(f)(x), jax.jit(f)(x))
    found = jax.grad(lambda x: jnp.sum(jnp.real(stitch(f)(x)[0])))(x)
    assert_same(found, jax.grad(lambda x: jnp.sum(jnp.real(f(x)[0])))(x))


@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 0), (0, 4), (1, 1, 1), (2, 3, 5, 7)])
def test_shapes(shape: tuple[int, ...]) -> None:
    x = _data("float32", shape)

    def f(x: Any) -> Any:
        return jnp.exp(-x) * 2, x.sum(), jnp.broadcast_to(x, (2, *x.shape)).sum(0)

    assert_same(jit(f)(x), jax.jit(f)(x))
    found = jax.jit(jax.grad(lambda x: stitch(f)(x)[0].sum()))(x)
    assert_same(found, jax.jit(jax.grad(lambda x: f(x)[0].sum()))(x))


def test_python_scalars_stay_weakly_typed() -> None:
    def f(a: Any, b: Any, c: Any) -> Any:
        return a, a * 2, b + 1, c, jnp.ones((), "bfloat16") * a

    for wrap in (jit, stitch):
        assert_same(wrap(f)(1.5, 2, True), jax.jit(f)(1.5, 2, True))


def test_none_and_empty_trees() -> None:
    assert jit(lambda: None)() is None
    assert jit(lambda x: ())(1.0) == ()

    def f(x: Any, y: Any) -> Any:
        return {"a": x, "b": [y["k"] * 2]}

    assert_same(jit(f)(None, {"k": 2.0}), jax.jit(f)(None, {"k": 2.0}))
    assert_same(jit(lambda: jnp.arange(3) * 2)(), jnp.arange(3) * 2)


def test_integer_inputs_have_float0_tangents() -> None:
    x, n = _data("float32"), jnp.arange(8)

    def f(x: Any, n: Any) -> Any:
        return jnp.tanh(x) * n, n * 2

    def both(f: Any) -> Any:
        tangents = (x, np.zeros(n.shape, jax.dtypes.float0))
        out, out_tangents = jax.jvp(f, (x, n), tangents)
        _, pull = jax.vjp(f, x, n)
        cotangents = pull((jnp.ones((3, 8)), np.zeros(8, jax.dtypes.float0)))
        return out, out_tangents, cotangents

    since = jstitch.record_count()
    found, expected = both(stitch(f)), both(f)
    assert found[1][1].dtype == found[2][1].dtype == jax.dtypes.float0
    assert_same((found[0], found[1][0], found[2][0]), (expected[0], expected[1][0], expected[2][0]))
    gradient = jax.grad(lambda x, n: stitch(f)(x, n)[0].sum(), (0, 1), allow_int=True)(x, n)
    assert gradient[1].dtype == jax.dtypes.float0
    assert_stitched(since, backward=True)


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_random_keys_in_and_out(impl: str) -> None:
    def f(key: Any, x: Any) -> Any:
        first, second = jax.random.split(key)
        return second, jax.random.normal(first, x.shape) * x, jax.random.split(second, 3)

    key, x = jax.random.key(7, impl=impl), _data("float32")
    since = jstitch.record_count()
    assert_same(jit(f)(key, x), jax.jit(f)(key, x))
    keys = jax.random.split(key, 4)
    if impl == "threefry2x32":  # rbg under vmap draws other numbers by design
        mapped = jax.jit(jax.vmap(stitch(f), (0, None)))(keys, x)
        assert_same(mapped, jax.jit(jax.vmap(f, (0, None)))(keys, x))
    found = jax.jit(jax.grad(lambda x: stitch(f)(key, x)[1].sum()))(x)
    assert_same(found, jax.jit(jax.grad(lambda x: f(key, x)[1].sum()))(x))
    assert_stitched(since, backward=True)


def test_old_style_keys_in_and_out() -> None:
    def f(key: Any, x: Any) -> Any:
        key, used = jax.random.split(key)
        keep = jax.random.bernoulli(used, 0.5, x.shape)
        return key, jnp.where(keep, x * 2, 0)

    key, x = jax.random.PRNGKey(7), _data("float32")
    assert_same(jit(f)(key, x), jax.jit(f)(key, x))
    found = jax.jit(jax.value_and_grad(lambda x: stitch(f)(key, x)[1].sum()))(x)
    assert_same(found, jax.jit(jax.value_and_grad(lambda x: f(key, x)[1].sum()))(x))
