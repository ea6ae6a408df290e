"""Dimensions that no op tells apart are one; columns of several dimensions are owned as those of one are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
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
from jstitch.passes.base.profile import Profile
from jstitch.passes.lower.check_kernel import check_kernel
from jstitch.passes.lower.join_dimensions import join_dimensions
from tests.codegen.cuda import stitched
from tests.codegen.cuda.stitched import stitch
from tests.contexts import CPU, on
from tests.passes.random_graphs import arguments, make_graph
from tests.passes.test_own_columns import TARGETS, Array, close, graph_of, lower, widths

GPU: Profile = TARGETS["h200"]


def joined(f: Callable[..., Any], shapes: Sequence[tuple[int, ...]], repeat: bool = False) -> list[Any]:
    """What it makes of float32 arguments of these shapes: the shape of each result of joined ops, or None."""
    graph = graph_of(f, [jax.ShapeDtypeStruct(s, np.float32) for s in shapes], on(CPU.profile))
    found = join_dimensions(graph.ops, repeat)
    return [None] if found is None else [found.values[v].shape for v in graph.outputs]


def of_means(x: Array) -> Array:
    return x - x.mean(0)


CASES = [
    (of_means, [(6, 5, 7)], False, (6, 35)),
    (of_means, [(6, 1, 5, 1, 7)], False, (6, 35)),
    (lambda x: x - x.mean((0, 1)), [(6, 5, 7)], False, (30, 7)),
    (lambda x: x - x.mean((1, 2), keepdims=True), [(4, 6, 5, 7, 3)], False, (4, 30, 21)),
    (lambda x: jnp.exp(x) + 1.0, [(6, 5, 7)], False, (210,)),
    (lambda x: x - x.mean((0, 2), keepdims=True), [(6, 5, 7)], False, None),  # what is kept lies between
    (lambda x: x - jnp.flip(x, 1), [(6, 5, 7)], False, None),
    (lambda x, w: of_means(x) * w, [(6, 5, 7), (7,)], False, None),
    (lambda x, w: of_means(x) * w, [(6, 5, 7), (5, 7)], False, (6, 35)),
    (lambda x, w: of_means(x) * w, [(16, 5, 7), (7,)], True, (16, 35)),
    (lambda x, w: of_means(x) * w, [(16, 5, 7), (5, 1)], True, (16, 35)),
    (lambda x, w: of_means(x) * w.T, [(16, 5, 7), (7, 5)], True, (16, 35)),
    (lambda x: of_means(x) + x.mean(2, keepdims=True), [(6, 5, 7)], True, None),
    (of_means, [(6, 0, 7)], False, None),
]


@pytest.mark.parametrize(("f", "shapes", "repeat", "shape"), CASES)
def test_what_is_joined(
    f: Callable[..., Any], shapes: list[tuple[int, ...]], repeat: bool, shape: tuple[int, ...] | None
) -> None:
    assert joined(f, shapes, repeat) == [shape]


def same(graph: Graph, repeat: bool, seed: int) -> bool:
    """Whether anything was joined; then it computes the same."""
    found = join_dimensions(graph.ops, repeat)
    if found is None:
        return False
    made = Graph(graph.inputs, tuple(found.ops), tuple(found.values.get(v, v) for v in graph.outputs))
    args = arguments(graph, seed)
    for a, b in zip(interpret(made, args), interpret(graph, args), strict=True):
        np.testing.assert_allclose(np.float64(a).ravel(), np.float64(b).ravel(), rtol=1e-5, atol=1e-5)
    return True


@pytest.mark.parametrize("repeat", [False, True])
def test_random_graphs_compute_the_same(repeat: bool) -> None:
    assert sum(same(make_graph(Random(seed)), repeat, seed) for seed in range(150)) > 30


def program(seed: int) -> tuple[Callable[..., Any], list[np.ndarray]]:
    """Sums that keep several trailing dimensions, what is made of them, and weights of some of these."""
    random, numbers = Random(seed), np.random.default_rng(seed)
    lead = random.choice(((), (), (2,)))
    middle = random.choice(((12,), (5, 3), (40,), (9, 1)))
    kept = random.choice(((8, 160), (20, 66), (4, 5, 64), (43, 31), (16, 1, 80)))
    axes = tuple(range(len(lead), len(lead) + len(middle)))
    weighed = random.choice((kept, (*(1 for _ in kept[:-1]), kept[-1]), (kept[0], *(1 for _ in kept[1:]))))
    reduce, keeps = random.choice((jnp.max, jnp.sum, jnp.var)), random.random() < 0.5
    returned = random.randrange(3)

    def f(x: Array, w: Array) -> tuple[Array, ...]:
        found = reduce(x * w, axis=axes, keepdims=keeps)
        s = found if keeps else jnp.expand_dims(found, axes)
        y = jnp.tanh(x - s) * w
        return ((y,), (y, found), (found, (y * y).sum(axes)))[returned]

    return f, [numbers.normal(size=n).astype(np.float32) for n in ((*lead, *middle, *kept), weighed)]


@pytest.mark.parametrize("target", TARGETS)
def test_kernels_own_such_columns(target: str) -> None:
    context, owned = on(TARGETS[target], verify=True), 0
    for seed in range(12):
        f, args = program(seed)
        graph = graph_of(f, args, context)
        kernel = lower(graph, context)
        check_kernel(kernel)
        owned += widths(kernel) != {0}
        if seed < 4:
            close(interpret_kernel(kernel, args), graph, args)
    assert owned > (2 if target == "cpu" else 8)  # a CPU tells apart what weights do


@pytest.mark.parametrize("seed", range(4))
def test_launches_of_such_columns(seed: int) -> None:
    """In the simulator, with races and bounds; the PTX itself where there is a toolchain."""
    f, args = program(seed)
    context = on(GPU)
    graph = graph_of(f, args, context)
    made = stitch(graph, GPU)
    machines = [stitched.simulated, *[stitched.interpreted] * (stitched.WHY_NO_PTX is None and seed < 2)]
    for machine in machines:
        close(made.run([a.copy() for a in args], machine), graph, args)


@pytest.mark.parametrize("seed", range(12))
def test_such_columns_on_this_machine(seed: int) -> None:
    f, args = program(seed)
    options = jstitch.CompileOptions(tune="off", strict=True)
    found = jstitch.jit(f, options=options)(*args)
    close([np.asarray(v) for v in found], graph_of(f, args, CPU), args)


@pytest.mark.parametrize("target", TARGETS)
def test_a_template_of_such_columns_gives_them_again(target: str) -> None:
    profile = TARGETS[target]
    graph = graph_of(lambda x: jax.nn.softmax(x, 0), [jnp.zeros((24, 32, 65))], on(profile))
    kernel = lower(graph, on(profile))
    again = lower(graph, on(profile, template=str(kernel.template)))
    assert widths(again) == widths(kernel) != {0}
    rows = lower(graph, on(replace(profile, columns=False)))
    assert widths(rows) == {0}


def test_one_launch_where_xla_has_two() -> None:
    """An H200 reads what is scaled by its largest elements over dimension 0 once."""

    def quantized(x: Array) -> tuple[Array, Array]:
        scale = jnp.abs(x).max(0) / 127
        return jnp.round(x / scale).astype(jnp.int8), scale

    found = jstitch.analyze(quantized, jax.ShapeDtypeStruct((179, 31, 111), np.float32), target="h200")
    assert found.stitched.launches == 1 < found.plain.launches
    assert found.stitched.all_bytes < 0.6 * found.plain.all_bytes


def test_a_part_of_joined_columns_is_read_once() -> None:
    """What is left over behind the strips is a slice of a reshape, and no second reading to the model."""
    costs = []
    for shape in ((32, 128, 512), (32, 128 * 512)):
        options = jstitch.CompileOptions(target="h200", tune="off")
        plan = jstitch.plan(lambda x: jnp.exp(x).sum(0), options)(jax.ShapeDtypeStruct(shape, np.float32))
        costs.append(plan.patterns[0].ours.nbytes)
    assert costs[0] == costs[1]
