"""Concatenates, pads and rolls: a loop or lane for each side; a sum goes on where the last one ended."""

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
from jstitch.ir.index import Clamp, atoms
from jstitch.ir.ops import KERNEL
from jstitch.passes.base.plan import make_pattern
from jstitch.passes.cost.cost_model import xla_cost
from jstitch.passes.lower.divide_loops import MOST_CODE, MOST_POINTS, fewer_points
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


def test_xla_makes_no_vectors_of_sines_that_elements_choose_from() -> None:
    """Of three parts, not of two; of sines, not of exponentials, which are as quick one by one."""

    def seconds(function: Callable[[Any], Any], parts: int) -> float:
        x = np.ones((4000, 3), np.float32)
        graph = graph_of(lambda x: jnp.concatenate([function(x * k) for k in range(parts)], 1) * 2, [x], CPU)
        pattern = make_pattern(graph, graph.ops, "test")
        return xla_cost(pattern, CPU.machine).cycles / parts

    assert seconds(jnp.sin, 3) > 3 * seconds(jnp.sin, 2)
    assert seconds(jnp.exp, 3) < 1.5 * seconds(jnp.exp, 2)


def test_sides_of_long_sums_have_loops_of_their_own() -> None:
    """Of 4,734 elements, which are added up in blocks, but not across the seam."""
    made = stitch_for_cpu(graph_of(joined, [np.ones((12, 2367), np.float32)], CPU))
    (kernel,) = (op.attrs["kernel"] for op in made.ops if op.name == KERNEL)
    sides = [n for n in nests(kernel) if n.accumulators]
    assert [n.loops[-1].hi for n in sides] == [2367, 2367]
    assert all(sum(isinstance(i, Load) and i.buffer.name == "a0" for i in n.body) == 1 for n in sides)


def test_gpus_choose_element_by_element() -> None:
    (kernel,) = stitch(graph_of(joined, [X], H200), PROFILES["h200"]).kernels
    assert len([n for n in nests(kernel) if n.accumulators]) == 1


def _maker(random: Random) -> Callable[..., Any]:
    """An array with seams along one of its axes, and what is reduced of it, over any."""
    axis, over = random.randrange(2), random.choice((0, 1, (0, 1)))
    kind = random.choice(("concatenate", "pad", "both", "stack", "frame", "shift"))
    names = ("sum", "max", "mean", "var", "prod", "min")
    name = random.choice(names if over == (0, 1) else (*names, "argmax"))

    def f(x: Any, y: Any) -> Any:
        width = [(2, 3) if d == axis else (0, 0) for d in range(2)]
        match kind:
            case "pad":
                z = jnp.pad(x, width, constant_values=0.5)
            case "both":
                z = jnp.pad(jnp.concatenate([x, 2 * y], axis), width)
            case "frame":
                z = jnp.pad(x, 2) - 3 * jnp.pad(y, ((1, 3), (4, 0)), constant_values=0.5)
            case "shift":
                z = (
                    jnp.roll(x, 1, axis) + jnp.pad(y, width)[2:-3]
                    if axis == 0
                    else jnp.roll(x, (2, -1), (0, 1))
                )
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


def roughness(x: Any) -> Any:
    """Squares of the Laplacian, of each plane."""
    p = jnp.pad(x, ((0, 0), (1, 1), (1, 1)))
    return ((p[:, 2:, 1:-1] + p[:, :-2, 1:-1] + p[:, 1:-1, 2:] + p[:, 1:-1, :-2] - 4 * x) ** 2).sum((1, 2))


def test_a_plane_is_cut_along_both_axes() -> None:
    """Nine nests, in none of which an element is asked where it is."""
    made = stitch_for_cpu(graph_of(roughness, [np.ones((6, 40, 64), np.float32)], CPU))
    (kernel,) = (op.attrs["kernel"] for op in made.ops if op.name == KERNEL)
    found = [nest for nest in nests(kernel) if nest.accumulators]
    assert len(found) == 9
    assert not any(map(clamped, found))
    assert [loop.hi for loop in found[4].loops[1:]] == [38, 62]
    x = np.random.default_rng(0).standard_normal((6, 40, 64), np.float32)
    np.testing.assert_allclose(jstitch.jit(roughness, options=OPTIONS)(x), roughness(x), rtol=1e-5)


def clamped(nest: Nest) -> bool:
    return any(isinstance(a, Clamp) for a in atoms(i.offset for i in nest.body if isinstance(i, Load)))


def differences(x: Any) -> Any:
    """Central, of a ring, and backward ones, from zero."""
    return jnp.roll(x, -1) - jnp.roll(x, 1) + x - jnp.pad(x, (1, 0))[:-1]


@pytest.mark.parametrize(("size", "lanes"), [(100, 1), (256, 3), (5000, 3), (65537, 3)])
def test_a_line_is_cut_into_lanes(size: int, lanes: int) -> None:
    """Of whole vectors; short lines stay as they are."""
    made = stitch_for_cpu(graph_of(differences, [np.ones(size, np.float32)], CPU))
    (kernel,) = (op.attrs["kernel"] for op in made.ops if op.name == KERNEL)
    (phase,) = kernel.phases
    assert len(phase.lanes) == lanes
    assert sum(lane.rows for lane in phase.lanes) == size
    middle = phase.lanes[lanes // 2]
    assert clamped(middle.stages[0].nests[0]) == (lanes == 1)
    assert all(lane.rows % 16 == 0 for lane in phase.lanes[:-1])
    x = np.random.default_rng(size).standard_normal(size, np.float32)
    np.testing.assert_allclose(
        jstitch.jit(differences, options=OPTIONS)(x), differences(x), rtol=1e-6, atol=1e-6
    )


def diffusion(x: Any) -> Any:
    """One step of it on a torus."""
    return x + 0.1 * (jnp.roll(x, 1, 0) + jnp.roll(x, -1, 0) - 2 * x)


def framed(x: Any) -> Any:
    """The same on a plate that is cold around."""
    p = jnp.pad(x, ((1, 1), (0, 0)))
    return x + 0.1 * (p[2:] + p[:-2] - 2 * x)


@pytest.mark.parametrize(("f", "rows", "lanes"), [(diffusion, 400, 3), (diffusion, 12, 1), (framed, 400, 1)])
def test_rows_that_come_from_elsewhere_have_lanes_of_their_own(
    f: Callable[..., Any], rows: int, lanes: int
) -> None:
    """Where there are many rows, and they are loaded from elsewhere, not masked."""
    made = stitch_for_cpu(graph_of(f, [np.ones((rows, 300), np.float32)], CPU))
    (kernel,) = (op.attrs["kernel"] for op in made.ops if op.name == KERNEL)
    found = kernel.phases[-1].lanes
    assert [lane.rows for lane in found] == ([1, rows - 2, 1] if lanes == 3 else [rows])
    assert any(map(clamped, found[lanes // 2].stages[0].nests)) == (lanes == 1)
    assert found[lanes // 2].programs == max(1, rows * 300 // 16384)
    x = np.random.default_rng(rows).standard_normal((rows, 300), np.float32)
    np.testing.assert_allclose(jstitch.jit(f, options=OPTIONS)(x), jax.jit(f)(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(401, 33), (64, 3000), (97, 700), (1000, 20), (300, 300)])
@pytest.mark.parametrize("mode", ["wrap", "edge", "reflect"])
def test_sums_of_padded_planes(shape: tuple[int, int], mode: str) -> None:
    """Rows of their own, several rows in a step, and what each program adds up."""
    x = np.random.default_rng(0).integers(0, 9, shape)

    def f(x: Any) -> Any:
        p = jnp.pad(x, 1, mode=mode)
        y = p[2:, 1:-1] * 3 + p[:-2, 1:-1] - p[1:-1, 2:] * p[1:-1, :-2]
        kept = jnp.abs(y).sum(1, keepdims=True)
        return y, y.sum(), kept, y * 2 - kept.min()

    for a, b in zip(jstitch.jit(f, options=OPTIONS)(x), jax.jit(f)(x), strict=True):
        np.testing.assert_array_equal(a, b)


def loudness(x: Any, y: Any) -> Any:
    """The largest of two joined lines, and what is below it."""
    z = jnp.exp(jnp.concatenate([x, y * y]))
    return z, z.max(), jnp.log(z.sum())


@pytest.mark.parametrize("size", [40_000, 250_001])
def test_lanes_of_a_line_share_what_is_added_up(size: int) -> None:
    """Each has programs of its own, which add up in places of their own."""
    x, y = np.random.default_rng(size).standard_normal((2, size), np.float32)
    made = stitch_for_cpu(graph_of(loudness, [x, y], CPU))
    (kernel,) = (op.attrs["kernel"] for op in made.ops if op.name == KERNEL)
    lanes = [lane for lane in kernel.phases[0].lanes if lane.flat]
    assert len(lanes) == 2 + bool(size % 16)
    assert not any(clamped(nest) for lane in lanes if lane.rows > 16 for s in lane.stages for nest in s.nests)
    partial = next(b for b in kernel.scratch if b.type.shape[0] == sum(lane.programs for lane in lanes))
    assert partial.type.shape[0] >= len(lanes)
    for found, want in zip(
        jstitch.jit(loudness, options=OPTIONS)(x, y), jax.jit(loudness)(x, y), strict=True
    ):
        np.testing.assert_allclose(found, want, rtol=2e-6)


@pytest.mark.parametrize("seed", range(6))
def test_drawn_lines(seed: int) -> None:
    """Shifts of a line by pads, rolls and concatenates, and what depends on where an element is."""
    random, numbers = Random(seed), np.random.default_rng(seed)
    size = random.choice((257, 300, 1024, 4099, 70000))
    shifts = [(random.choice(("pad", "roll", "join")), random.randint(1, 40)) for _ in range(2)]

    def f(x: Any, y: Any) -> Any:
        z = x * y + jnp.where(jnp.arange(size) > size // 3, x, 1)
        for kind, k in shifts:
            match kind:
                case "pad":
                    z = z + jnp.pad(x, (k, k), constant_values=2)[: -2 * k] * y
                case "roll":
                    z = jnp.where(z > 0, z, jnp.roll(z, k))
                case _:
                    z = z - jnp.concatenate([y[k:], x[:k]])
        return z, z.sum()

    args = [jnp.asarray(numbers.standard_normal(size), jnp.float32) for _ in range(2)]
    for g in (f, jax.grad(lambda x, y: f(x, y)[1], (0, 1))):
        found, theirs = jstitch.jit(g, options=OPTIONS)(*args), jax.jit(g)(*args)
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(theirs), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5 * float(np.abs(b).max()))


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


def pieces(sizes: tuple[int, ...], axis: int) -> Callable[[Any], Any]:
    """Each by itself, joined again; more than `jnp.concatenate` joins at once."""
    cuts = np.cumsum(sizes)[:-1]

    def f(x: Any) -> Any:
        parts = jnp.split(x, cuts, axis)
        return jnp.concatenate([jnp.sin(p) * (k + 1) for k, p in enumerate(parts)], axis)

    return f


@pytest.mark.parametrize(
    ("shape", "axis", "many"), [((40_000,), 0, 20), ((64, 680), 1, 40), ((900, 33), 0, 30), ((5000,), 0, 9)]
)
def test_many_parts_have_a_loop_each(shape: tuple[int, ...], axis: int, many: int) -> None:
    """No element is loaded from all of them."""
    random = Random(many)
    cuts = sorted(random.sample(range(1, shape[axis]), many - 1))
    f = pieces(tuple(np.diff([0, *cuts, shape[axis]])), axis)
    x = np.random.default_rng(many).standard_normal(shape, np.float32)
    made = stitch_for_cpu(graph_of(f, [x], CPU))
    (kernel,) = (op.attrs["kernel"] for op in made.ops if op.name == KERNEL)
    assert not any(map(clamped, nests(kernel)))
    np.testing.assert_allclose(jstitch.jit(f, options=OPTIONS)(x), jax.jit(f)(x), rtol=1e-5, atol=1e-6)


def test_of_more_pieces_than_are_worth_a_loop_short_ones_are_joined() -> None:
    points = [0, *range(100, 2100, 10), 4000, 9000]
    found = fewer_points(points)
    assert {0, 2090, 4000, 9000} <= {*found}
    assert len(found) == MOST_POINTS
    assert found == sorted(found)
    assert fewer_points(points[:MOST_POINTS]) == points[:MOST_POINTS]
    assert fewer_points([0, 10, 20, 30, 40], 3) == [0, 20, 40]
    assert fewer_points([0, 1, 2, 50, 100], 4) == [0, 2, 50, 100]


def ring(reach: int) -> Callable[[Any], Any]:
    """Each element with the ones behind it."""
    return lambda x: sum(jnp.tanh(jnp.roll(x, k) * 0.1 * k) for k in range(reach))


@pytest.mark.parametrize("reach", [9, 30])
def test_parts_that_write_all_of_it_again_are_few(reach: int) -> None:
    """Where they would hold too much, all but the longest are one."""
    f = ring(reach)
    x = np.random.default_rng(reach).standard_normal(20_000, np.float32)
    made = stitch_for_cpu(graph_of(f, [x], CPU))
    (kernel,) = (op.attrs["kernel"] for op in made.ops if op.name == KERNEL)
    lanes = kernel.phases[0].lanes
    whole = max(len(nest.body) for nest in nests(kernel))
    assert sum(len(nest.body) for nest in nests(kernel)) <= max(MOST_CODE, 3 * whole)
    assert not clamped(max(lanes, key=lambda lane: lane.rows).stages[0].nests[0])
    np.testing.assert_allclose(jstitch.jit(f, options=OPTIONS)(x), jax.jit(f)(x), rtol=1e-5, atol=1e-5)
