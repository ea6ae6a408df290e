"""Loops of sums go as what is added up lies in memory, on CPUs."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jstitch
from jstitch.codegen.kernel_ir import Kernel, Load, Nest
from jstitch.ir.ops import KERNEL
from tests.codegen.cuda.stitched import stitch_for_cpu
from tests.contexts import CPU
from tests.passes.test_own_columns import graph_of
from tests.passes.test_seams import nests

OPTIONS = jstitch.CompileOptions(tune="off", strict=True, verify=True, without=("cancel_transposes",))


def steps(nest: Nest, name: str = "a0") -> list[int]:
    """Elements from one turn of the innermost loop to the next, of each load of the argument."""
    loads = [i for i in nest.instructions if isinstance(i, Load) and i.buffer.name == name]
    return [dict(i.offset.terms).get(nest.loops[-1].var, 0) for i in loads if i.depth == len(nest.loops)]


def kernel_of(f: Callable[..., Any], *args: Any) -> Kernel:
    made = stitch_for_cpu(graph_of(f, args, CPU))
    (kernel,) = (op.attrs["kernel"] for op in made.ops if op.name == KERNEL)
    return kernel  # type: ignore[no-any-return]


X = np.ones((4, 6, 40, 50), np.float32)


@pytest.mark.parametrize("over", [(1, 2), (3,), (1, 2, 3), (0, 1, 2)])
def test_neighbours_are_neighbours_in_memory(over: tuple[int, ...]) -> None:
    """Channels that lie first in memory, taken for the last dimension."""
    kernel = kernel_of(lambda x: jnp.square(x.transpose(0, 2, 3, 1) + 1).sum(over) * 2, X)
    found = [step for nest in nests(kernel) for step in steps(nest)]
    assert {*found} == {1}


def test_narrow_sums_stay() -> None:
    """What is rounded where it is kept may not be left and taken up again."""
    x = jnp.asarray(np.random.default_rng(0).standard_normal((3, 40, 50)), jnp.bfloat16)

    def f(x: Any) -> Any:
        return jnp.exp(x.transpose(0, 2, 1)).sum(-1, dtype=jnp.bfloat16)

    want = np.exp(np.asarray(x, np.float64)).sum(1)
    np.testing.assert_allclose(np.asarray(jstitch.jit(f, options=OPTIONS)(x), np.float64), want, rtol=2e-2)


def _drawn(seed: int) -> tuple[Callable[..., Any], Any]:
    """Reductions of an array in a drawn order, over drawn axes, its rows in several forms."""
    draw = Random(seed)
    shape = [draw.choice([1, 2, 3, 8, 17, 40]) for _ in range(draw.randint(2, 4))]
    rank = len(shape)
    order = draw.sample(range(rank), rank)
    axes = tuple(draw.sample(range(rank), draw.randint(1, rank)))
    name = draw.choice(("sum", "max", "mean", "var", "prod", "argmax", "logsumexp"))

    def f(x: Any) -> Any:
        y = jnp.tanh(x.transpose(order)) * jnp.linspace(0.5, 1, shape[order[-1]])
        if name == "argmax":
            return jnp.argmax(y, axes[0]), (y * y).sum(axes)
        if name == "logsumexp":
            return jax.nn.logsumexp(y, axes), y - y.mean(axes, keepdims=True)
        return getattr(y, name)(axes), y.sum(axes[:1])

    return f, np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _agrees(seed: int) -> None:
    f, x = _drawn(seed)
    for want, found in zip(jax.jit(f)(x), jstitch.jit(f, options=OPTIONS)(x), strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("seed", range(16))
def test_drawn_reductions(seed: int) -> None:
    _agrees(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 300))
def test_many_drawn_reductions(seed: int) -> None:
    _agrees(seed)


def test_it_can_be_switched_off() -> None:
    def f(x: Any) -> Any:
        return jnp.square(x.transpose(0, 2, 3, 1) + 1).sum((1, 2))

    on, off = (
        jstitch.jit(f, options=OPTIONS.replace(without=(*OPTIONS.without, *more)))
        for more in ((), ("memory_order",))
    )
    np.testing.assert_allclose(on(X), off(X), rtol=1e-5)
    assert on.lower(X).as_text() != off.lower(X).as_text()
