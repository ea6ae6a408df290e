"""Dear numbers of outer loops in loops of their own, and of several rows at a time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jstitch
from jstitch.codegen.intrinsics import cpu_cycles
from jstitch.codegen.kernel_ir import ROW, Kernel, Let
from jstitch.passes.schedule.distribute_loops import DEAR, LEAST
from jstitch.passes.schedule.nest_work import expr_cycles
from tests.codegen.test_check_phases import kernels, shape

Array = jax.Array
OPTIONS = jstitch.CompileOptions(tune="off", strict=True, verify=True)


def moved(x: Array, z: Array) -> Array:
    """Rows in another order: their numbers cannot be kept beside them."""
    return jnp.moveaxis(jax.nn.softplus(x)[..., None] * z, 1, 0)


def both(x: Array, z: Array) -> tuple[Array, Array]:
    """Two numbers of one exponential, one of them also a result."""
    e = jnp.exp(x)
    return jnp.moveaxis(e[..., None] * z + (e * 2)[..., None], 1, 0), jnp.moveaxis(e, 1, 0)


def gated(x: Array, z: Array) -> Array:
    """A number for each row of the kernel."""
    return jnp.exp(-jax.nn.softplus(x)[..., None] * jnp.abs(z))


def dear_outside(kernel: Kernel) -> int:
    """Instructions that take long and stand around an innermost loop."""
    nests = [n for p in kernel.phases for lane in p.lanes for s in lane.stages for n in s.nests]
    lets = [(i, len(n.loops)) for n in nests for i in n.instructions if isinstance(i, Let)]
    return sum(i.depth < deepest and expr_cycles(i.value, cpu_cycles) >= DEAR for i, deepest in lets)


def the_kernel(f: Callable[..., Any], *args: Any) -> Kernel:
    (kernel,) = kernels(f, *args)
    return kernel


@pytest.mark.parametrize("f", [moved, both])
def test_nothing_dear_stands_around_a_loop(f: Callable[..., Any]) -> None:
    kernel = the_kernel(f, shape(2, 40, 24), shape(2, 40, 24, 8))
    assert dear_outside(kernel) == 0
    assert any(b.name.startswith("d") for b in kernel.arena)


def test_but_for_few_turns() -> None:
    kernel = the_kernel(moved, shape(2, 40, LEAST - 1), shape(2, 40, LEAST - 1, 8))
    assert dear_outside(kernel) > 0
    assert not kernel.arena


def test_rows_with_a_number_each_go_several_at_a_time() -> None:
    kernel = the_kernel(gated, shape(40, 24), shape(40, 24, 32))
    (lane,) = kernel.phases[0].lanes
    assert lane.step > 1
    assert dear_outside(kernel) == 0


def test_square_roots_are_an_instruction() -> None:
    kernel = the_kernel(lambda x, z: jax.lax.rsqrt(x)[..., None] * z, shape(40, 24), shape(40, 24, 32))
    (lane,) = kernel.phases[0].lanes
    assert lane.step == 1
    assert lane.stages[0].nests[0].loops[0].var.name == ROW


@settings(max_examples=4, deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 33), st.sampled_from(["float32", "bfloat16"]))
def test_the_same_numbers(rows: int, width: int, elements: int, dtype: str) -> None:
    rng = np.random.default_rng(rows * width)
    x, z = (jnp.asarray(rng.normal(size=s), dtype) for s in ((2, rows, width), (2, rows, width, elements)))

    def summed(x: Array, z: Array) -> Array:
        return moved(x, z).sum((1, 2))

    for f in (moved, both, gated, summed, jax.grad(lambda x, z: moved(x, z).sum(), (0, 1))):
        found, expected = jstitch.jit(f, options=OPTIONS)(x, z), jax.jit(f)(x, z)
        tolerance = 2e-5 if dtype == "float32" else 5e-2  # XLA does not round between ops
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            a, b = np.asarray(a, np.float32), np.asarray(b, np.float32)
            np.testing.assert_allclose(a, b, tolerance, tolerance * max(1, np.abs(b).max(initial=0)))


@pytest.mark.parametrize("without", [(), ("distribute_loops",)])
def test_it_decides(without: tuple[str, ...], tmp_path: Path) -> None:
    options = jstitch.CompileOptions(tune="off", strict=True, without=without, dump_dir=str(tmp_path))
    x, z = jnp.ones((2, 40, 24)), jnp.ones((2, 40, 24, 8))
    np.testing.assert_allclose(jstitch.jit(moved, options=options)(x, z), jax.jit(moved)(x, z), 1e-5)
    (text,) = tmp_path.rglob("*_0.py")
    assert text.read_text().count("for i2 in") == (1 if without else 2)
