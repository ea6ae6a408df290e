"""What interprets jaxprs, JAX's and other people's, sees a stitched call as it sees a call of `jax.jit`."""

from __future__ import annotations

import gc
import logging
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import checkify, jet, sparse
from jax.extend.core import jaxpr_as_fun
from transform_support import EVERYTHING, assert_same, assert_stitched

import jstitch

Function = Callable[..., Any]
X = np.linspace(-1.0, 2.0, 12, dtype=np.float32).reshape(3, 4)


def stitch(f: Function) -> Function:
    return jstitch.stitch(f, EVERYTHING)


def jit(f: Function, **settings: Any) -> Any:
    return jstitch.jit(f, options=EVERYTHING, **settings)


def logarithm(x: Any) -> Any:
    return jnp.log(x) * 2 + 1


def quotient(x: Any) -> Any:
    return 1 + jnp.tanh(x) / (x - x[0, 0])


def row(x: Any) -> Any:
    return jnp.exp(x)[jnp.argmax(x) * 3] * 2


def checked(x: Any) -> Any:
    checkify.check((x > 0).all(), "negative: {x}", x=x[0, 0])
    return jnp.sin(x) * 2


@pytest.mark.parametrize("inside", [stitch, jit, lambda f: jax.jit(stitch(f))], ids=["stitch", "jit", "both"])
@pytest.mark.parametrize(
    ("f", "errors"),
    [
        (logarithm, checkify.nan_checks),
        (quotient, checkify.float_checks),
        (row, checkify.index_checks),
        (checked, checkify.user_checks),
    ],
    ids=lambda arg: getattr(arg, "__name__", ""),
)
def test_checks_are_made(f: Function, errors: Any, inside: Callable[[Function], Function]) -> None:
    since = jstitch.record_count()
    error, found = jax.jit(checkify.checkify(inside(f), errors=errors))(X)
    expected, result = jax.jit(checkify.checkify(f, errors=errors))(X)
    assert error.get() is not None
    # What generated it: the op and its line, whoever called it.
    assert str(error.get()).splitlines()[0] == str(expected.get()).splitlines()[0]
    assert_same(found, result)
    assert_stitched(since)


def _double(ref: Any) -> None:
    ref[...] = jnp.tanh(ref[...]) * 2


def _argument(inside: Callable[[Function], Function]) -> Function:
    def f(x: Any) -> Any:
        ref = jax.new_ref(x)
        inside(_double)(ref)
        return ref[...]

    return f


def _closed_over(inside: Callable[[Function], Function]) -> Function:
    def f(x: Any) -> Any:
        ref = jax.new_ref(x)
        inside(lambda: _double(ref))()
        return ref[...] + 1

    return f


def _own(inside: Callable[[Function], Function]) -> Function:
    def f(x: Any) -> Any:
        ref = jax.new_ref(x)
        lax.fori_loop(0, 3, lambda i, _: _double(ref), None)
        return jax.freeze(ref) + 1

    return inside(f)


@pytest.mark.parametrize("inside", [stitch, jit], ids=["stitch", "jit"])
@pytest.mark.parametrize("program", [_argument, _closed_over, _own])
def test_references_are_discharged(program: Any, inside: Callable[[Function], Function]) -> None:
    since = jstitch.record_count()
    assert_same(jax.jit(program(inside))(X), jax.jit(program(jax.jit))(X))
    assert_stitched(since)


def test_an_array_that_is_changed_in_place() -> None:
    since = jstitch.record_count()
    ref = jax.new_ref(jnp.asarray(X))
    for _ in range(2):
        jit(_double)(ref)
    assert_same(ref[...], jnp.tanh(jnp.tanh(X) * 2) * 2)
    assert_stitched(since)


def test_taylor_series() -> None:
    series = [jnp.ones_like(X), jnp.cos(X)]
    f = stitch(lambda x: jnp.sin(x) * jnp.exp(x))
    since = jstitch.record_count()
    found = jax.jit(lambda x: jet.jet(f, (x,), (series,)))(X)
    assert_same(found, jax.jit(lambda x: jet.jet(lambda x: jnp.sin(x) * jnp.exp(x), (x,), (series,)))(X))
    assert_stitched(since)


def test_sparse_arrays() -> None:
    x = sparse.BCOO.fromdense(jnp.eye(4))
    found = jax.jit(sparse.sparsify(stitch(lambda x, y: (x * 3) @ y)))(x, X.T)
    np.testing.assert_allclose(found, 3 * X.T, rtol=1e-6)


def test_what_remat_drops_is_not_computed() -> None:
    """`optimize_remat` inside a branch: the forward pass alone does not run the rule's."""

    def program(inside: Callable[[Function], Function]) -> Function:
        @jax.custom_vjp
        def f(x: Any) -> Any:
            return jnp.sin(x)

        f.defvjp(lambda x: (jnp.sin(x) * 3, x), lambda x, g: (g * jnp.cos(x),), optimize_remat=True)
        return lambda x: lax.cond(x[0, 0] < 0, inside(f), jnp.cos, x)

    for transform in (lambda f: f, lambda f: jax.grad(lambda x: f(x).sum())):
        assert_same(jax.jit(transform(program(stitch)))(X), jax.jit(transform(program(jax.jit)))(X))


def test_a_nan_is_found_at_its_op() -> None:
    def message(f: Function) -> str:
        with pytest.raises(FloatingPointError) as caught:
            f(-1.0 - np.abs(X))
        return str(caught.value)

    with jax.debug_nans(True):
        expected = message(jax.jit(logarithm))
        assert "log" in expected
        assert message(jit(logarithm)) == expected
        assert message(stitch(logarithm)) == expected
        assert message(jax.jit(stitch(logarithm))) == expected


def test_evaluating_a_jaxpr_stitches_its_calls() -> None:
    jaxpr = jax.make_jaxpr(stitch(lambda x: jnp.sin(x) * 2))(X)
    since = jstitch.record_count()
    for _ in range(3):
        assert_same(jaxpr_as_fun(jaxpr)(X), [jnp.sin(X) * 2])
    [record] = jstitch.last_report(since)
    assert record.kernels == 1


@pytest.mark.parametrize("inside", [stitch, jit], ids=["stitch", "jit"])
def test_a_jaxpr_reads_as_of_jit(inside: Callable[[Function], Function]) -> None:
    def f(x: Any) -> Any:
        return logarithm(x), x

    for transform in (lambda f: f, jax.vmap, lambda f: lambda x: jax.vjp(f, x)[1](f(x))):
        found, expected = (str(jax.make_jaxpr(transform(jitted(f)))(X)) for jitted in (inside, jax.jit))
        assert found == expected


def test_a_function_is_traced_once_and_explained_once(caplog: pytest.LogCaptureFixture) -> None:
    calls = []

    def f(x: Any) -> Any:
        calls.append(x.shape)
        return x + 1

    def explained(jitted: Function) -> list[str]:
        caplog.clear()
        with jax.explain_cache_misses(True), caplog.at_level(logging.WARNING):
            for x in (X, X, X[:2]):
                jitted(x)
        return [text for text in caplog.messages if "MISS" in text]

    found = explained(jit(f))
    assert calls == [X.shape, X[:2].shape]
    assert len(found) == len(explained(jax.jit(f))) == 2


def test_an_object_knows_what_it_wraps() -> None:
    def f(x: Any, /, scale: float = 2.0) -> Any:
        """Scaled."""
        return x * scale

    f.tag = "mine"  # type: ignore[attr-defined]
    for ours in (jit(f, static_argnames="scale"), stitch(f)):
        theirs: Any = jax.jit(f, static_argnames="scale")
        names = ("__name__", "__qualname__", "__module__", "__doc__", "__annotations__", "tag", "__wrapped__")
        for name in names:
            assert getattr(ours, name) is getattr(theirs, name)


def test_what_is_jitted_already_is_jitted_anew() -> None:
    """With the settings of the outer `jit`, not those of the inner."""
    inner = jax.jit(lambda x, n=1: jnp.tanh(x) * n, static_argnames="n")
    x = jnp.asarray(X)
    assert_same(jit(inner, static_argnames="n", donate_argnums=0)(x, n=3), jnp.tanh(X) * 3)
    assert x.is_deleted()


class Model:
    def __init__(self) -> None:
        self.scale = 3.0

    def __call__(self, x: Any) -> Any:
        return jnp.tanh(x) * self.scale

    def method(self, x: Any) -> Any:
        return self(x)


@pytest.mark.parametrize("make", [jit, stitch], ids=["jit", "stitch"])
def test_equal_functions_live_for_themselves(make: Callable[[Function], Function]) -> None:
    """Bound methods are equal, and each is made when it is asked for."""
    model = Model()
    first = make(model.method)
    second, itself = make(model.method), make(model)
    del first
    gc.collect()
    for x in (X, X[:2]):
        assert_same(second(x), jnp.tanh(x) * 3.0)
        assert_same(itself(x), jnp.tanh(x) * 3.0)


def test_a_function_that_nobody_jits_any_more_is_forgotten() -> None:
    def f(x: Any) -> Any:
        return jnp.sin(x) * 2

    jax.vjp(stitch(f), X)[1](X)
    jit(f)(X)
    gone = weakref.ref(f)
    del f
    gc.collect()
    assert gone() is None


class Uncomparable:
    """Hashable; whether two are equal it does not say."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")


@pytest.mark.parametrize("argument", [Uncomparable, lambda n: [n], np.ones], ids=["eq", "list", "array"])
def test_static_arguments_fail_as_those_of_jit(argument: Callable[[int], Any]) -> None:
    def error(jitted: Function, number: int) -> type:
        def twice() -> None:
            jitted(X, argument(number))
            jitted(X, argument(number))

        with pytest.raises(Exception) as caught:  # noqa: PT011 - compared with JAX's own
            twice()
        return caught.type

    # Numbers of their own: JAX's caches compare what has the same hash, whoever's it is.
    ours, theirs = (make(lambda x, a: x + 1, static_argnums=1) for make in (jit, jax.jit))
    assert error(ours, 7001) is error(theirs, 7002)
