"""Long rows on a CPU whose values find no room in a core's cache: kept in memory, or no strips but rows."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jstitch
from jstitch.codegen.kernel_ir import Kernel
from jstitch.passes.base.context import Context
from jstitch.passes.lower.choose_template import best_kernel
from jstitch.passes.lower.fit_lane import ROOM
from jstitch.passes.schedule.latency import kernel_latency
from tests.contexts import CPU, CPU_PROFILE, on
from tests.passes.product_graphs import arrays, graph_of

OPTIONS = jstitch.CompileOptions(tune="off", strict=True, verify=True)


def encoded(x: Any, frequencies: int) -> Any:
    waves = [wave(x * 2.0**k) for k in range(frequencies) for wave in (jnp.sin, jnp.cos)]
    return jnp.concatenate([x, *waves], -1)


def normed(x: Any) -> Any:
    """Rows of a million elements or more, whose sines are wanted three times."""
    y = encoded(x, 5).reshape(x.shape[0], -1)
    y = (y - y.mean(-1, keepdims=True)) / y.std(-1, keepdims=True)
    return jax.nn.softmax(y, -1)


def spread(x: Any) -> Any:
    return encoded(x, 7).std(0)


def kernel_of(f: Any, x: Any, context: Context = CPU) -> Kernel:
    graph = graph_of(f, (x,))
    return best_kernel("k", graph.ops, graph.inputs, graph.outputs, context)


def test_dear_values_are_kept_in_memory() -> None:
    (x,) = arrays((2, 9000, 6))
    kernel = kernel_of(normed, x)
    assert CPU_PROFILE.arena_bytes < kernel.arena_bytes <= ROOM
    tight = kernel_of(normed, x, on(CPU_PROFILE, arena_bytes=CPU_PROFILE.arena_bytes))
    assert tight.arena_bytes <= CPU_PROFILE.arena_bytes
    assert kernel_latency(kernel, CPU).seconds < kernel_latency(tight, CPU).seconds


def test_cheap_values_are_not() -> None:
    (x,) = arrays((2, 400_000))
    assert (
        kernel_of(lambda x: x * 2 - (x * 2).mean(-1, keepdims=True), x).arena_bytes <= CPU_PROFILE.arena_bytes
    )


def test_strips_of_what_has_many_sides_are_rows() -> None:
    """A strip would be gathered by one program, each element from one of fifteen."""
    (x,) = arrays((500, 64))
    kernel = kernel_of(spread, x)
    assert not any(lane.owns for phase in kernel.phases for lane in phase.lanes)
    plain = kernel_of(lambda x: x.std(0), arrays((500, 960))[0])
    assert any(lane.owns for phase in plain.phases for lane in phase.lanes)


@pytest.mark.parametrize(("f", "shape"), [(normed, (2, 9000, 6)), (spread, (500, 64))])
def test_numbers(f: Any, shape: tuple[int, ...]) -> None:
    (x,) = arrays(shape)
    found = jstitch.jit(f, options=OPTIONS)(x)
    np.testing.assert_allclose(found, jax.jit(f)(x), rtol=2e-4, atol=1e-6)
