"""Bad input ends in the error that `jax.jit` gives, never in a wrong result."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from transform_support import assert_same, jit, stitch

import jstitch

X = np.ones((2, 3), np.float32)


def _error(call: Callable[[], Any]) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the types of two calls are compared
        call()
    return caught.value


def _same_error(call: Callable[[Any], Any]) -> Exception:
    """`call` gets jax.jit or ours, and must fail alike."""
    ours, jaxs = _error(lambda: call(jit)), _error(lambda: call(jax.jit))
    assert type(ours) is type(jaxs)
    return ours


def add(x: Any, y: Any) -> Any:
    return jnp.tanh(x) + y


@pytest.mark.parametrize(
    "args",
    [
        (X, X.astype(np.int32)),
        (X, np.ones((3, 2), np.float32)),
        (X,),
        ({"x": X}, X),
        (X, "text"),
    ],
    ids=["dtype", "shape", "missing", "tree", "not an array"],
)
def test_wrong_arguments_to_a_compiled_function(args: Any) -> None:
    _same_error(lambda api: api(add).lower(X, X).compile()(*args))


@pytest.mark.parametrize(
    "bad", ["text", object(), lambda x: x, np.array(["a"]), 1 << 80], ids=lambda x: type(x).__name__
)
def test_arguments_that_are_not_arrays(bad: Any) -> None:
    error = _same_error(lambda api: api(add)(X, bad))
    if isinstance(error, TypeError) and not callable(bad):
        assert "argument" in str(error)
    eager = _error(lambda: stitch(add)(X, bad))
    assert type(eager) is type(error)


def test_arguments_that_are_no_arrays() -> None:
    """JAX's error names the function."""
    for api in (jax.jit, jstitch.jit):
        assert repr(add) in str(_error(lambda api=api: api(add)("text", X)))


def test_results_that_are_not_arrays() -> None:
    _same_error(lambda api: api(lambda x: "text")(X))
    _same_error(lambda api: api(lambda x: object())(X))


def test_shape_errors_while_tracing() -> None:
    _same_error(lambda api: api(add)(X, np.ones(4, np.float32)))


def test_wrong_call_signature() -> None:
    _same_error(lambda api: api(add)(X))
    _same_error(lambda api: api(add)(X, X, z=1))
    _same_error(lambda api: api(add, static_argnums=5)(X, X))
    _same_error(lambda api: api(add, donate_argnames="nobody")(X, X))
    _same_error(lambda api: api(add, no_such_option=1)(X, X))


def test_jitting_what_is_not_a_function() -> None:
    assert type(_error(lambda: jstitch.jit("text"))) is type(_error(lambda: jax.jit("text")))


def test_values_where_tracers_are() -> None:
    _same_error(lambda api: api(lambda x: x if x.sum() > 0 else -x)(X))
    _same_error(lambda api: api(lambda x: float(x[0, 0]))(X))
    _same_error(lambda api: api(lambda x: np.asarray(x))(X))


@pytest.fixture
def few_objects() -> Iterator[None]:
    """Who holds a leaked tracer is searched among all objects: those from before the test are set apart."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("few_objects")
def test_leaked_tracers_are_found() -> None:
    def leak(api: Any) -> None:
        kept: list[Any] = []
        api(lambda x: kept.append(x) or x + 1)(X)
        jnp.sin(kept[0])

    assert isinstance(_same_error(leak), jax.errors.UnexpectedTracerError)

    def check(api: Any) -> None:
        kept: list[Any] = []
        with jax.checking_leaks():
            api(lambda x: kept.append(x * 2) or x + 1)(X)

    assert "Leaked" in str(_same_error(check))


def test_leak_checking_finds_none_in_good_functions() -> None:
    with jax.checking_leaks():
        assert_same(jit(add)(X, X), add(X, X))
        assert_same(jax.grad(lambda x: stitch(add)(x, X).sum())(X), 1 - jnp.tanh(X) ** 2)
        mapped = jax.vmap(lambda y: stitch(lambda x: jnp.sin(x) * y)(X))(X[0])
        assert_same(mapped, jnp.sin(X)[None] * X[0][:, None, None])


def test_donated_arrays_cannot_be_used_again() -> None:
    def use(api: Any) -> None:
        x = jnp.ones((8, 8))
        f = api(lambda x: x * 2 + 1, donate_argnums=0)
        f(x)
        f(x)

    assert "deleted" in str(_same_error(use)) or "donated" in str(_same_error(use))


def test_debug_nans() -> None:
    with jax.debug_nans(True):
        assert isinstance(_same_error(lambda api: api(lambda x: jnp.log(x - 2))(X)), FloatingPointError)
