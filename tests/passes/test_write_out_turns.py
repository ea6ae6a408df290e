"""Loops over what is repeated, interleaved or paired: turns of a few elements, without divided indices."""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jstitch
from jstitch.codegen.interpret_kernel import interpret_kernel
from jstitch.codegen.kernel_ir import Kernel, Load, Store
from jstitch.ir.graph import Graph
from jstitch.ir.index import FloorDiv, Index, Mod, atoms
from jstitch.ir.ops import KERNEL
from tests.codegen.cuda.stitched import execute, stitch_for_cpu
from tests.contexts import CPU
from tests.passes.test_own_columns import graph_of
from tests.passes.test_seams import nests

OPTIONS = jstitch.CompileOptions(tune="off", strict=True, verify=True)


def kernel_of(
    f: Callable[..., Any], *shapes: tuple[int, ...], dtype: Any = np.float32
) -> tuple[Kernel, Graph]:
    made = stitch_for_cpu(graph_of(f, [np.ones(shape, dtype) for shape in shapes], CPU))
    (kernel,) = (op.attrs["kernel"] for op in made.ops if op.name == KERNEL)
    return kernel, made


def offsets(kernel: Kernel) -> list[Index]:
    return [i.offset for nest in nests(kernel) for i in nest.body if isinstance(i, Load | Store)]


def divided(kernel: Kernel) -> bool:
    return any(isinstance(a, FloorDiv | Mod) for a in atoms(offsets(kernel)))


def interleave(a: Any, b: Any) -> Any:
    return jnp.stack([a + b, a - b], -1).reshape(*a.shape[:-1], -1)


def test_a_turn_makes_a_pair() -> None:
    kernel, _ = kernel_of(interleave, (40, 64), (40, 64))
    (nest,) = nests(kernel)[-1:]
    assert nest.loops[-1].hi == 64
    assert sum(isinstance(i, Store) for i in nest.body) == 2
    assert not divided(kernel)


def test_a_line_has_its_pairs_in_rows() -> None:
    kernel, _ = kernel_of(interleave, (70000,), (70000,))
    assert not divided(kernel)


def test_pairs_in_runs() -> None:
    """Two numbers of four bits in a byte, and a scale for each run of 32."""

    def f(packed: Any, scales: Any) -> Any:
        wide = jnp.stack([packed & 15, packed >> 4], -1).reshape(packed.shape[0], -1)
        return wide.astype(jnp.float32) * jnp.repeat(scales, 32, -1)

    made = graph_of(f, [np.ones((40, 256), np.uint8), np.ones((40, 16), np.float32)], CPU)
    (kernel,) = (op.attrs["kernel"] for op in stitch_for_cpu(made).ops if op.name == KERNEL)
    (nest,) = nests(kernel)
    assert [loop.hi for loop in nest.loops[1:]] == [16, 16]
    assert not divided(kernel)


def test_what_fills_no_turn_has_a_nest() -> None:
    """Between the edges, elements 1 to 54 of 56: 27 pairs, of neighbours that two elements repeat."""

    def f(x: Any) -> Any:
        wide = jnp.pad(jnp.repeat(x, 2, -1), ((0, 0), (1, 0)))
        return wide[:, :-1] + wide[:, 1:]

    kernel, _ = kernel_of(f, (400, 28))
    assert not divided(kernel)
    assert sorted(n.loops[-1].hi for n in nests(kernel) if len(n.loops) > 1) == [27]
    assert len(nests(kernel)) == 3


def test_long_bodies_stay() -> None:
    def f(x: Any) -> Any:
        y = jnp.repeat(x, 8, -1)
        for k in range(40):
            y = y * jnp.float32(1 + k) + jnp.float32(k)
        return y

    kernel, _ = kernel_of(f, (40, 64))
    assert [loop.hi for loop in nests(kernel)[0].loops[1:]] == [64, 8]  # a run of eight


def _maker(random: Random) -> Callable[[Any, Any], Any]:
    """Repeated, interleaved, paired, turned or upsampled rows, and something with each."""
    kinds = [
        random.choice(("repeat", "stack", "pairs", "swap", "tile", "turn", "up", "zeros")) for _ in range(2)
    ]
    k, extra = random.choice((2, 3, 4, 5, 8, 12)), random.choice(("", "pad", "roll", "sum", "mask"))

    def step(kind: str, x: Any, y: Any) -> Any:
        n = x.shape[-1]
        match kind:
            case "repeat":
                return jnp.repeat(x, k, -1)
            case "stack":
                return jnp.stack([x, jnp.square(y), x + y][: 2 + k % 2], -1).reshape(*x.shape[:-1], -1)
            case "pairs" if n % 2 == 0:
                return jnp.stack([-x[..., 1::2], x[..., ::2]], -1).reshape(x.shape) * 2 + x
            case "swap" if n % k == 0:
                return x.reshape(*x.shape[:-1], n // k, k)[..., ::-1].reshape(x.shape) + 1
            case "tile":
                return jnp.tile(x, k)
            case "turn" if n % k == 0:
                return x.reshape(*x.shape[:-1], n // k, k).swapaxes(-1, -2).reshape(x.shape)
            case "up" if x.ndim > 1:
                return jnp.repeat(jnp.repeat(x, 2, -1), 2, -2)
            case "zeros":
                return jax.lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0)] * (x.ndim - 1) + [(1, 2, k - 1)])
        return x * 2

    def f(x: Any, y: Any) -> Any:
        z = step(kinds[0], x, y)
        z = step(kinds[1], z, z * 3)
        match extra:
            case "pad":
                z = z + jnp.pad(z, [(0, 0)] * (z.ndim - 1) + [(1, 0)])[..., :-1]
            case "roll":
                z = z - jnp.roll(z, 1, -1)
            case "sum":
                z = z - z.mean(-1, keepdims=True)
            case "mask":
                z = jnp.where(jnp.arange(z.shape[-1]) % k == 0, z, -z)
        return jnp.tanh(z)

    return f


@pytest.mark.parametrize(
    "seed", [*range(12), *(pytest.param(n, marks=pytest.mark.slow) for n in range(12, 400))]
)
def test_drawn(seed: int) -> None:
    random, numbers = Random(seed), np.random.default_rng(seed)
    shape = random.choice(((5, 6), (40, 24), (1, 12), (64, 1), (4000,), (3, 7, 30), (700, 16), (36, 31)))
    f = _maker(random)
    dtype = random.choice((jnp.float32, jnp.float32, jnp.bfloat16))
    args = [jnp.asarray(numbers.standard_normal(shape), dtype) for _ in range(2)]
    found, theirs = jstitch.jit(f, options=OPTIONS)(*args), jax.jit(f)(*args)
    assert found.shape == theirs.shape
    same = [np.asarray(v, np.float64) for v in (found, theirs)]
    np.testing.assert_allclose(*same, rtol=1e-5, atol=1e-5 if dtype == jnp.float32 else 0.1)
    if dtype == jnp.float32 and math.prod(theirs.shape) < 20000:
        arrays = [np.asarray(x) for x in args]
        (made,) = execute(stitch_for_cpu(graph_of(f, arrays, CPU)), arrays, interpret_kernel)
        np.testing.assert_allclose(made, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("run", [9, 33, 64, 991, 1221])
def test_merged_dimensions_have_a_loop_each(run: int) -> None:
    """Of any length: whose row a number is would be a division for each."""
    kernel, _ = kernel_of(
        lambda x, s: jnp.tanh((x - s[..., None]).reshape(40, -1)).sum(1), (40, 4, run), (40, 4)
    )
    assert not divided(kernel)


@pytest.mark.parametrize("columns", [33, 777])
def test_rows_cut_out_of_a_dimension_have_a_loop_for_each(columns: int) -> None:
    """Nine groups of 64 rows, packed in pairs: a group is a part of a dimension of 288."""

    def packed(w: Any) -> Any:
        groups = w.reshape(9, 64, columns)
        scaled = groups / jnp.abs(groups).max(1, keepdims=True)
        pairs = jnp.round(scaled * 7 + 7).astype(jnp.uint8).reshape(288, 2, columns)
        return pairs[:, 0] | (pairs[:, 1] << 4)

    kernel, _ = kernel_of(packed, (576, columns))
    assert not divided(kernel)
    w = np.random.default_rng(0).standard_normal((576, columns), np.float32)
    found = jstitch.jit(packed, options=OPTIONS)(w)
    assert np.mean(np.asarray(found) != np.asarray(jax.jit(packed)(w))) < 1e-3


@pytest.mark.parametrize("run", [1221, 10_000])
def test_runs_of_long_sums_are_their_blocks(run: int) -> None:
    """Equal numbers keep their digits."""

    def f(x: Any, s: Any) -> Any:
        return jnp.abs((x * s[..., None]).reshape(8, -1)).sum(1)

    x, s = np.full((8, 5, run), 0.3, np.float32), np.full((8, 5), 0.7, np.float32)
    exact = np.float64(np.float32(0.3) * np.float32(0.7)) * 5 * run
    found = np.float64(jstitch.jit(f, options=OPTIONS)(x, s))
    assert np.abs(found - exact).max() <= 6 * np.spacing(np.float32(exact))


def butterfly(x: Any, size: int) -> Any:
    y, h = x, 1
    while h < size:
        pairs = y.reshape(*x.shape[:-1], x.shape[-1] // (2 * h), 2, h)
        a, b = pairs[..., 0, :], pairs[..., 1, :]
        y, h = jnp.stack([a + b, a - b], -2).reshape(x.shape), 2 * h
    return y


@pytest.mark.parametrize("shape", [(30, 64), (17, 40, 16), (3, 5, 24, 8), (600, 8)])
@pytest.mark.parametrize("kind", ["sum", "max", "std", "argmax", "prod"])
def test_reductions_of_what_is_interleaved(shape: tuple[int, ...], kind: str) -> None:
    """Over each dimension: a turn adds up several elements, or makes sums of several."""
    x = np.random.default_rng(0).standard_normal(shape, np.float32) / 3
    for axis in range(len(shape)):

        def f(x: Any, axis: int = axis) -> Any:
            y = butterfly(x, 8) * 0.5
            kept = getattr(jnp, kind)(y, axis, keepdims=True)
            return y - kept.astype(y.dtype), kept

        for found, theirs in zip(jstitch.jit(f, options=OPTIONS)(x), jax.jit(f)(x), strict=True):
            np.testing.assert_allclose(found, theirs, rtol=2e-5, atol=2e-5)


def test_a_turn_adds_up_a_run() -> None:
    """No element of a sum over eight that are interleaved asks which of them it is."""

    def f(x: Any) -> Any:
        return jax.nn.softmax(butterfly(x, 8), -1)

    kernel, _ = kernel_of(f, (30, 64))
    assert not any(isinstance(a, FloorDiv | Mod) for a in atoms(offsets(kernel)))
    sums = [nest for nest in nests(kernel) if nest.accumulators]
    assert [math.prod(loop.hi for loop in nest.loops[1:]) for nest in sums] == [8, 8]
