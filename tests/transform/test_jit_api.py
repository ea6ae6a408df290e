"""`jstitch.jit` takes what `jax.jit` takes and behaves like it."""

from __future__ import annotations

import functools
import gc
import inspect
import threading
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from transform_support import EVERYTHING, assert_same, assert_stitched, jit, stitch

import jstitch

X = np.arange(24, dtype=np.float32).reshape(4, 6) / 7


def scale(x: Any, axis: int = 0, *, mode: str = "sum", factor: Any = 2.0) -> Any:
    """Documented."""
    total = x.sum(axis, keepdims=True) if mode == "sum" else x.max(axis, keepdims=True)
    return jnp.exp(-x / (total + 1)) * factor


STATIC: list[dict[str, Any]] = [
    {"static_argnums": 1, "static_argnames": "mode"},
    {"static_argnums": (1,), "static_argnames": ("mode",)},
    {"static_argnames": ("axis", "mode")},
    {"static_argnums": -1, "static_argnames": "mode"},
]


@pytest.mark.parametrize("static", STATIC, ids=str)
def test_static_arguments(static: dict[str, Any]) -> None:
    since = jstitch.record_count()
    f = jit(scale, **static)
    for axis, mode in ((0, "sum"), (1, "sum"), (1, "max")):
        assert_same(f(X, axis, mode=mode), scale(X, axis, mode=mode))
    with jax.no_tracing():
        f(X, 1, mode="max")
    assert_stitched(since)


def test_static_arguments_are_compared_by_equality() -> None:
    traces = []

    class Config:
        def __init__(self, power: int) -> None:
            self.power = power

        def __hash__(self) -> int:
            return hash(self.power)

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Config) and self.power == other.power

    @jstitch.jit(static_argnums=0)
    def f(config: Config, x: Any) -> Any:
        traces.append(config.power)
        return x**config.power

    assert_same(f(Config(2), X), jnp.asarray(X) ** 2)
    f(Config(2), X)
    assert_same(f(Config(3), X), jnp.asarray(X) ** 3)
    assert traces == [2, 3]


def test_unhashable_static_argument_fails_as_in_jax() -> None:
    for api in (jax.jit, jstitch.jit):
        with pytest.raises(ValueError, match="Non-hashable static arguments"):
            api(lambda x, s: x, static_argnums=1)(X, [1])


def test_keyword_arguments_and_pytrees() -> None:
    def f(tree: Any, *rest: Any, bias: Any, **more: Any) -> Any:
        return {"a": [jnp.tanh(tree["x"]) + bias, None, *rest], "b": (more["k"] * 2, ())}

    args = ({"x": X, "skip": None}, 1, 2.5)
    kwargs = {"bias": X, "k": np.int8(3)}
    assert_same(jit(f)(*args, **kwargs), jax.jit(f)(*args, **kwargs))


def test_decorator_forms() -> None:
    @jstitch.jit
    def bare(x: Any) -> Any:
        return jnp.sin(x)

    @jstitch.jit(options=EVERYTHING)
    def with_options(x: Any) -> Any:
        return jnp.sin(x)

    @functools.partial(jstitch.jit, static_argnames="n")
    def partial(x: Any, n: int) -> Any:
        return jnp.sin(x) * n

    for out in (bare(X), with_options(X), partial(X, n=1)):
        assert_same(out, jnp.sin(X))


def test_methods_and_callable_objects() -> None:
    class Model:
        weight = 3.0

        @functools.partial(jstitch.jit, static_argnums=0)
        def decorated(self, x: Any) -> Any:
            return jnp.tanh(x) * self.weight

        def plain(self, x: Any) -> Any:
            return jnp.tanh(x) * self.weight

        def __call__(self, x: Any) -> Any:
            return jnp.tanh(x) * self.weight

    model = Model()
    expected = jnp.tanh(X) * 3
    for f in (model.decorated, jstitch.jit(model.plain), jstitch.jit(model), jit(functools.partial(model))):
        assert_same(f(X), expected)


def test_looks_like_the_function() -> None:
    f = jstitch.jit(scale, static_argnames=("axis", "mode"))
    assert f.__wrapped__ is scale
    assert (f.__name__, f.__doc__, f.__module__) == ("scale", "Documented.", __name__)
    assert inspect.signature(f) == inspect.signature(scale)
    assert type(f) is type(jax.jit(scale))
    assert inspect.signature(jstitch.stitch(scale)) == inspect.signature(scale)
    assert "scale" in f.lower(X, 0, mode="sum").as_text()


def test_stages() -> None:
    f = jit(scale, static_argnames=("axis", "mode"))
    reference = jax.jit(scale, static_argnames=("axis", "mode"))
    expected = reference(X, 1, mode="sum")
    assert f.eval_shape(X, 1, mode="sum") == reference.eval_shape(X, 1, mode="sum")
    assert f.trace(X, 1, mode="sum").out_info == reference.trace(X, 1, mode="sum").out_info
    since = jstitch.record_count()
    compiled = f.trace(jax.ShapeDtypeStruct(X.shape, X.dtype), 1, mode="sum").lower().compile()
    assert_same(compiled(X), expected)
    assert_same(f.lower(X, 1, mode="sum").compile()(X), expected)
    assert compiled.in_tree == reference.lower(X, 1, mode="sum").compile().in_tree
    assert_stitched(since)


def test_clear_cache_traces_again() -> None:
    traces = []

    @jstitch.jit
    def f(x: Any) -> Any:
        traces.append(0)
        return x + 1

    for _ in range(3):
        f(X)
    assert len(traces) == 1
    f.clear_cache()
    f(X)
    assert len(traces) == 2


def test_equal_calls_share_one_lowering() -> None:
    f = stitch(lambda x: jnp.tanh(x) * 2)
    since = jstitch.record_count()
    for _ in range(3):
        f(X)
    assert len(jstitch.last_report(since)) == 1
    gradient = jax.grad(lambda x: f(x).sum())
    for _ in range(3):
        gradient(X)
    assert len(jstitch.last_report(since)) == 3


@pytest.mark.parametrize(
    "donate", [{"donate_argnums": 0}, {"donate_argnames": "p"}, {"donate_argnums": (0, 1)}]
)
@pytest.mark.filterwarnings("ignore:Some donated buffers were not usable")
def test_donation(donate: dict[str, Any]) -> None:
    def step(p: Any, g: Any) -> Any:
        return jax.tree.map(lambda a, b: a - 0.1 * b, p, g), p["a"].sum()

    p = {"a": jnp.ones((64, 64)), "b": jnp.arange(4096.0)}
    g = jax.tree.map(jnp.cos, p)
    expected = step(p, g)
    since = jstitch.record_count()
    found = jit(step, **donate)(p, g)
    assert_same(found, expected)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(p))
    assert_stitched(since)


def test_unused_arguments_and_forwarded_results() -> None:
    def f(x: Any, unused: Any, y: Any) -> Any:
        return y, x * 2, x * 2, y

    compiled = jit(f).lower(X, X, X + 1).compile()
    assert len(compiled.input_shardings[0]) == 3
    assert_same(jit(f)(X, X, X + 1), jax.jit(f)(X, X, X + 1))
    assert "tensor<5xf32>" not in jit(f).lower(X, np.ones(5, np.float32), X).as_text()
    assert "tensor<5xf32>" in jit(f, keep_unused=True).lower(X, np.ones(5, np.float32), X).as_text()


def test_device_and_shardings() -> None:
    device = jax.devices()[2]
    sharding = jax.sharding.SingleDeviceSharding(device)
    found = jit(lambda x: jnp.exp(x), in_shardings=sharding, out_shardings=sharding)(X)
    assert found.devices() == {device}
    assert_same(np.asarray(found), np.asarray(jnp.exp(X)))
    assert jit(jnp.exp)(jax.device_put(X, device)).devices() == {device}


def test_inline_and_nesting() -> None:
    inner = jit(lambda x: jnp.sin(x), inline=True)
    outer = jit(lambda x: inner(x) + jit(jnp.cos)(x))
    assert_same(outer(X), jnp.sin(X) + jnp.cos(X))


def test_closed_over_arrays_and_tracers() -> None:
    big = jnp.cos(jnp.arange(24.0).reshape(4, 6))

    def outer(y: Any) -> Any:
        return stitch(lambda x: jnp.tanh(x * y) + big)(X).sum()

    def plain(y: Any) -> Any:
        return (jnp.tanh(X * y) + big).sum()

    since = jstitch.record_count()
    assert_same(jax.grad(outer)(2.0), jax.grad(plain)(2.0))
    assert_same(jax.vmap(outer)(X[0]), jax.vmap(plain)(X[0]))
    assert_same(jax.jit(jax.grad(outer))(2.0), jax.grad(plain)(2.0))
    assert_stitched(since, backward=True)


def test_disable_jit_runs_python() -> None:
    seen = []
    with jax.disable_jit():
        jstitch.jit(lambda x: seen.append(float(x)) or x)(1.5)
        jstitch.stitch(lambda x: seen.append(float(x)) or x)(2.5)
    assert seen == [1.5, 2.5]


def test_mutable_references_are_left_to_jax() -> None:
    ref = jax.new_ref(jnp.zeros(3))

    @jstitch.jit
    def f(box: Any, x: Any) -> Any:
        box[...] += x
        return box[...] * 2

    assert_same(f(ref, jnp.ones(3)), jnp.full(3, 2.0, jnp.float32))
    assert_same(ref[...], jnp.ones(3))


def test_two_threads() -> None:
    functions = [jit(lambda x, k=k: jnp.tanh(x + k)) for k in range(2)]
    wrong: list[int] = []

    def run(k: int) -> None:
        for _ in range(200):
            if not np.allclose(functions[k](X), np.tanh(X + k), rtol=1e-5):
                wrong.append(k)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_functions_are_freed() -> None:
    class Weights:
        pass

    def make() -> weakref.ref[Weights]:
        weights = Weights()
        f = jstitch.jit(lambda x: jnp.tanh(x) * len(vars(weights)))
        f(X)
        return weakref.ref(weights)

    ref = make()
    gc.collect()
    assert ref() is None
