"""A product alone is one kernel with what is made of its rows, on CPUs, where that takes less time."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jstitch
from jstitch.passes.base.plan import is_free
from jstitch.passes.chunk.chunk_rows import chunk_rows, chunks_of
from jstitch.passes.fuse.find_chains import find_chains
from tests.contexts import CPU_PROFILE, H200_PROFILE, on
from tests.passes.chain_programs import Array
from tests.passes.test_own_columns import graph_of
from tests.shares import one_tuple_in


def arrays(*shapes: tuple[int, ...], dtype: Any = jnp.float32) -> list[Array]:
    rng = np.random.default_rng(0)
    return [jnp.asarray(rng.standard_normal(shape), dtype) for shape in shapes]


def norm(x: Array) -> Array:
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


ENDS: list[Callable[[Array], Any]] = [
    jnp.tanh,
    jax.nn.softmax,
    lambda z: jax.nn.logsumexp(z, -1),
    norm,
    lambda z: (jax.nn.relu(z), z > 0),
    lambda z: jnp.exp(z - z.max(-1, keepdims=True)).mean(),
    lambda z: z - z.mean(0),
]


EACH = itertools.product([(96, 8, 11), (64, 40, 33)], [jnp.float32, jnp.bfloat16], ENDS)


@pytest.mark.parametrize(("shape", "dtype", "end"), one_tuple_in(3, EACH))
def test_results_are_the_same(end: Callable[[Array], Any], dtype: Any, shape: tuple[int, int, int]) -> None:
    n, k, m = shape
    x, w, bias = arrays((n, k), (k, m), (m,), dtype=dtype)
    f = lambda x, w, bias: end(x @ w + bias)  # noqa: E731
    options = jstitch.CompileOptions(tune="off", strict=True, verify=True)
    found, theirs = (jax.tree.leaves(g(x, w, bias)) for g in (jstitch.jit(f, options=options), jax.jit(f)))
    tolerance = 1e-5 if dtype == jnp.float32 else 4e-2
    for a, b in zip(found, theirs, strict=True):
        if a.dtype == bool:
            assert (a != b).mean() < 0.01
            continue
        np.testing.assert_allclose(np.float64(a), np.float64(b), tolerance, tolerance * 10)


TWICE: list[Callable[[Array], Any]] = [
    lambda z: (z, z.T),
    lambda z: (z.T, jnp.concatenate([jnp.ones((3, z.shape[1])), z]), z),
    lambda z: (z, jax.lax.dynamic_update_slice(jnp.zeros((99, z.shape[1])), z, (5, 0))),
]


@pytest.mark.parametrize("end", TWICE)
def test_a_result_is_also_another_result_in_another_order(end: Callable[[Array], Any]) -> None:
    """The product accumulates in its own result; what else it is written into is written from there."""
    x, w = arrays((40, 5), (5, 65))
    f = lambda x, w: end(jnp.tanh(x @ w) @ w.T)  # noqa: E731
    since = jstitch.record_count()
    found = jstitch.jit(f, options=jstitch.CompileOptions(tune="off", strict=True, verify=True))(x, w)
    assert jstitch.stitch_count(since) > 0
    for a, b in zip(found, jax.jit(f)(x, w), strict=True):
        np.testing.assert_allclose(a, b, 1e-5, 1e-5)


def chain(f: Callable[..., Any], *shapes: tuple[int, ...], profile: Any = CPU_PROFILE) -> list[str]:
    """Ops of the only chain, without the library's namespace."""
    context = on(profile)
    args = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    patterns = find_chains(graph_of(f, args, context), context).patterns
    return [op.name.removeprefix("stablehlo.") for p in patterns for op in p.ops if not is_free(op)]


def test_what_is_made_of_its_rows_is_held() -> None:
    held = chain(lambda x, w: jax.nn.logsumexp(x @ w, -1).mean(), (640, 8), (8, 11))
    assert held.count("dot_general") == 1
    assert held.count("reduce") == 3  # with the mean over all rows: what programs added up is all that waits


def test_what_waits_for_all_rows_is_not() -> None:
    """What is subtracted needs every row first; without sums nothing is left but the product."""
    assert chain(lambda x, w: x @ w - (x @ w).mean(0), (640, 8), (8, 11)) == []


def test_a_gpus_products_stay_its_librarys() -> None:
    assert chain(lambda x, w: jnp.tanh(x @ w), (640, 16), (16, 16), profile=H200_PROFILE) == []


def test_a_product_with_nothing_after_it_stays() -> None:
    assert chain(lambda x, w: jnp.tanh(x) @ w, (640, 16), (16, 16)) == []


def test_a_large_one_stays_where_its_weights_would_be_packed_again() -> None:
    assert chain(lambda x, w: jnp.tanh(x @ w), (4096, 1024), (1024, 4096)) == []


def test_layers_in_a_row_are_chains_and_an_end() -> None:
    """Each product is in one pattern."""
    shapes = (256, 16), (16, 32), (32, 32), (32, 10)

    def f(x: Array, a: Array, b: Array, c: Array) -> Array:
        return jax.nn.softmax(jnp.tanh(jnp.tanh(x @ a) @ b) @ c)

    held = chain(f, *shapes)
    assert held.count("dot_general") == 3
    assert held.count("tanh") == 2
    args = arrays(*shapes)
    np.testing.assert_allclose(jstitch.jit(f)(*args), jax.jit(f)(*args), 1e-5, 1e-5)


def test_little_that_waits_for_totals_is_held_and_rows_are_not() -> None:
    """A loss is: a mean over what rows give, and what is made of it. All rows less their sum are not."""
    held = chain(lambda x, w: jnp.log((x @ w).mean()) * 2, (640, 8), (8, 11))
    assert held.count("log") == 1
    held = chain(lambda x, w: jnp.exp(x @ w) - jnp.exp(x @ w).sum(0), (640, 8), (8, 11))
    assert held.count("subtract") == 0


def test_a_library_that_starts_no_threads_is_left_its_small_products() -> None:
    machine = replace(CPU_PROFILE.machine, library_threads=1e9)
    lone = replace(CPU_PROFILE, machine=machine)
    assert chain(lambda x, w: jnp.tanh(x @ w), (64, 128), (128, 128)) != []
    assert chain(lambda x, w: jnp.tanh(x @ w), (64, 128), (128, 128), profile=lone) == []


def test_losses_over_large_logits_are_made_in_chunks_all_the_same() -> None:
    """The kernel would write as much as the product: what keeps that from memory goes first."""
    context = on(CPU_PROFILE)

    def f(x: Array, w: Array) -> Array:
        s = x @ w
        return (s * s.sum(1)[:, None]).T @ x

    graph = graph_of(f, [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((64, 2), (2, 64))], context)
    assert chunks_of(chunk_rows(graph, context, least=1, longer=1e6)) != ()
