"""Loops that walk through memory as one are one; kernels compute the same."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jstitch.codegen.interpret_kernel import interpret_kernel
from jstitch.codegen.kernel_ir import Buffer, Kernel, Let, Load, Loop, Nest, Space, Store
from jstitch.codegen.merge_loops import merge_loops
from jstitch.ir.expr import Number, Ref
from jstitch.ir.index import Index, Var, add, mod, mul, var
from jstitch.ir.interpret import interpret
from jstitch.ir.types import DType, TensorType
from jstitch.passes.lower.check_kernel import check_kernel
from tests.contexts import CPU, on
from tests.passes.test_own_columns import graph_of, lower

ALL = on(CPU.profile, tune="off")
X = Buffer("x", TensorType((4, 3, 2), DType.F32), Space.ARG, 0)
LOOPS = tuple(Loop(Var(name, size), 0, size) for name, size in (("i0", 4), ("i1", 3), ("i2", 2)))


def nests(kernel: Kernel) -> list[Nest]:
    return [n for p in kernel.phases for lane in p.lanes for s in lane.stages for n in s.nests]


def at(*steps: int) -> Index:
    i, j, k = (mul(var(loop.var), step) for loop, step in zip(LOOPS, steps, strict=True))
    return add(add(i, j), k)


def copied(read: Index, depth: int = 3) -> Nest:
    """Elements of x go to where they are in memory."""
    return Nest(LOOPS, (), (Load("v", X, read, depth), Store(X, at(6, 2, 1), Ref("v"), 3)), ())


def extents(nest: Nest) -> list[int]:
    return [loop.hi for loop in nest.loops]


def test_what_lies_together_is_one_loop() -> None:
    assert extents(merge_loops(copied(at(6, 2, 1)))) == [24]
    assert extents(merge_loops(copied(at(0, 2, 1)))) == [4, 6]
    assert extents(merge_loops(copied(at(6, 2, 0), depth=2))) == [12, 2]
    assert extents(merge_loops(copied(at(2, 8, 1)))) == [4, 3, 2]


def test_what_is_done_between_keeps_loops_apart() -> None:
    whole = copied(at(6, 2, 1))
    between = replace(whole, body=(Let("w", Number(Index(1)), 2), *whole.body))
    assert extents(merge_loops(between)) == [12, 2]
    rows = replace(whole, loops=(Loop(Var("r", 4), 0, 4), *LOOPS[1:]))
    assert extents(merge_loops(rows)) == [4, 6]


def test_parts_of_indices_count() -> None:
    assert extents(merge_loops(copied(mod(at(6, 2, 1), 5)))) == [24]
    assert extents(merge_loops(copied(mod(at(6, 1, 1), 5)))) == [4, 3, 2]


def _program(random: Random) -> tuple[Callable[..., Any], list[np.ndarray]]:
    """What is reduced over some dimensions, of values that have only some of them, or rows looked up."""
    shape = tuple(random.choice((1, 2, 3, 5, 9)) for _ in range(random.randint(3, 5)))
    axes = tuple(sorted(random.sample(range(len(shape)), random.randint(1, len(shape)))))
    own = tuple(size if random.random() < 0.5 else 1 for size in shape)
    kind, lookup = random.choice(("sum", "max", "softmax", "norm", "argmax")), random.random() < 0.4

    def f(x: Any, w: Any, ids: Any) -> Any:
        y = jnp.exp(-jnp.abs(x[ids] if lookup else x)) * w
        match kind:
            case "softmax":
                return jax.nn.softmax(y, axes)
            case "norm":
                return (y - y.mean(axes, keepdims=True)) * jax.lax.rsqrt(y.var(axes, keepdims=True) + 1e-3)
            case "argmax":
                return jnp.argmax(y, axes[0])
        return getattr(y, kind)(axes)

    numbers = np.random.default_rng(random.randrange(1 << 30))
    arrays = [numbers.standard_normal(s).astype(np.float32) for s in (shape, own)]
    return f, [*arrays, numbers.integers(0, shape[0], shape[0]).astype(np.int32)]


@pytest.mark.parametrize("seed", range(12))
def test_drawn_kernels_compute_the_same(seed: int) -> None:
    random = Random(seed)
    for _ in range(5):
        f, args = _program(random)
        graph = graph_of(f, args, ALL)
        kernel = lower(graph, ALL)
        check_kernel(kernel)
        assert all(merge_loops(n) == n for n in nests(kernel) if type(n) is Nest)
        for a, b in zip(interpret_kernel(kernel, args), interpret(graph, args), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_sums_over_dimensions_that_a_gather_leaves_together() -> None:
    def f(x: Any, ids: Any) -> Any:
        return jnp.exp(x[ids]).sum((1, 2, 3))

    args = [np.ones((11, 3, 8, 4), np.float32), np.arange(11, dtype=np.int32)]
    kernel = lower(graph_of(f, args, ALL), ALL)
    loops = [[loop.hi for loop in n.loops if loop.var.name != "r"] for n in nests(kernel)]
    assert 96 in itertools.chain.from_iterable(loops)
