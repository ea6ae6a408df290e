"""Small values behind a large dear one are spilled in its stead, and the results stay right."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jstitch.codegen.interpret_kernel import interpret_kernel
from jstitch.codegen.kernel_ir import Kernel
from jstitch.frontend.importer import import_module
from jstitch.frontend.mlir import parse_module
from jstitch.ir.graph import Graph
from jstitch.ir.interpret import interpret
from jstitch.passes.base import profile
from jstitch.passes.lower.check_kernel import check_kernel
from jstitch.passes.lower.lower_kernel import lower_kernel
from tests.contexts import CPU_PROFILE, H200_PROFILE

PROFILES = [CPU_PROFILE, H200_PROFILE]
ROWS, COLUMNS = 96, 64


def clipped(g: Any, p: Any) -> Any:
    """A step scaled by powers of its rows' and columns' sums, and by its own norm."""
    square = g * g + 1e-3
    u = g * jnp.power(square.sum(1, keepdims=True), -0.37) * jnp.power(square.sum(0, keepdims=True), -0.37)
    return p - u / jnp.maximum(1.0, jnp.sqrt(jnp.mean(u * u)))


def dear(g: Any, p: Any) -> Any:
    """Dear in every element: no small value helps."""
    u = jnp.power(jnp.abs(g) + jnp.power(g * g + p, 0.3), -0.37)
    return p - u / jnp.sqrt(jnp.mean(u * u))


def kernel_of(f: Callable[..., object], wanted: profile.Profile) -> tuple[Graph, Kernel]:
    args = [jnp.ones((ROWS, COLUMNS), jnp.float32)] * 2
    graph = import_module(parse_module(jax.jit(f).lower(*args).as_text()))
    return graph, lower_kernel("k", graph.ops, graph.inputs, graph.outputs, wanted)


@pytest.mark.parametrize("wanted", PROFILES, ids=["cpu", "cuda"])
@pytest.mark.parametrize(("f", "kept"), [(clipped, False), (dear, True)])
def test_what_is_kept_between_phases(f: Callable[..., object], kept: bool, wanted: profile.Profile) -> None:
    graph, kernel = kernel_of(f, wanted)
    assert check_kernel(kernel) == ()
    assert any(b.type.shape == (ROWS, COLUMNS) for b in kernel.scratch) == kept
    rng = np.random.default_rng(1)
    args = [rng.uniform(0.5, 2.0, v.shape).astype(np.float32) for v in graph.inputs]
    (found,) = interpret_kernel(kernel, args, Random(0))
    np.testing.assert_allclose(found, interpret(graph, args)[0], rtol=2e-5, atol=1e-5)


def normalised(x: Any, square: Any) -> Any:
    """A column's factor, which every row uses."""
    return x * jax.lax.rsqrt(square[0] / 96 + 1e-5)


def phases_of(f: Callable[..., object], rows: int, wanted: profile.Profile = CPU_PROFILE) -> int:
    args = [jnp.ones((rows, COLUMNS), jnp.float32), jnp.ones((1, COLUMNS), jnp.float32)]
    graph = import_module(parse_module(jax.jit(f).lower(*args).as_text()))
    return len(lower_kernel("k", graph.ops, graph.inputs, graph.outputs, wanted).phases)


def test_a_cpu_does_not_compute_a_columns_factor_for_every_row() -> None:
    assert phases_of(normalised, 1 << 14) == 2
    assert phases_of(normalised, 1 << 14) > phases_of(normalised, 16)
    assert phases_of(lambda x, square: normalised(x, square).sum(), 1 << 14) == phases_of(
        lambda x, square: (x * square[0]).sum(), 1 << 14
    )
    assert phases_of(normalised, 1 << 14, H200_PROFILE) == 1


def waves(g: Any, p: Any) -> Any:
    """Sines of columns, the same for every row; a CPU's take as long as some fifty additions."""
    wave = jnp.cos(jnp.arange(COLUMNS, dtype=jnp.float32))
    return (g * wave).sum(1, keepdims=True) + p * 0


@pytest.mark.parametrize(("wanted", "phases"), [(CPU_PROFILE, 2), (H200_PROFILE, 1)], ids=["cpu", "cuda"])
def test_sines_of_columns_are_kept_on_a_cpu(wanted: profile.Profile, phases: int) -> None:
    _, kernel = kernel_of(waves, wanted)
    assert len(kernel.phases) == phases
    assert len(kernel.scratch) == phases - 1
