"""What XLA:CPU takes for circular functions in what a sum reads: vectors since jax 0.12, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jstitch
from jstitch import _jax
from jstitch.passes.base.plan import FusionPattern, make_pattern
from jstitch.passes.cost.cost_model import CostEstimate, xla_cost
from tests.contexts import CPU
from tests.passes.product_graphs import graph_of

X = np.linspace(-3, 3, 1 << 18, dtype=np.float32).reshape(512, 512)
VECTORS = replace(CPU.profile.machine, reads_vectors=True)


def costs(f: Callable[..., Any], x: Any = X) -> tuple[CostEstimate, CostEstimate]:
    """XLA's, as it was before, and with vectors."""
    graph = graph_of(f, [x])
    pattern: FusionPattern = make_pattern(graph, graph.ops, "test")
    return xla_cost(pattern, CPU.profile.machine), xla_cost(pattern, VECTORS)


@pytest.mark.parametrize("function", [jnp.sin, jnp.cos, jnp.tan])
@pytest.mark.parametrize("reduce", [jnp.sum, jnp.max, lambda x: x.sum(0), lambda x: x.sum(1)])
def test_they_are_cheap_in_what_is_reduced(function: Any, reduce: Any) -> None:
    before, now = costs(lambda x: reduce(function(2 * x)))
    assert now.cycles < before.cycles / 2
    assert now.launches == before.launches - 1, "nothing is written in between"


def test_others_are_not() -> None:
    for f in (lambda x: jnp.exp(x).sum(1), lambda x: jnp.sin(x), lambda x: (x * x).sum()):
        before, now = costs(f)
        assert now == before


def test_nor_what_is_read_by_others_too() -> None:
    before, now = costs(lambda x: (y := jnp.sin(x)) / y.sum(1, keepdims=True))
    assert now == before


def test_nor_in_halves() -> None:
    before, now = costs(lambda x: jnp.sin(x).sum(1), X.astype(jnp.bfloat16))
    assert now.cycles >= before.cycles / 2


@pytest.mark.skipif(not _jax.XLA_CPU["reads_vectors"], reason="an XLA that writes the sines to memory")
def test_sums_of_sines_are_left_to_such_an_xla() -> None:
    f = lambda x: jnp.sin(x[:, None] - x[None]).sum(1)  # noqa: E731
    x = jnp.linspace(0, 9, 700)
    np.testing.assert_allclose(jstitch.jit(f)(x), jax.jit(f)(x), rtol=1e-6)
    assert not jstitch.last_report()[-1].kernels
