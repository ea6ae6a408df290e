"""Sums over rows of columns: a few rows in registers, in the loop over what is kept, on CPUs."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jstitch
from jstitch.codegen.kernel_ir import Load, Nest, Store
from tests.passes.test_follow_memory import kernel_of
from tests.passes.test_seams import nests

OPTIONS = jstitch.CompileOptions(tune="off", strict=True, verify=True)


def spread(shape: tuple[int, ...], over: tuple[int, ...]) -> list[Nest]:
    """Nests that sum the squares of an argument of this shape over the axes."""
    kernel = kernel_of(lambda x: jnp.square(x + 1).sum(over) * 2, np.ones(shape, np.float32))
    return [nest for nest in nests(kernel) if of_argument(nest)]


def of_argument(nest: Nest) -> list[Load]:
    loads = [i for i in nest.instructions if isinstance(i, Load) and i.buffer.name == "a0"]
    return [i for i in loads if i.depth == len(nest.loops)]


def updates(nest: Nest) -> list[Store]:
    """Stores to what the same turn has loaded."""
    loaded = {(i.buffer, i.offset) for i in nest.instructions if isinstance(i, Load)}
    return [i for i in nest.instructions if isinstance(i, Store) and (i.buffer, i.offset) in loaded]


@pytest.mark.parametrize(("shape", "over"), [((40, 11, 14), (1,)), ((40, 3, 5, 20), (1, 2))])
def test_few_rows_are_all_taken_at_once(shape: tuple[int, ...], over: tuple[int, ...]) -> None:
    (nest,) = spread(shape, over)
    assert len(of_argument(nest)) == np.prod([shape[d] for d in over])
    assert not updates(nest)  # and what they are added up in needs no zeros


def test_many_rows_are_taken_eight_at_a_time_and_the_rest_too() -> None:
    eight, rest = spread((40, 43, 50), (1,))
    assert [len(of_argument(nest)) for nest in (eight, rest)] == [8, 3]
    assert [len(updates(nest)) for nest in (eight, rest)] == [1, 1]


def test_rows_that_are_vectors_of_many_stay() -> None:
    """Three columns: LLVM makes vectors of sixteen rows."""
    (nest,) = spread((40, 43, 3), (1,))
    assert len(of_argument(nest)) == 1


def test_functions_leave_less_room() -> None:
    f = jax.nn.logsumexp
    kernel = kernel_of(lambda x: f(jnp.tanh(x) * 2, axis=1) * 2, np.ones((40, 32, 14), np.float32))
    assert max(len(of_argument(nest)) for nest in nests(kernel)) <= 16


def _drawn(seed: int) -> tuple[Callable[..., Any], Any, float]:
    """Reductions of middle axes, one after another or beside each other."""
    draw = Random(seed)
    shape = [draw.choice([1, 2, 3, 5, 8, 9, 13, 16, 17, 31, 40]) for _ in range(draw.randint(2, 4))]
    axes = tuple(sorted(draw.sample(range(len(shape) - 1), draw.randint(1, len(shape) - 1))))
    dtype = draw.choice(("float32", "float32", "bfloat16", "float16", "int32"))
    name = draw.choice(("norm", "softmax", "int8", "argmax", "both", "prod"))

    def f(x: Any) -> Any:
        if name == "norm":
            return (x - x.mean(axes, keepdims=True)) * jnp.square(x).sum(axes, keepdims=True)
        if name == "softmax":
            return jax.nn.softmax(x.astype(jnp.float32), axis=axes)
        if name == "int8":
            return jnp.abs(x).max(axes), (x > jnp.abs(x).max(axes, keepdims=True) * 0.5).astype(jnp.int8)
        if name == "argmax":
            return jnp.argmax(x, axes[0]), jnp.argmin(x * x, axes[-1])
        if name == "both":
            return x.max(axes), x.min(axes), (x * x).sum(axes[:1])
        return (x % 3).astype(x.dtype).prod(axes[:1])

    x = np.random.default_rng(seed).standard_normal(shape) * 4
    if name in ("norm", "softmax") and dtype != "int32":  # XLA:CPU loses some under maxima
        x[np.random.default_rng(seed).random(shape) < 0.002] = np.nan
    return f, jnp.asarray(x).astype(dtype), 2e-2 if "16" in dtype else 1e-4


def _agrees(seed: int) -> None:
    f, x, near = _drawn(seed)
    wanted, found = (jax.tree.leaves(g(x)) for g in (jax.jit(f), jstitch.jit(f, options=OPTIONS)))
    for want, got in zip(wanted, found, strict=True):
        scale = np.nanmax(np.abs(np.asarray(want, np.float64)), initial=0)
        np.testing.assert_allclose(
            np.asarray(got, np.float64), np.asarray(want, np.float64), rtol=near, atol=near * scale
        )


@pytest.mark.parametrize("seed", range(24))
def test_drawn_reductions(seed: int) -> None:
    _agrees(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 400))
def test_many_drawn_reductions(seed: int) -> None:
    _agrees(seed)


def test_pairs_keep_digits() -> None:
    """Many small numbers beside a large one, of which one addition after another would lose most."""
    x = np.full((64, 16, 24), -1.0, np.float32)
    x[:, 0] = -(2.0**24)
    found = jstitch.jit(lambda x: jnp.abs(x).sum(1) * 2, options=OPTIONS)(x)
    np.testing.assert_allclose(found, np.full((64, 24), 2 * (2.0**24 + 15)), rtol=1e-7)


def test_it_can_be_switched_off() -> None:
    x = np.ones((40, 11, 14), np.float32)

    def f(x: Any) -> Any:
        return jnp.square(x + 1).sum(1) * 2

    on, off = (jstitch.jit(f, options=OPTIONS.replace(without=more)) for more in ((), ("unroll_and_jam",)))
    np.testing.assert_allclose(on(x), off(x), rtol=1e-5)
    assert on.lower(x).as_text() != off.lower(x).as_text()
