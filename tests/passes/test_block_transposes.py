"""What is read across memory is read in blocks, along memory, on CPUs."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jstitch
from jstitch.codegen.interpret_kernel import interpret_kernel
from jstitch.codegen.kernel_ir import Kernel, Store
from jstitch.codegen.print_kernel import print_kernel
from jstitch.frontend.importer import import_module
from jstitch.frontend.mlir import parse_module
from jstitch.ir.interpret import interpret
from jstitch.passes.lower.check_kernel import check_kernel
from jstitch.passes.lower.lower_kernel import lower_kernel
from jstitch.passes.schedule.block_transposes import block_transposes
from tests.contexts import CPU_PROFILE
from tests.passes.test_seams import nests

OPTIONS = jstitch.CompileOptions(tune="off", strict=True, verify=True)


def centred(x: Any) -> Any:
    return (x - x.max(1, keepdims=True)).transpose(0, 2, 1) * 2


def made(f: Callable[..., Any], shape: tuple[int, ...]) -> tuple[Kernel, Kernel]:
    """A function's kernel, and the same in blocks, which has been checked and run."""
    args = [np.random.default_rng(0).standard_normal(shape, np.float32)]
    graph = import_module(parse_module(jax.jit(f).lower(*args).as_text()))
    kernel = lower_kernel("k", graph.ops, graph.inputs, graph.outputs, CPU_PROFILE)
    blocked = block_transposes(kernel)
    assert check_kernel(blocked) == ()
    (found,) = interpret_kernel(blocked, args, Random(0))
    np.testing.assert_allclose(found, interpret(graph, args)[0], rtol=2e-5, atol=1e-5)
    return kernel, blocked


def written(kernel: Kernel) -> list[list[int]]:
    """Turns of the loops around stores of results."""
    found = [n for n in nests(kernel) if any(_returns(i) for i in n.body)]
    return [[loop.hi for loop in nest.loops if loop.var.name != "r"] for nest in found]


def _returns(i: object) -> bool:
    return isinstance(i, Store) and i.buffer.name == "o0"


def test_whole_lines_and_what_is_left() -> None:
    kernel, blocked = made(centred, (3, 31, 40))
    assert written(kernel) == [[40, 31]]
    assert written(blocked) == [[2, 31, 16], [31, 8]]


@pytest.mark.parametrize("shape", [(3, 31, 8), (3, 8, 40)])
def test_short_rows_stay(shape: tuple[int, ...]) -> None:
    """Of less than a line, or of loops that are written out."""
    kernel, blocked = made(centred, shape)
    assert print_kernel(blocked) == print_kernel(kernel)


def test_what_is_written_as_it_is_read_stays() -> None:
    kernel, blocked = made(lambda x: (x - x.max(1, keepdims=True)) * 2, (3, 31, 40))
    assert print_kernel(blocked) == print_kernel(kernel)


def _agrees(seed: int) -> None:
    draw = Random(seed)
    shape = [draw.choice([1, 2, 3, 9, 16, 17, 31, 33, 48, 70]) for _ in range(draw.choice((3, 3, 4)))]
    order = draw.sample(range(len(shape)), len(shape))
    axis, dtype = draw.randrange(len(shape)), draw.choice(("float32", "bfloat16", "float16", "int32"))

    def f(x: Any) -> Any:
        y = x - x.max(axis, keepdims=True)
        return (y * 2).transpose(order), jnp.tanh(y.astype(jnp.float32)).transpose(order[::-1])

    x = jnp.asarray(np.random.default_rng(seed).standard_normal(shape) * 4).astype(dtype)
    for want, found in zip(jax.jit(f)(x), jstitch.jit(f, options=OPTIONS)(x), strict=True):
        a, b = (np.asarray(v, np.float64) for v in (want, found))
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=2e-3 if "16" in dtype else 1e-6)


@pytest.mark.parametrize("seed", range(16))
def test_drawn_transpositions(seed: int) -> None:
    _agrees(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 300))
def test_many_drawn_transpositions(seed: int) -> None:
    _agrees(seed)


def test_it_can_be_switched_off() -> None:
    x = np.random.default_rng(0).standard_normal((3, 31, 40), np.float32)
    on, off = (
        jstitch.jit(centred, options=OPTIONS.replace(without=more)) for more in ((), ("block_transposes",))
    )
    np.testing.assert_array_equal(on(x), off(x))
    assert on.lower(x).as_text() != off.lower(x).as_text()
