"""Sums over concatenates and pads: a loop for each side, that goes on where the last one ended."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jstitch
from jstitch.codegen.kernel_ir import Kernel, Load, Nest
from jstitch.ir.expr import Ref
from jstitch.ir.ops import KERNEL
from tests.codegen.cuda.stitched import PROFILES, stitch, stitch_for_cpu
from tests.contexts import CPU, H200
from tests.passes.test_own_columns import graph_of

OPTIONS = jstitch.CompileOptions(tune="off", strict=True, verify=True)


def nests(kernel: Kernel) -> list[Nest]:
    return [n for p in kernel.phases for lane in p.lanes for s in lane.stages for n in s.nests]


def joined(x: Any) -> Any:
    return jnp.concatenate([x, jnp.square(x)], -1).sum(-1)


X = np.ones((12, 100), np.float32)


def test_each_side_has_a_loop() -> None:
    """Without tests of where an element is from."""
    made = stitch_for_cpu(graph_of(joined, [X], CPU))
    (kernel,) = (op.attrs["kernel"] for op in made.ops if op.name == KERNEL)
    first, second = (n for n in nests(kernel) if n.accumulators)
    for n in (first, second):
        assert n.loops[-1].hi == 100
        assert sum(isinstance(i, Load) and i.buffer.name == "a0" for i in n.body) == 1
    assert [isinstance(n.accumulators[0].init, Ref) for n in (first, second)] == [False, True]


def test_gpus_choose_element_by_element() -> None:
    (kernel,) = stitch(graph_of(joined, [X], H200), PROFILES["h200"]).kernels
    assert len([n for n in nests(kernel) if n.accumulators]) == 1


def _maker(random: Random) -> Callable[..., Any]:
    """An array with seams along one of its axes, and what is reduced of it, over any."""
    axis, over = random.randrange(2), random.choice((0, 1, (0, 1)))
    kind = random.choice(("concatenate", "pad", "both", "stack"))
    names = ("sum", "max", "mean", "var", "prod", "min")
    name = random.choice(names if over == (0, 1) else (*names, "argmax"))

    def f(x: Any, y: Any) -> Any:
        width = [(2, 3) if d == axis else (0, 0) for d in range(2)]
        match kind:
            case "pad":
                z = jnp.pad(x, width, constant_values=0.5)
            case "both":
                z = jnp.pad(jnp.concatenate([x, 2 * y], axis), width)
            case "stack":
                z = jnp.stack([x, y], -1).reshape(x.shape[0], -1)
            case _:
                z = jnp.concatenate([x, y, jnp.sin(x)], axis)
        z = jnp.tanh(z) if name == "prod" else z
        kept = getattr(jnp, name)(z, over, keepdims=True)
        return z - kept.astype(z.dtype), kept

    f.__name__ = name
    return f


@pytest.mark.parametrize(
    "seed", [*range(6), *(pytest.param(n, marks=pytest.mark.slow) for n in range(6, 300))]
)
def test_drawn_seams(seed: int) -> None:
    random, numbers = Random(seed), np.random.default_rng(seed)
    shape = random.choice(((5, 7), (40, 33), (1, 9), (64, 1), (3, 5000), (700, 12)))
    f = _maker(random)
    dtype = jnp.float32 if f.__name__ == "argmax" else random.choice((jnp.float32, jnp.bfloat16))
    args = [jnp.asarray(numbers.standard_normal(shape), dtype) for _ in range(2)]
    found, theirs = jstitch.jit(f, options=OPTIONS)(*args), jax.jit(f)(*args)
    for a, b in zip(found, theirs, strict=True):
        a, b = (np.asarray(v, np.float64) for v in (a, b))
        scale = float(np.abs(b).max(initial=1.0))
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=scale * (1e-5 if dtype == jnp.float32 else 3e-2))


@pytest.mark.parametrize("width", [10, 38, 40])
def test_a_step_of_several_rows_is_not_cut_at_a_seam_of_rows(width: int) -> None:
    """Sums over rows take two at a time: one nest has both, also where a row is told by its number."""
    numbers = np.random.default_rng(width)
    args = [numbers.standard_normal(s, np.float32) for s in ((1, 7), (7, width), (width,), (width, 3), (3,))]

    def loss(x: Any, w: Any, b: Any, v: Any, c: Any) -> Any:
        y = jax.lax.cumprod(jnp.tanh(x @ w + b), 1) @ v + c
        return (y * jnp.cos(jnp.arange(3.0))).sum()

    f = jax.value_and_grad(loss, (0, 1, 2, 3, 4))
    options = jstitch.CompileOptions(tune="off", strict=True)
    found, expected = jstitch.jit(f, options=options)(*args), jax.jit(f)(*args)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
