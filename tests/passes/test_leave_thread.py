"""Kernels leave the calling thread where XLA's own products, which its pool runs, take most of the time."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import jstitch
from jstitch.frontend.importer import import_module
from jstitch.frontend.mlir import parse_module
from jstitch.passes.cost.cost_model import LIBRARY_CYCLES
from jstitch.passes.cost.leave_thread import leaves_thread, library_seconds
from jstitch.runtime.cpu_handler import LEAVES
from tests.contexts import CPU_PROFILE, H200_PROFILE

LARGE = jax.ShapeDtypeStruct((1024, 1024), jnp.float32)
OPTIONS = jstitch.CompileOptions(tune="off", without=("chains",))


def between_products(x: Any, w: Any) -> Any:
    y = jax.nn.softmax(jax.nn.gelu(x), -1)
    return jax.nn.softmax(jnp.sin(y @ w).sum(0) + x, -1)


def between_convolutions(x: Any, w: Any) -> Any:
    layout = ("NHWC", "HWIO", "NHWC")
    y = jax.lax.conv_general_dilated(jnp.tanh(x), w, (1, 1), "SAME", dimension_numbers=layout)
    return jax.nn.softmax(y - y.mean((0, 1, 2)), -1)


def in_loop(x: Any, w: Any) -> Any:
    return jax.lax.fori_loop(0, 50, lambda _, x: between_convolutions(x, w), x)


def calls(f: Any, *shapes: tuple[int, ...]) -> str:
    args = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    text: str = jstitch.jit(f, options=OPTIONS).lower(*args).as_text()
    assert "@jstitch(" in text
    return text


def test_by_products() -> None:
    assert f'{LEAVES} = "1"' in calls(between_products, (1024, 1024), (1024, 1024))
    assert f'{LEAVES} = "1"' not in calls(between_products, (64, 64), (64, 64))


@pytest.mark.parametrize("f", [between_convolutions, in_loop])
def test_by_convolutions(f: Any) -> None:
    assert f'{LEAVES} = "1"' in calls(f, (16, 64, 64, 32), (3, 3, 32, 32))
    assert f'{LEAVES} = "1"' not in calls(f, (1, 16, 16, 8), (3, 3, 8, 8))


def test_none_at_all() -> None:
    assert f'{LEAVES} = "1"' not in calls(lambda x: jax.nn.softmax(x + 1, -1), (4096, 4096))


def test_multiplications_of_convolutions() -> None:
    """Groups: each output feature reads its own group's input features."""

    def f(x: Any, w: Any) -> Any:
        return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", feature_group_count=2)

    args = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((2, 8, 10, 10), (6, 4, 3, 5)))
    graph = import_module(parse_module(jax.jit(f).lower(*args).as_text()))
    machine = CPU_PROFILE.machine
    expected = 2 * 6 * 10 * 10 * 4 * 3 * 5 * LIBRARY_CYCLES * machine.lane_cycle
    assert library_seconds(graph, machine) == pytest.approx(expected)
    assert not leaves_thread(graph, machine)


def test_gpus_have_no_such_thread() -> None:
    graph = import_module(parse_module(jax.jit(jnp.matmul).lower(*[LARGE] * 2).as_text()))
    assert leaves_thread(graph, CPU_PROFILE.machine)
    assert not leaves_thread(graph, H200_PROFILE.machine)
