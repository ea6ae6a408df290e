"""Rows of a few elements by components: the same numbers, in loops over the rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jstitch
from benchmarks.grammar.compare import require_right
from benchmarks.grammar.points import MAKERS, OPS
from benchmarks.grammar.program import Program
from jstitch.codegen.kernel_ir import Kernel
from jstitch.frontend.target import cpu_profile
from jstitch.ir.graph import Graph
from jstitch.ir.interpret import interpret
from jstitch.ir.verify import check
from jstitch.passes.graph.canonicalize import canonicalize
from jstitch.passes.lower.find_components import LONGEST, find_components, same_elements
from jstitch.passes.lower.lower_kernel import lower_kernel
from jstitch.passes.lower.take_components import take_components, with_components
from tests.passes.product_graphs import arrays, graph_of

OPTIONS = jstitch.CompileOptions(tune="off", strict=True, verify=True)
X, Y = arrays((300, 3), (300, 3))


def by_components(f: Callable[..., Any], *args: Any) -> tuple[Graph, Graph]:
    """The graph, and what it becomes, which means the same."""
    before = canonicalize(graph_of(f, args))
    ops, outputs = with_components(before.ops, before.outputs)
    after = check(Graph(before.inputs, tuple(ops), tuple(outputs)), "take_components")
    for a, b in zip(interpret(before, args), interpret(after, args), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-6, atol=2e-6)
    return before, after


def kernel_of(f: Callable[..., Any], *args: Any, components: bool = True) -> Kernel:
    graph = canonicalize(graph_of(f, args))
    profile = replace(cpu_profile(OPTIONS), components=components)
    return lower_kernel("k", graph.ops, graph.inputs, graph.outputs, profile)


def unit(x: Any) -> Any:
    return x / jnp.sqrt((x * x).sum(-1, keepdims=True) + 1)


def normalised(x: Any, y: Any) -> Any:
    return x / jnp.linalg.norm(x, axis=-1, keepdims=True) + y[:, ::-1]


def crossed(x: Any, y: Any) -> Any:
    return jnp.cross(unit(x), y)


def frames(x: Any, y: Any) -> Any:
    """Three by three."""
    return jnp.stack([unit(x), y, jnp.cross(x, y)], -1)


def turned_frames(x: Any, y: Any) -> Any:
    return jnp.swapaxes(frames(x, y), -1, -2)[:, ::-1]


def unstacked(x: Any, y: Any) -> Any:
    a, b, c = jnp.moveaxis(unit(x), -1, 0)
    return jnp.stack([a * b, b * c, c * a], 0) + y.T


def homogeneous(x: Any, y: Any) -> Any:
    longer = jnp.pad(x, ((0, 0), (1, 2)), constant_values=2.0)
    return longer[:, 1:] * longer[:, :-1], longer.max(-1) + y[:, 0]


def started(x: Any, y: Any) -> Any:
    return jax.lax.reduce(x * x[:, ::-1], 3.0, jax.lax.mul, (1,)), jax.lax.reduce(y, 0.5, jax.lax.max, (0, 1))


def means(x: Any, y: Any) -> Any:
    """Over elements of rows, and over rows of what these leave."""
    z = x[:, ::-1] * y
    return z.mean(1), z.std(-1).mean(), z.max(-1).sum()


def shared(x: Any, y: Any) -> Any:
    """A value of all rows in every component, which is also returned."""
    length = jnp.sqrt((x * y[:, ::-1]).sum(-1) ** 2)
    return jnp.broadcast_to(length[:, None], x.shape), length


def filled(x: Any, y: Any) -> Any:
    """Components that are numbers, and one value for several."""
    ones, first = jnp.ones_like(x[:, :1]), unit(x)[:, :1]
    return jnp.concatenate([unit(x), ones, first, first, y[:, :1], ones * 2], -1)


def numbered(x: Any, y: Any) -> Any:
    numbers = jax.lax.broadcasted_iota(jnp.float32, x.shape, 1)
    rows = jax.lax.broadcasted_iota(jnp.float32, x.shape, 0)
    return (unit(x) * numbers + rows) * jnp.asarray([1.0, 2.0, 5.0]) - y[:, 1:2]


def looked_up(x: Any, y: Any) -> Any:
    """By indices that are components, in a table that is none."""
    places = jnp.clip(jnp.floor(x * 100), 0, 299).astype(jnp.int32)
    return y[places[:, 0] % 300] * unit(x) - x[:, 1:2], y[places[:, 1], places[:, 2] % 3] + x[:, 2]


def pairs(x: Any, y: Any) -> Any:
    apart = x[:, None] - y[None, :50]
    return jnp.exp(-(apart**2).sum(-1)).sum(1)


def narrowed(x: Any, y: Any) -> Any:
    """Padding that takes away all but one element, of which there may be none."""
    cut, gone = (jax.lax.pad(x * 2, np.float32(5), [(0, 0, 0), edges]) for edges in ((-1, -1, 0), (-3, 1, 0)))
    return cut * unit(y)[:, ::-1], gone + x[:, 1:2]


def reduced_together(x: Any, y: Any) -> Any:
    """Two reductions in one are no chains, but what they leave has components."""
    rows = jnp.broadcast_to(x[:, :, None] * y[:, None], (300, 3, 3))

    def both(a: Any, b: Any) -> Any:
        return a[0] + b[0], jnp.maximum(a[1], b[1])

    total, most = jax.lax.reduce((rows, rows * 2), (np.float32(0), np.float32(-9)), both, (2,))
    return unit(total[:, ::-1] * most)


CASES = (
    *(normalised, filled, crossed, frames, turned_frames, unstacked, homogeneous, started, means, shared),
    *(numbered, looked_up, pairs, narrowed, reduced_together),
)


@pytest.mark.parametrize("f", CASES)
def test_same_numbers(f: Callable[..., Any]) -> None:
    before, _ = by_components(f, X, Y)
    assert find_components(before.ops)
    found = jstitch.jit(f, options=OPTIONS)(X, Y)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(jax.jit(f)(X, Y)), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("f", [normalised, crossed, unstacked, homogeneous])
def test_rows_are_the_only_loop(f: Callable[..., Any]) -> None:
    """Nothing of a row passes through memory."""
    kernel = kernel_of(f, X, Y)
    assert not kernel.arena
    assert not kernel.scratch
    assert _only_rows(kernel)
    assert not _only_rows(kernel_of(f, X, Y, components=False))


def _only_rows(kernel: Kernel) -> bool:
    lanes = [lane for phase in kernel.phases for lane in phase.lanes]
    nests = [nest for lane in lanes for stage in lane.stages for nest in stage.nests]
    return {lane.rows for lane in lanes} == {len(X)} and all(len(nest.loops) == 1 for nest in nests)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "int32"])
def test_types(dtype: str) -> None:
    """Sums of narrow floats are rounded once."""
    x = jnp.asarray(X * 3).astype(dtype)

    def f(x: Any) -> Any:
        y = jnp.concatenate([x[:, 1:], x[:, :1] * 2], 1)
        return y, y.max(1), jnp.sum(y, 1, dtype=x.dtype)

    exact = np.asarray(x, np.float64)
    y = np.concatenate([exact[:, 1:], exact[:, :1] * 2], 1)
    for found, expected in zip(jstitch.jit(f, options=OPTIONS)(x), (y, y.max(1), y.sum(1)), strict=True):
        assert found.dtype == x.dtype
        np.testing.assert_allclose(np.asarray(found, np.float64), expected, rtol=2**-8, atol=1e-6)


def test_masks() -> None:
    x = X > 0

    def f(x: Any) -> Any:
        y = jnp.concatenate([x[:, 1:], x[:, :1] ^ x[:, 1:2]], 1)
        return y, y.any(1), y.all(1), y.sum(1)

    for a, b in zip(jstitch.jit(f, options=OPTIONS)(x), jax.jit(f)(x), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def test_nan_and_infinity() -> None:
    x = jnp.asarray(X).at[0, 0].set(jnp.nan).at[1, 1].set(jnp.inf).at[2].set(-jnp.inf)

    def f(x: Any) -> Any:
        return x.max(1) - x[:, 0], jax.nn.softmax(x, -1), jnp.where(x[:, :1] > 0, x, 0).min(-1)

    for a, b in zip(jstitch.jit(f, options=OPTIONS)(x), jax.jit(f)(x), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_sums_of_negative_zeros() -> None:
    """They start from 0.0, so that they are no negative zero; others are the only ones."""
    x = np.full((300, 3), -0.0, np.float32)

    def f(x: Any) -> Any:
        return x[:, ::-1].sum(1), jax.lax.reduce(x, np.float32(-0.0), jax.lax.add, (1,)), x[:, 1:].max(1)

    for a, b in zip(jstitch.jit(f, options=OPTIONS)(x), jax.jit(f)(x), strict=True):
        np.testing.assert_array_equal(np.signbit(a), np.signbit(b))


@pytest.mark.parametrize(
    ("f", "shape"),
    [
        (lambda x: x * 2 + 1, (300, 3)),  # all elements are treated alike
        (lambda x: x.sum(1), (300, LONGEST + 1)),
        (lambda x: x[:, ::-1] * 2 - jnp.roll(x, 1, 1), (300, 3)),  # no element waits for all of its row
        (lambda x: x.sum(0), (3, 300)),  # rows are long
        (lambda x: jax.nn.softmax(x, 1), (300, 3)),  # all elements stay in their places
        (lambda x: (x[:, ::-1] / x.max(1, keepdims=True)).mean(0), (300, 3)),  # rows are reduced, too
        (lambda x: x.sum(1), (300, 5, 70)),
        (lambda x: x.sum(1), (20, 3)),  # few rows
        (lambda x: x.sum(1), (0, 3)),
        (lambda x: (x / x.sum(1, keepdims=True)).reshape(-1), (300, 3)),  # which wants them side by side
    ],
)
def test_left_alone(f: Callable[..., Any], shape: tuple[int, ...]) -> None:
    graph = canonicalize(graph_of(f, arrays(shape)))
    assert not find_components(graph.ops)
    assert take_components(graph.ops, graph.outputs) is None


def test_rows_that_are_cut_out_of_a_long_one() -> None:
    _, after = by_components(lambda x: jnp.cross(unit(x[:900].reshape(300, 3)), Y), arrays((1000,))[0])
    assert not any(op.result.shape == (300, 3) for op in after.ops[:-4] if op.name == "stablehlo.multiply")


def test_same_elements() -> None:
    assert list(same_elements((50, 3, 1, 4), (50, 12))) == [([0], [0]), ([1, 3], [1])]
    assert list(same_elements((6, 4), (3, 8))) == [([0, 1], [0, 1])]
    assert list(same_elements((0, 4), (0,))) == []


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("shape", [(257, 4), (5, 40, 3), (130, 8)])
def test_each_of_the_grammar(op: Callable[[Any], Any], shape: tuple[int, ...]) -> None:
    (x,) = arrays(shape)
    by_components(op, x)
    found = jstitch.jit(op, options=OPTIONS)(x)
    np.testing.assert_allclose(found, jax.jit(op)(x), rtol=3e-5, atol=3e-5)


@pytest.mark.parametrize("seed", range(24))
def test_drawn(seed: int) -> None:
    random = Random(seed)
    shape = random.choice([(613,), (97, 12), (11, 70, 3), (300, 7)])
    dtype = random.choice(["float32", "float32", "bfloat16"])
    wrapper = random.choice(["value", "value and gradient", "vmap", "turns"])
    steps = [step for _ in range(2) if (step := random.choice(MAKERS)(random, shape, dtype)) is not None]
    program = Program(shape, dtype, tuple(steps[:1]), wrapper, seed)
    args = program.args()
    require_right(program, jstitch.jit(program, options=OPTIONS)(*args), jax.jit(program)(*args))
