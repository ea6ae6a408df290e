"""Sums over all elements of very many: made in blocks, whose results are added up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jstitch
from jstitch.codegen.interpret_kernel import interpret_kernel
from jstitch.codegen.kernel_ir import Kernel
from jstitch.codegen.print_kernel import print_kernel
from jstitch.ir.interpret import interpret
from jstitch.passes.lower.check_kernel import check_kernel
from jstitch.passes.lower.loop_order import ROWS
from tests.contexts import CPU_PROFILE, on
from tests.passes.test_own_columns import Array, graph_of, lower

CONTEXT = on(CPU_PROFILE, verify=True)
OPTIONS = jstitch.CompileOptions(tune="off", strict=True)


def kernel_of(f: Callable[..., Any], *shapes: tuple[int, ...]) -> Kernel:
    return lower(graph_of(f, [jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes], CONTEXT), CONTEXT)


@pytest.mark.parametrize("shape", [(3000, 1000), (1_000_003,), (7, 300_007), (40_000,), (12_000_017,)])
@pytest.mark.parametrize("number", [0.3, 0.7001])
def test_equal_numbers_keep_their_digits(shape: tuple[int, ...], number: float) -> None:
    """Every addition rounds the same way: 12 million, one after another, would lose 5 digits."""
    x = np.full(shape, number, np.float32)
    exact = x.sum(dtype=np.float64)
    found = np.float64(jstitch.jit(lambda x: jnp.abs(x).sum(), options=OPTIONS)(x))
    assert abs(found - exact) <= 8 * np.spacing(np.float32(exact))


def test_blocks_are_printed() -> None:
    found = print_kernel(kernel_of(lambda x: (x * x).sum(), (3000, 1000)))
    assert f"in blocks of {ROWS}, " in found
    assert found.index("acc2 = add_reassoc(") < found.index("= s0[p]")  # what was there comes last


@pytest.mark.parametrize(
    "f",
    [
        lambda x: (x * x).max(),  # rounds nothing
        lambda x: (x > 0).sum(),  # integers
        lambda x: (x * x).sum(1),  # within rows
    ],
)
def test_what_needs_no_blocks(f: Callable[..., Any]) -> None:
    assert "in blocks" not in print_kernel(kernel_of(f, (3000, 1000)))


def test_a_short_share_needs_no_blocks() -> None:
    assert "in blocks" not in print_kernel(kernel_of(lambda x: (x * x).sum(), (4, 1000)))


def update(x: Array, g: Array) -> tuple[Array, ...]:
    """Sums and others of the same elements, beside what is stored of each; from 2, not from 0."""
    total = jax.lax.reduce(x * g, jnp.float32(2), jax.lax.add, tuple(range(x.ndim)))
    return x - 0.1 * g, total, jnp.abs(g).max(), (g > 0.5).sum(), (g * g).mean()


@pytest.mark.parametrize("shape", [(60_011,), (511, 777), (3, 2_000_003)])
def test_with_others_in_the_same_loop(shape: tuple[int, ...]) -> None:
    numbers = np.random.default_rng(0)
    args = [numbers.random(shape, np.float32) for _ in range(2)]
    found, theirs = jstitch.jit(update, options=OPTIONS)(*args), jax.jit(update)(*args)
    for a, b in zip(found, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=3e-6)
    if shape == (60_011,):
        graph = graph_of(update, args, CONTEXT)
        kernel = lower(graph, CONTEXT)
        check_kernel(kernel)
        for a, b in zip(interpret_kernel(kernel, args), interpret(graph, args), strict=True):
            np.testing.assert_allclose(a, b, rtol=3e-6)


def test_a_sum_with_a_seam_in_it() -> None:
    """Each part of a concatenate has a lane, with its own share of the programs and its own blocks."""

    def f(x: Array, y: Array) -> Array:
        return (jnp.concatenate([x, 2 * y]) ** 2).sum()

    args = [np.random.default_rng(1).random(n, np.float32) for n in (700_001, 400_003)]
    kernel = kernel_of(f, *(x.shape for x in args))
    check_kernel(kernel)
    found = jstitch.jit(f, options=OPTIONS)(*args)
    np.testing.assert_allclose(found, jax.jit(f)(*args), rtol=1e-6)


def test_all_that_is_reduced_of_elements_has_as_many_programs() -> None:
    """A long sum wants more than the maximum before it, in the same loop, had of its own."""

    def f(x: Array) -> tuple[Array, Array]:
        return jnp.max(jnp.abs(x)), jnp.sum(x)

    x = np.random.default_rng(2).random(4_122_333, np.float32)
    check_kernel(kernel_of(f, x.shape))
    for a, b in zip(jstitch.jit(f, options=OPTIONS)(x), jax.jit(f)(x), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
