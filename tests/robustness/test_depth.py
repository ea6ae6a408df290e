"""Programs far longer than Python's recursion limit: chains, loops behind loops, long sums, many tensors.

The quick sizes are past the limit in every function that goes from an op to what it is computed from.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import Array

import jstitch
from tests.shares import one_in

pytestmark = pytest.mark.once  # what takes long begins at the graph
OPTIONS = jstitch.CompileOptions(tune="off", strict=True, verify=False)
X = jnp.linspace(-1.0, 1.0, 512, dtype=jnp.float32).reshape(8, 64)


def chain(count: int, x: Array) -> Array:
    """Each op needs the one before."""
    for turn in range(count):
        x = jnp.abs(x - 0.1) if turn % 2 else x * 0.999
    return x


def terms(count: int, x: Array, y: Array) -> Array:
    """One expression of so many terms."""
    total = x
    for turn in range(1, count + 1):
        total = total + x * (1.0 / turn) if turn % 2 else total - y * (0.5 / turn)
    return total


def levels(count: int, x: Array) -> Array:
    """Each row needs its own maximum, which needs the row before: loops that wait for loops."""
    for _ in range(count):
        x = x - 0.5 * jnp.max(x, axis=-1, keepdims=True)
    return x


def squares(count: int, x: Array) -> Array:
    """A product with 2 ** count factors, under a sum."""
    for _ in range(count):
        x = x * x
    return jnp.sum(x * 2.0, axis=0) + jnp.sum(x, axis=1)[:8].sum()


def loops(count: int, x: Array) -> Array:
    """Loops of the program, one after the other."""
    for _ in range(count):
        x = jax.lax.fori_loop(0, 20, lambda _, y: jnp.tanh(y) * 1.01 + jnp.max(y), x)
    return x


def unlike(count: int, *xs: Array) -> list[Array]:
    """Patterns of different sizes, packed into one kernel."""
    return [jnp.tanh(x) / (1.0 + jnp.sum(jnp.abs(x), axis=-1, keepdims=True)) for x in xs[:count]]


def turns(count: int, x: Array) -> Array:
    """Reshapes and transposes in turn: an index in an index."""
    for turn in range(count):
        x = jnp.transpose(jnp.reshape(x, (8, 64) if turn % 2 else (16, 32)))
    return jnp.tanh(x)


def adafactor(count: int, params: Any, gradients: Any, state: Any) -> Any:
    updates, state = optax.adafactor(1e-3).update(gradients, state, params)
    return optax.apply_updates(params, updates), state


def tensors(count: int) -> tuple[Any, ...]:
    shapes = itertools.cycle([(256, 128), (128,), (128, 256), (64, 128, 3)])
    rng = np.random.default_rng(0)
    params = [jnp.asarray(rng.standard_normal(next(shapes)), jnp.float32) for _ in range(count)]
    return params, [0.1 * p for p in params], optax.adafactor(1e-3).init(params)


@dataclass(frozen=True)
class Program:
    """quick: of CI; full: what is asked for. gpu: as `quick`, where NVIDIA's compiler is slow; 0: the same.

    kernels: at least so many must come of it.
    """

    function: Callable[..., Any]
    args: Callable[[int], tuple[Any, ...]]
    quick: int
    full: int
    kernels: int = 1
    gpu: int = 0

    def of(self, count: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return partial(self.function, count), self.args(count)


PROGRAMS = (
    Program(chain, lambda _: (X,), 1_500, 20_000, kernels=5),
    Program(terms, lambda _: (X, X + 1), 600, 10_000),
    Program(levels, lambda _: (X,), 200, 5_000),
    Program(squares, lambda _: (X,), 40, 1_000),
    Program(loops, lambda _: (X,), 30, 1_000),
    Program(turns, lambda _: (X,), 50, 1_000),
    Program(unlike, lambda n: tuple(jnp.ones((3 + k % 7, 5 + k)) for k in range(n)), 40, 1_000),
    Program(adafactor, tensors, 40, 190, gpu=20),
)


def each(programs: Sequence[Any]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("program", programs, ids=lambda p: p.function.__name__)


EACH = each(PROGRAMS)


def check_on_cpu(program: Program, count: int) -> None:
    function, args = program.of(count)
    found = jstitch.jit(function, options=OPTIONS)(*args)
    record = jstitch.last_report()[-1]
    assert record.kernels >= program.kernels
    assert not record.details.get("refused")
    expected = function(*args)  # op by op: XLA takes minutes for some of these
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


def check_on_h200(program: Program, count: int) -> None:
    """Planned, lowered and built, up to PTX."""
    function, args = program.of(count)
    shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), args)
    jitted = jstitch.jit(function, options=OPTIONS.replace(target="h200"))
    jitted.trace(*shapes).lower(lowering_platforms=("cuda",))
    record = jstitch.last_report()[-1]
    assert record.kernels >= program.kernels
    assert not record.details.get("refused")


@each(one_in(2, PROGRAMS))
def test_a_long_program_is_stitched_on_the_cpu(program: Program) -> None:
    assert sys.getrecursionlimit() == 1000
    check_on_cpu(program, program.quick)


@each(one_in(2, PROGRAMS, first=1))
def test_a_long_program_is_stitched_for_a_gpu(program: Program) -> None:
    pytest.importorskip("numba.cuda")
    assert sys.getrecursionlimit() == 1000
    check_on_h200(program, program.gpu or program.quick)


@pytest.mark.slow
@EACH
def test_a_very_long_program_is_stitched_on_the_cpu(program: Program) -> None:
    check_on_cpu(program, program.full)


@pytest.mark.slow
@EACH
def test_a_very_long_program_is_stitched_for_a_gpu(program: Program) -> None:
    pytest.importorskip("numba.cuda")
    check_on_h200(program, program.full)
