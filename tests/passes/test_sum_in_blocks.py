"""Sums of columns in two steps, few columns made many: the same results, with the digits of `jax.jit`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jstitch
from jstitch.codegen.interpret_kernel import interpret_kernel
from jstitch.ir.graph import Graph
from jstitch.ir.interpret import interpret
from jstitch.ir.verify import check
from jstitch.passes.base.row_access import is_reduction
from jstitch.passes.lower.check_kernel import check_kernel
from jstitch.passes.lower.own_columns import as_they_were
from jstitch.passes.lower.sum_in_blocks import sum_in_blocks
from jstitch.passes.lower.widen_columns import widen_columns
from tests.contexts import CPU_PROFILE, on
from tests.passes.test_own_columns import Array, graph_of, lower

CONTEXT = on(CPU_PROFILE, verify=True)
MONOIDS = (jnp.sum, jnp.max, jnp.min, jnp.prod)
DTYPES = (np.float32, jnp.bfloat16, np.int32, np.int8)


def blocked(graph: Graph) -> Graph:
    return Graph(graph.inputs, tuple(sum_in_blocks(graph.ops)), graph.outputs)


def reductions(graph: Graph) -> int:
    return sum(map(is_reduction, graph.ops))


def numbers(shape: Sequence[int], dtype: Any, seed: int) -> np.ndarray:
    found = np.random.default_rng(seed).uniform(0.9, 1.1, shape)
    whole = np.issubdtype(dtype, np.integer)
    return np.asarray(found * 40 if whole else found).astype(dtype)


@pytest.mark.parametrize("seed", range(40))
def test_reductions_in_blocks_are_the_same(seed: int) -> None:
    random = Random(seed)
    lead = random.choice(((), (3,), (2, 2)))
    middle = random.choice(((700,), (1013,), (29, 31), (2, 3, 130), (40, 1, 20), (5000,)))
    columns = random.choice((1, 3, 5, 7, 10, 13, 16, 40))
    shape, axes = (*lead, *middle, columns), tuple(range(len(lead), len(lead) + len(middle)))
    dtype, reduce = random.choice(DTYPES), random.choice(MONOIDS)
    if reduce is jnp.prod and dtype is jnp.bfloat16:
        reduce = jnp.max
    args = [numbers(shape, dtype, seed)]
    graph = graph_of(lambda x: reduce(x, axes), args, CONTEXT)
    made = blocked(graph)
    if dtype is not jnp.bfloat16:  # between the steps it is f32
        check(made)
    ((found,), (expected,)) = interpret(made, args), interpret(graph, args)
    assert found.dtype == expected.dtype
    if found.dtype.kind == "i":
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_allclose(
            np.float64(found), np.float64(expected), rtol=2e-2 if dtype is jnp.bfloat16 else 1e-3
        )


@pytest.mark.parametrize(
    ("shape", "axes", "steps"),
    [
        ((8, 64, 64, 40), (1, 2), 2),
        ((8, 4000, 40), (1,), 2),
        ((3, 1009, 20), (1,), 3),  # a prime number: a rest
        ((8, 400, 40), (1,), 1),  # short
        ((8, 4000, 4), (1,), 1),  # a vector has four rows
        ((3, 5000, 4), (1,), 2),
        ((5000, 12, 10), (0, 1), 2),  # few columns
        ((5000, 10), (0,), 1),  # rows are whole (`widen_columns`)
        ((100_000, 64), (0,), 1),  # cut where rows are
        ((64, 4000), (1,), 1),  # side by side
    ],
)
def test_which_are_in_blocks(shape: tuple[int, ...], axes: tuple[int, ...], steps: int) -> None:
    graph = graph_of(lambda x: x.sum(axes), [jax.ShapeDtypeStruct(shape, np.float32)], CONTEXT)
    assert reductions(blocked(graph)) == steps


ERRORS = [
    ((8, 64, 64, 40), (1, 2)),
    ((3, 1009, 20), (1,)),
    ((5, 13729, 20), (1,)),
    ((4, 3901, 7), (1,)),
    ((6, 5087, 11), (1,)),
    ((2, 16441, 3), (1,)),
    ((20391, 9, 10), (0, 1)),
]


@pytest.mark.parametrize(("shape", "axes"), ERRORS)
def test_errors_are_no_larger_than_those_of_jax(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    """In sums of numbers of one size, which add up their roundings: twice, and one in the last place."""
    x = numbers(shape, np.float32, 1)
    exact = x.sum(axes, dtype=np.float64)

    def error(jit: Callable[..., Any]) -> float:
        found = np.float64(jit(lambda x: jnp.abs(x).sum(axes))(x))
        return float(np.abs((found - exact) / np.spacing(np.float32(exact))).max())

    options = jstitch.CompileOptions(tune="off", strict=True)
    assert error(lambda f: jstitch.jit(f, options=options)) <= 2 * error(jax.jit) + 1


def program(seed: int) -> tuple[Callable[..., Any], list[np.ndarray]]:
    """Few columns, added up over all rows, and what is made of the sums, of rows and of weights."""
    random = Random(seed)
    columns, rows = (
        random.choice((5, 6, 7, 9, 10, 12, 15)),
        random.choice((4096, 6000, 3330, 60 * 61, 4099, 5003)),
    )
    middle = random.choice(((), (), (3,), (2, 1)))
    shape = (rows, *middle, columns)
    axes = tuple(range(len(shape) - 1))
    reduce, kind = random.choice((jnp.sum, jnp.max)), random.randrange(4)

    def f(x: Array, w: Array, of_rows: Array) -> tuple[Array, ...]:
        y = jnp.tanh(x * w) + of_rows.reshape(rows, *(1 for _ in shape[1:]))
        s = reduce(y, axes)
        if kind == 0:
            return (s,)
        if kind == 1:
            return (y - s, s)
        if kind == 2:
            return (s, (y * y).sum(-1), reduce(y, axes, keepdims=True))
        return (s, (y - s).mean(axes), y.mean(tuple(range(1, len(shape)))))

    return f, [numbers(n, np.float32, seed) for n in (shape, (columns,), (rows,))]


def equal(found: Sequence[Any], expected: Sequence[Any]) -> None:
    for a, b in zip(found, expected, strict=True):
        size = float(np.abs(b).max())
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5 * size)


@pytest.mark.parametrize("seed", range(30))
def test_few_columns_are_widened(seed: int) -> None:
    f, args = program(seed)
    graph = graph_of(f, args, CONTEXT)
    parts = widen_columns(graph.ops, graph.outputs)
    assert parts is not None
    ops, outputs = as_they_were(parts, graph.outputs)
    made = Graph(graph.inputs, tuple(ops), tuple(outputs))
    check(made)
    equal(interpret(made, args), interpret(graph, args))


@pytest.mark.parametrize("seed", range(12))
def test_kernels_of_few_columns(seed: int) -> None:
    f, args = program(seed)
    options = jstitch.CompileOptions(tune="off", strict=True)
    equal(jstitch.jit(f, options=options)(*args), jax.jit(f)(*args))
    if seed < 2:
        graph = graph_of(f, args, CONTEXT)
        kernel = lower(graph, CONTEXT)
        check_kernel(kernel)
        equal(interpret_kernel(kernel, args), interpret(graph, args))


@pytest.mark.parametrize(
    ("f", "shape"),
    [
        (lambda x: x.sum(0), (6000, 16)),  # a vector
        (lambda x: x.sum(0), (6000, 4)),  # a vector has four rows
        (lambda x: x.sum(0), (600, 10)),  # not worth it
        (lambda x: x.sum((0, 1)), (600, 12, 10)),  # wide enough as they are
        (lambda x: (x + jnp.flip(x, 0)).sum(0), (6000, 10)),  # looked at in another way
        (lambda x: x.sum(1), (6000, 10)),
    ],
)
def test_what_is_not_widened(f: Callable[..., Any], shape: tuple[int, ...]) -> None:
    graph = graph_of(f, [jax.ShapeDtypeStruct(shape, np.float32)], CONTEXT)
    assert widen_columns(graph.ops, graph.outputs) is None


@pytest.mark.parametrize("rows", [6001, 6002, 6003, 9973])
@pytest.mark.parametrize("columns", [3, 5, 9, 40])
def test_rows_that_fill_no_step(rows: int, columns: int) -> None:
    """The last program takes those that are left over."""

    def f(x: Array) -> tuple[Array, Array]:
        return (x * x).sum(0), jnp.exp(x).max(0)

    x = numbers((rows, columns), np.float32, rows)
    options = jstitch.CompileOptions(tune="off", strict=True)
    equal(jstitch.jit(f, options=options)(x), jax.jit(f)(x))
    graph = graph_of(f, [x], CONTEXT)
    kernel = lower(graph, CONTEXT)
    check_kernel(kernel)
    if columns == 5:
        equal(interpret_kernel(kernel, [x]), interpret(graph, [x]))


def test_rows_that_are_left_over_need_a_monoid() -> None:
    """Two results of one reduction: nothing says how those of two halves become one."""

    def f(x: Array) -> tuple[Array, ...]:
        both = jax.lax.reduce(
            (x, 2 * x), (0.0, 0.0), lambda a, b: (a[0] + b[0], jnp.maximum(a[1], b[1])), (0,)
        )
        return (*both, jnp.tanh(x).sum(0))

    for rows in (5003, 5000):
        x = numbers((rows, 10), np.float32, 1)
        graph = graph_of(f, [x], CONTEXT)
        assert (widen_columns(graph.ops, graph.outputs) is None) == (rows == 5003)
        options = jstitch.CompileOptions(tune="off", strict=True)
        equal(jstitch.jit(f, options=options)(x), jax.jit(f)(x))
