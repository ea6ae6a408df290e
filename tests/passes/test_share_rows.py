"""Rows of products that no good step divides are two lanes on CPUs, and totals of both are added."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jstitch
from jstitch.codegen.kernel_ir import Kernel
from jstitch.passes.fuse.find_chains import find_chains
from jstitch.passes.lower.lower_kernel import lower_kernel
from jstitch.passes.lower.split_rows import where_to_share
from jstitch.passes.lower.tile_rows import FEW_ROWS, MOST_CPU_ROWS
from tests.contexts import CPU_PROFILE, on
from tests.passes.chain_programs import Array
from tests.passes.test_chain_ends import arrays, norm
from tests.passes.test_own_columns import graph_of
from tests.shares import one_tuple_in

SHAPES = (523, 16), (16, 40), (40, 24)


def lanes_of(f: Callable[..., Any], *shapes: tuple[int, ...]) -> list[list[int]]:
    """Rows of each lane, of each phase of the only chain's kernel."""
    context = on(CPU_PROFILE)
    args = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    (p,) = find_chains(graph_of(f, args, context), context).patterns
    kernel: Kernel = lower_kernel("chain", p.ops, p.inputs, p.outputs, CPU_PROFILE, 1 << 30)
    return [[lane.rows for lane in phase.lanes] for phase in kernel.phases]


@given(st.integers(1, 1_000_000))
def test_where_rows_are_cut(rows: int) -> None:
    good = [n for n in range(FEW_ROWS, MOST_CPU_ROWS + 1) if rows % n == 0]
    cut = where_to_share(rows)
    assert (cut is None) == (rows <= MOST_CPU_ROWS or bool(good))
    if cut is not None:
        assert cut % 64 == 0
        assert 0 < rows - cut < 64


def test_two_lanes() -> None:
    f = lambda x, a, b: jnp.tanh(x @ a) @ b  # noqa: E731
    assert lanes_of(f, *SHAPES) == [[512, 11]]
    assert lanes_of(f, (512, 16), *SHAPES[1:]) == [[512]]


def test_totals_of_both_are_added() -> None:
    first, *rest = lanes_of(lambda x, a, b: (jnp.tanh(x @ a) @ b).max(-1).mean(), *SHAPES)
    assert first == [512, 11]
    assert all(sum(lanes) < 512 for lanes in rest)


ENDS: list[Callable[[Array], Any]] = [
    norm,
    jax.nn.log_softmax,
    lambda z: jax.nn.log_softmax(z)[:, 0].mean(),
    lambda z: (z.max(0), z.sum(0), jnp.exp(z)),
    lambda z: jnp.sqrt((z * z).sum()) * 2 + z.min(),
    lambda z: ((z > 0).all(0), (z > 1).any(), (z > 0).sum()),
    lambda z: (z - z.mean(0)).T,
    lambda z: (z.astype(jnp.bfloat16).sum(0), z[::-1]),
    lambda z: (z.T, jnp.argmax(z, 0), z.mean((0, 1))),
]


@pytest.mark.parametrize(("end", "rows"), one_tuple_in(2, itertools.product(ENDS, [263, 523, 2 * 499])))
def test_results_are_the_same(end: Callable[[Array], Any], rows: int) -> None:
    x, a, b = arrays((rows, 16), *SHAPES[1:])
    f = lambda x, a, b: end(jnp.tanh(x @ a) @ b)  # noqa: E731
    options = jstitch.CompileOptions(tune="off", strict=True, verify=True)
    found, theirs = (jax.tree.leaves(g(x, a, b)) for g in (jstitch.jit(f, options=options), jax.jit(f)))
    for mine, other in zip(found, theirs, strict=True):
        # XLA adds up numbers that it has not rounded, hundreds of them, whose rounding is up to 1/16
        wide, near = (2e-2, 1.0) if other.dtype == jnp.bfloat16 else (2e-5, 2e-4)
        np.testing.assert_allclose(np.float64(mine), np.float64(other), wide, near)


@pytest.mark.parametrize("rows", [523, 1009])
def test_gradients_are_the_same(rows: int) -> None:
    x, a, b = arrays((rows, 16), *SHAPES[1:])
    y = jnp.asarray(np.random.default_rng(1).integers(0, 24, rows))

    def loss(a: Array, b: Array, x: Array) -> Array:
        z = jax.nn.gelu(x @ a) @ b
        return -jnp.take_along_axis(jax.nn.log_softmax(z), y[:, None], 1).mean()

    f = jax.value_and_grad(loss, (0, 1, 2))
    options = jstitch.CompileOptions(tune="off", strict=True, verify=True)
    found, theirs = (jax.tree.leaves(g(a, b, x)) for g in (jstitch.jit(f, options=options), jax.jit(f)))
    for mine, other in zip(found, theirs, strict=True):
        np.testing.assert_allclose(mine, other, 2e-5, 2e-6)
