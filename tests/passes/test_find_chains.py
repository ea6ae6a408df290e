"""Chains of products in one kernel of the CPU: found in plain code, and as float64 has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jstitch
from jstitch.codegen.interpret_kernel import interpret_kernel
from jstitch.passes.fuse.find_chains import CHAIN, Chains, find_chains
from jstitch.passes.lower.check_kernel import check_kernel
from jstitch.passes.lower.lower_kernel import lower_kernel
from jstitch.passes.schedule.kernel_passes import schedule_kernel
from tests.contexts import CPU_PROFILE, on
from tests.passes.test_own_columns import graph_of

Array = Any
Program = tuple[Callable[..., Any], list[np.ndarray]]


def _softmax(s: Array) -> Array:
    return jax.nn.softmax(s, -1)


def _hand_written(s: Array) -> Array:
    e = jnp.exp(s - jnp.max(s, -1, keepdims=True))
    return e / jnp.sum(e, -1, keepdims=True)


def _squared(s: Array) -> Array:
    return jnp.square(jax.nn.relu(s)) / s.shape[-1]


def _normalised(s: Array) -> Array:
    return s * jax.lax.rsqrt(jnp.mean(s * s, -1, keepdims=True) + 1e-5)


BETWEEN = (_softmax, _softmax, _hand_written, _squared, _normalised, jax.nn.gelu, jnp.tanh, lambda s: s)


def _masks(random: Random, rows: int, columns: int) -> Callable[[Array], Array]:
    """One of those that attention has."""
    far = random.choice((-1e9, -jnp.inf, float(np.finfo(np.float32).min)))
    i, j = np.arange(rows)[:, None], np.arange(columns)[None]
    window = random.randint(1, columns)
    return random.choice(
        (
            lambda s: s,
            lambda s: jnp.where(jnp.arange(rows)[:, None] >= jnp.arange(columns)[None], s, far),
            lambda s: jnp.where(jnp.asarray(abs(i - j) < window), s, -1e9),
            lambda s: s - 0.1 * jnp.abs(jnp.arange(rows)[:, None] - jnp.arange(columns)[None]),
        )
    )


def program(seed: int) -> Program:
    """Products with batches of any number of dimensions, what is between their rows, and arguments."""
    random, numbers = Random(seed), np.random.default_rng(seed)
    lead = random.choice(((), (2,), (2, 3), (1, 5)))
    rows, columns = random.choice((8, 24, 60, 64, 128, 195)), random.choice((7, 32, 70, 128, 300))
    depth, width = random.choice((8, 16, 33, 64)), random.choice((5, 16, 40, 64))
    between, masked = random.choice(BETWEEN), _masks(random, rows, columns)
    turned, scale = random.random() < 0.5, random.choice((1.0, 0.125))
    kind, wide = random.choice(((jnp.float32, None), (jnp.bfloat16, None), (jnp.bfloat16, jnp.float32)))

    def f(q: Array, k: Array, v: Array, bias: Array) -> Array:
        what = "...qd,...kd->...qk" if turned else "...qd,...dk->...qk"
        s = jnp.einsum(what, q, k, preferred_element_type=wide) * scale
        return jnp.einsum("...qk,...kh->...qh", between(masked(s + bias)).astype(v.dtype), v)

    right = (columns, depth) if turned else (depth, columns)
    shapes = (*lead, rows, depth), (*lead, *right), (*lead, columns, width), (columns,)
    return f, [numbers.standard_normal(shape).astype(kind) for shape in shapes]


def close(found: Sequence[Array], f: Callable[..., Any], args: Sequence[np.ndarray]) -> None:
    """As float64 has it; of bf16, at most twice as far from it as `jax.jit` is, or by a unit."""
    with jax.enable_x64(True):
        exact = [np.float64(x) for x in jax.tree.leaves(jax.jit(f)(*(np.float64(a) for a in args)))]
    theirs = jax.tree.leaves(jax.jit(f)(*args))
    for a, b, c in zip(found, theirs, exact, strict=True):
        assert a.dtype == b.dtype
        largest = float(np.nanmax(np.abs(c), initial=1.0))
        if a.dtype == np.float32:
            np.testing.assert_allclose(a, c, rtol=2e-5, atol=2e-5 * largest)
        else:
            np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
            error, allowed = (float(np.nanmax(np.abs(np.float64(x) - c), initial=0.0)) for x in (a, b))
            assert error <= 2 * allowed + largest / 256


@pytest.mark.parametrize("seed", range(60))
def test_drawn_chains_are_one_kernel(seed: int) -> None:
    """The kernel is right to the check of kernels and the interpreter, and on this machine."""
    f, args = program(seed)
    context = on(CPU_PROFILE, tune="off")
    graph = graph_of(f, args, context)
    (pattern,) = find_chains(graph, context).patterns
    what = pattern.ops, pattern.inputs, pattern.outputs
    kernel = schedule_kernel(lower_kernel("chain", *what, context.profile), context)
    check_kernel(kernel)
    assert kernel.products == 2
    if pattern.outputs == graph.outputs and list(pattern.inputs) == list(graph.inputs):
        close(interpret_kernel(kernel, [a.copy() for a in args]), f, args)
    jitted = jstitch.jit(f, options=jstitch.CompileOptions(tune="off", strict=True, verify=True))
    close(jax.tree.leaves(jitted(*args)), f, args)
    assert f"by {CHAIN}" in str(jstitch.explain(f, options=jstitch.CompileOptions(tune="off"))(*args))


@pytest.mark.parametrize("options", [{"without": ("chains",)}, {"planner": "fs2018"}, {"planner": "fs2021"}])
def test_without_chains(options: dict[str, Any]) -> None:
    f, args = program(0)
    context = on(CPU_PROFILE, tune="off", **options)
    assert find_chains(graph_of(f, args, context), context) == Chains()


def test_chains_that_no_cache_holds_stay_with_the_library() -> None:
    """Every step would pack all weights again: 64 rows for each time."""
    shapes = (4096, 1024), (1024, 4096), (4096, 1024)
    graph = graph_of(
        lambda x, up, down: jax.nn.gelu(x @ up) @ down,
        [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes],
        on(CPU_PROFILE),
    )
    assert find_chains(graph, on(CPU_PROFILE)).patterns == ()
    assert len(find_chains(graph, on(CPU_PROFILE, tune="off")).patterns) == 1


def test_every_product_outside_a_chain_has_its_reason() -> None:
    """By what keeps it out: its type, that it is alone, its rows, the gate."""

    def reasons(
        f: Callable[..., Any], *shapes: tuple[int, ...], dtype: Any = jnp.float32, **more: Any
    ) -> list[str]:
        args = [jax.ShapeDtypeStruct(shape, dtype) for shape in shapes]
        story = jstitch.explain(f, options=jstitch.CompileOptions(**more))(*args)
        products = [e for e in story.open_edges if "dot_general" in f"{e.producer} {e.consumer}"]
        return sorted({e.why.rule for e in products if e.why is not None})

    def attention(q: Array, k: Array, v: Array) -> Array:
        return jax.nn.softmax(q @ k.T) @ v

    square = (512, 64), (512, 64), (512, 64)
    prime = (1021, 64), (512, 64), (512, 64)
    assert reasons(attention, *square, dtype=jnp.float16) == ["product"]
    assert reasons(lambda x, w: jnp.tanh(x @ w) * 2, (512, 64), (64, 64)) == ["alone"]
    assert reasons(attention, *prime, tune="off") == ["tiles"]
    assert reasons(attention, *prime[:1], (8192, 64), (8192, 64), tune="off") == ["tiles"]
    assert reasons(lambda a, b, c: jnp.tanh(a @ b) @ c, (4096, 1024), (1024, 4096), (4096, 1024)) == ["gate"]
    assert reasons(attention, *square, without=("chains",)) == ["contraction"]
    assert reasons(attention, *square) == []
