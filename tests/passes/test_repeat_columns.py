"""Numbers of few columns lie in a tile as often as vectors read them, with the same results."""

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
from jstitch.codegen.kernel_ir import Kernel, Load
from jstitch.codegen.print_kernel import print_kernel
from jstitch.passes.lower.check_kernel import check_kernel
from jstitch.passes.schedule.repeat_columns import MOST, repeat_columns
from tests.contexts import CPU_PROFILE, on
from tests.passes.test_kernel_passes import steps
from tests.passes.test_own_columns import Array, graph_of, lower

CONTEXT = on(CPU_PROFILE, verify=True)
OPTIONS = jstitch.CompileOptions(tune="off", strict=True)


def kernel_of(f: Callable[..., Any], *args: np.ndarray) -> Kernel:
    return lower(graph_of(f, list(args), CONTEXT), CONTEXT)


def array(shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray:
    found = np.random.default_rng(sum(shape)).uniform(0.5, 1.5, shape)
    return np.asarray(found * (40 if np.issubdtype(dtype, np.integer) else 1)).astype(dtype)


def drawn(seed: int) -> tuple[Callable[..., Any], list[np.ndarray]]:
    """What few columns have (arguments, sums over all rows) meets what rows have, in several types."""
    random = Random(seed)
    columns, runs = random.choice((2, 3, 5, 7, 12, 20, 33)), random.choice((6, 8, 15, 22))
    shape = random.choice(((40, runs, columns), (7, 3, runs, columns), (1, 60, runs, columns)))
    dtype = random.choice((np.float32, np.float32, jnp.bfloat16, np.int32))
    kind = random.randrange(4)

    def f(x: Array, w: Array, b: Array) -> tuple[Array, ...]:
        y = x * w + b
        if kind == 0:
            return (y,)
        if kind == 1:
            return y, jnp.where(y > b, y, w).max(0)
        if kind == 2:
            return (y - y.max(tuple(range(x.ndim - 1)))) * w, y.sum(-1)
        return (y * x[..., :1], jnp.abs(y - b).astype(jnp.float32).sum(tuple(range(1, x.ndim))))

    return f, [array(shape, dtype), array((columns,), dtype), array((columns,), dtype)]


@pytest.mark.parametrize(
    "seed", [*range(30), *(pytest.param(n, marks=pytest.mark.slow) for n in range(30, 400))]
)
def test_drawn_kernels(seed: int) -> None:
    f, args = drawn(seed)
    kernel = kernel_of(f, *args)
    expected = interpret_kernel(kernel, args, Random(seed))
    for name, after in steps(kernel, CONTEXT):
        assert check_kernel(after) == (), (name, print_kernel(after))
        for a, b in zip(interpret_kernel(after, args, Random(seed)), expected, strict=True):
            np.testing.assert_array_equal(a, b)
    found, theirs = jstitch.jit(f, options=OPTIONS)(*args), jax.jit(f)(*args)
    for a, b in zip(found, theirs, strict=True):
        assert a.dtype == b.dtype
        error = 5e-2 if args[0].dtype == jnp.bfloat16 else 1e-5
        size = float(np.abs(np.float64(b)).max())
        np.testing.assert_allclose(np.float64(a), np.float64(b), rtol=error, atol=error * size)


def test_most_drawn_kernels_have_tiles() -> None:
    kernels = [kernel_of(*_flat(drawn(seed))) for seed in range(24)]
    assert sum(repeat_columns(kernel) is not kernel for kernel in kernels) >= 8


def _flat(made: tuple[Callable[..., Any], list[np.ndarray]]) -> tuple[Any, ...]:
    return made[0], *made[1]


def scaled(x: Array, w: Array) -> Array:
    return jnp.tanh(x * w)


def test_a_tile_is_filled_once_and_read_by_one_loop() -> None:
    kernel = repeat_columns(kernel_of(scaled, array((500, 64, 3)), array((3,))))
    (lane,) = kernel.phases[0].lanes
    fill, stage = lane.stages
    assert [fill.once, stage.once] == [True, False]
    assert [loop.hi for loop in stage.nests[0].loops] == [1, 192]
    assert {tile.name for tile in lane.common} == {"e0"}


@pytest.mark.parametrize("rows", [100, 10_000, 4 * 1009])
def test_no_tile_is_large(rows: int) -> None:
    """Of many turns it has some of, a whole number of times."""
    kernel = repeat_columns(kernel_of(scaled, array((12, rows, 5)), array((5,))))
    sizes = [tile.type.size for lane in kernel.phases[0].lanes for tile in lane.common]
    assert 0 < max(sizes, default=0) <= MOST
    assert sizes[0] % 5 == 0


@pytest.mark.parametrize("shape", [(100_003, 3), (12, 4036, 5), (3, 7, 2003, 11)])
def test_rows_of_few_elements_are_made_many(shape: tuple[int, ...]) -> None:
    """Rows that are left over, of a prime number of them, are as they were."""
    args = [array(shape), array(shape[-1:])]
    kernel = kernel_of(scaled, *args)
    assert max(lane.rows for lane in kernel.phases[0].lanes) * 5 < np.prod(shape[:-1])
    found = jstitch.jit(scaled, options=OPTIONS)(*args)
    np.testing.assert_allclose(found, jax.jit(scaled)(*args), rtol=1e-6)


@pytest.mark.parametrize(
    ("f", "shapes"),
    [
        (scaled, ((500, 64, 32), (32,))),  # whole vectors
        (scaled, ((500, 64, 130), (130,))),  # many
        (scaled, ((500, 64, 3), (64, 1))),  # of rows
        (lambda x, w: x * w.max(-1, keepdims=True), ((500, 64, 3), (500, 1, 3))),  # of each row
        (lambda x, w: jnp.tanh(x) * w.sum(), ((500, 64, 3), (3,))),  # of none
        (lambda x, w: (x * w).sum(-1), ((500, 64, 3), (3,))),  # the inner loop adds up
        (scaled, ((500, 1009, 5), (500, 1, 5))),
    ],
)
def test_what_is_not_repeated(f: Callable[..., Any], shapes: tuple[tuple[int, ...], ...]) -> None:
    kernel = kernel_of(f, *map(array, shapes))
    assert repeat_columns(kernel) is kernel


def test_what_is_written_in_place_is_not_repeated() -> None:
    """A tile would have what was there before."""
    args = [array((500, 64, 3)), array((3,))]
    f = jax.jit(lambda x, w: (scaled(x, w), w + 1), donate_argnums=1)
    found = jstitch.jit(f.__wrapped__, donate_argnums=1, options=OPTIONS)(*map(jnp.asarray, args))
    for a, b in zip(found, f.__wrapped__(*args), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_loads_are_those_of_the_same_numbers() -> None:
    """With an offset: of columns 2, 3 and 4 of a wider argument."""

    def f(x: Array, w: Array) -> Array:
        return jnp.tanh(x * w[2:5])

    args = [array((500, 64, 3)), array((9,))]
    kernel = repeat_columns(kernel_of(f, *args))
    loads = [i for *_, i in kernel.instructions() if isinstance(i, Load) and i.buffer is kernel.args[1]]
    assert not loads or all(i.depth == 2 for i in loads)
    np.testing.assert_allclose(jstitch.jit(f, options=OPTIONS)(*args), jax.jit(f)(*args), rtol=1e-6)
