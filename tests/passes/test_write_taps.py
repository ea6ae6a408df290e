"""Convolutions of few terms become multiplications and sums, with the same results, on CPUs."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jstitch
from jstitch.ir.graph import Graph, Op
from jstitch.ir.interpret import interpret
from jstitch.ir.ops import KERNEL
from jstitch.ir.verify import check
from jstitch.passes.base.convolution import CONVOLUTION, Convolution
from jstitch.passes.graph.write_taps import write_taps
from tests.codegen.cuda.stitched import stitch_for_cpu
from tests.contexts import CPU, H200
from tests.passes import test_own_columns
from tests.passes.product_graphs import graph_of
from tests.shares import one_in

OPTIONS = jstitch.CompileOptions(tune="off", strict=True, verify=True)
Drawn = tuple[Callable[..., Any], list[np.ndarray]]


def convolutions(graph: Graph) -> int:
    return sum(op.name == CONVOLUTION for op in graph.walk())


def drawn(random: Random, largest: int = 9) -> Drawn:
    """Any layout, groups, strides, dilations and padding, also negative."""
    rank = random.randint(1, 3)
    groups, features, multiplier = (random.choice(sizes) for sizes in ((1, 2, 5), (1, 1, 2, 3), (1, 1, 2, 4)))
    window = [random.randint(1, 3 if rank > 1 else 7) for _ in range(rank)]
    sizes = [random.randint(3, largest) for _ in range(rank)]
    strides, left, right = ([random.choice((1, 1, 2)) for _ in range(rank)] for _ in range(3))
    padding = [(random.randint(-1, 4), random.randint(0, 4)) for _ in range(rank)]
    spatial = "DHW"[:rank]
    orders = ["NC" + spatial, "OI" + spatial, "NC" + spatial]
    numbers = tuple("".join(random.sample(order, len(order))) for order in orders)
    named = dict(zip("NC" + spatial, (random.randint(1, 3), groups * features, *sizes), strict=True))
    kernel = dict(zip("OI" + spatial, (groups * multiplier, features, *window), strict=True))
    made = np.random.default_rng(random.randrange(1 << 30))
    args = [
        made.standard_normal([shape[c] for c in order]).astype(np.float32)
        for shape, order in ((named, numbers[0]), (kernel, numbers[1]))
    ]

    def f(x: Any, k: Any) -> Any:
        return lax.conv_general_dilated(
            x, k, strides, padding, left, right, numbers, feature_group_count=groups
        )

    return f, args


def is_small(op: Op) -> bool:
    """Whether a convolution makes anything, of so few terms."""
    if op.name != CONVOLUTION:
        return True
    conv = Convolution(op)
    return op.result.tensor.size > 0 and conv.terms <= 64 and conv.terms * conv.multiplier <= 512


def exactly(f: Callable[..., Any], args: list[np.ndarray]) -> list[Any]:
    """XLA's results in float64. In float32 it errs where a stride's gradient has negative padding."""
    with jax.enable_x64(True):
        return jax.tree.leaves(jax.jit(f)(*(np.float64(x) for x in args)))


def gradients(f: Callable[..., Any]) -> Callable[..., Any]:
    return jax.grad(lambda x, k: jnp.sum(jnp.sin(f(x, k))), (0, 1))


@pytest.mark.parametrize(
    "seed", [*range(40), *(pytest.param(n, marks=pytest.mark.slow) for n in range(40, 1000))]
)
def test_drawn_convolutions(seed: int) -> None:
    f, args = drawn(Random(seed))
    before = graph_of(f, args)
    after = check(write_taps(before, CPU))
    if not all(map(is_small, before.ops)):
        assert after is before
        return
    assert convolutions(after) == 0
    np.testing.assert_allclose(interpret(after, args), exactly(f, args), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("seed", one_in(40, range(300)))
def test_drawn_kernels(seed: int) -> None:
    """Values and gradients, which have windows as large as the operand, and padding from behind."""
    f, args = drawn(Random(1000 + seed), largest=12)
    for g in (lambda *xs: jnp.tanh(f(*xs)), gradients(f)):
        found = jax.tree.leaves(jstitch.jit(g, options=OPTIONS)(*args))
        for a, b in zip(found, exactly(g, args), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


X, K = np.ones((2, 12, 12, 8), np.float32), np.ones((3, 3, 1, 8), np.float32)
LAYOUT = ("NHWC", "HWIO", "NHWC")


def depthwise(x: Any, k: Any) -> Any:
    return lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=LAYOUT, feature_group_count=8)


def test_a_depthwise_step_has_no_convolution() -> None:
    """Forward, and both gradients."""
    step = jax.value_and_grad(lambda x, k: jnp.sum(jnp.sin(depthwise(x, k))), (0, 1))
    graph = graph_of(step, [X, K])
    assert convolutions(graph) == 3
    assert convolutions(check(write_taps(graph, CPU))) == 0


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, jnp.float32])
def test_sums_are_rounded_once(dtype: Any) -> None:
    made = np.random.default_rng(0)
    x, k = (jnp.asarray(made.standard_normal(a.shape), dtype) for a in (X, K))
    found = jstitch.jit(depthwise, options=OPTIONS)(x, k)
    wide = jax.jit(depthwise)(x.astype(jnp.float32), k.astype(jnp.float32)).astype(dtype)
    assert found.dtype == dtype
    np.testing.assert_allclose(np.float32(found), np.float32(wide), rtol=2**-8, atol=1e-6)


def test_zeros_behind_an_edge_are_multiplied() -> None:
    """As the specification has it: their products with an infinite weight are no numbers."""
    k = K.copy()
    k[0, 0, 0, 3] = np.inf
    found, wanted = (jit(depthwise)(X, k) for jit in (jstitch.jit, jax.jit))
    np.testing.assert_array_equal(found, wanted)
    assert np.isnan(found[:, 0, :, 3]).all()


@pytest.mark.parametrize(
    ("features", "out", "dtype"),
    [(8, 8, np.float32), (1, 256, np.float32), (1, 8, np.int32)],  # 72 terms; 9 terms of 256; integers
)
def test_others_stay(features: int, out: int, dtype: Any) -> None:
    groups = 8 if features == 8 and dtype is np.int32 else 1

    def f(x: Any, k: Any) -> Any:
        return lax.conv_general_dilated(
            x, k, (1, 1), "SAME", dimension_numbers=LAYOUT, feature_group_count=groups
        )

    graph = graph_of(f, [np.ones((2, 12, 12, features), dtype), np.ones((3, 3, features, out), dtype)])
    assert write_taps(graph, CPU) is graph


def test_gpus_have_libraries_for_them() -> None:
    graph = graph_of(depthwise, [X, K])
    assert write_taps(graph, H200) is graph


def test_windows_are_taken_from_what_is_in_memory() -> None:
    """The gradient's kernel reads the operand, and not what the forward one multiplied."""
    x = np.ones((4, 32, 32, 16), np.float32)

    def step(x: Any, k: Any, w: Any) -> Any:
        y = lax.conv_general_dilated(
            jax.nn.relu(x), k, (1, 1), "SAME", dimension_numbers=LAYOUT, feature_group_count=16
        )
        return jnp.sum(jnp.sin(y @ w))

    graph = test_own_columns.graph_of(
        jax.grad(step, (1, 2)), [x, np.ones((3, 3, 1, 16), np.float32), np.eye(16, dtype=np.float32)], CPU
    )
    written = [len(op.results) for op in stitch_for_cpu(graph).ops if op.name == KERNEL]
    assert len(written) > 1
    assert max(written) <= 3
