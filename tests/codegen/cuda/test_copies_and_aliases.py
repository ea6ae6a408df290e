"""Copies of what a program returns twice or as it came in, and results in the memory of donated arguments."""

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
from jstitch.device_spec import find_spec
from jstitch.frontend.importer import import_module
from jstitch.frontend.mlir import parse_module
from jstitch.frontend.target import cuda_profile
from jstitch.ir.graph import Graph
from jstitch.ir.interpret import interpret
from jstitch.ir.ops import KERNEL
from jstitch.passes.base.context import Returned
from jstitch.passes.fuse.copy_returned import copy_returned
from tests.codegen.cuda import stitched
from tests.codegen.cuda.stitched import MakeMachine, interpreted, record, simulated, stitch
from tests.contexts import CPU, H200

CUDA = cuda_profile(find_spec("h200"))
ROWS, COLUMNS = 24, 40
MACHINES = [
    simulated,
    pytest.param(
        interpreted,
        marks=pytest.mark.skipif(stitched.WHY_NO_PTX is not None, reason=str(stitched.WHY_NO_PTX)),
    ),
]


def graph_of(f: Callable[..., object], *shapes: tuple[int, ...]) -> Graph:
    args = [jnp.ones(shape, jnp.float32) for shape in shapes]
    return import_module(parse_module(jax.jit(f).lower(*args).as_text()))


def arrays(graph: Graph) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=v.shape).astype(np.float32) for v in graph.inputs]


def copied(graph: Graph, returned: Returned | None) -> Graph:
    return copy_returned(graph, replace(H200, returned=returned))


def norm_gradients(x: Any, dy: Any) -> Any:
    scale = jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-5)
    dx = dy * scale - x * jnp.mean(x * dy, axis=-1, keepdims=True) * scale**3
    return dx, dx, jnp.sum(dy * x * scale, axis=0)


def clipped_step(p: Any, g: Any) -> Any:
    """The step's length needs all of p before any of it may be overwritten."""
    return p - 0.1 * g * jnp.sqrt(jnp.mean(p * p))


@pytest.mark.parametrize("machine", MACHINES)
def test_a_result_that_is_returned_twice_is_stored_twice(machine: MakeMachine) -> None:
    graph = graph_of(norm_gradients, (ROWS, COLUMNS), (ROWS, COLUMNS))
    both = copied(graph, Returned(range(2), {}))
    assert len(set(both.outputs)) == 3
    made = stitch(both, CUDA)
    assert [op.name for op in made.graph.ops].count(KERNEL) == 1
    args = arrays(graph)
    for found, expected in zip(made.run(args, machine), interpret(graph, args), strict=True):
        np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-5)


def test_what_comes_in_is_copied_unless_its_memory_is_given_away() -> None:
    graph = graph_of(lambda a, b, c, d: (a, b.reshape(-1), c, d, a + 1), (8,), (2, 4), (8,), (8,))
    a, _, c, d = graph.inputs
    out = copied(graph, Returned((0, 1, 2, 3), {2: 2, 3: None})).outputs
    assert out[0] is not a  # copied
    assert out[1] is not graph.outputs[1]  # a view of an argument
    assert out[2:] == (c, d, graph.outputs[4])  # in place, left to XLA, computed
    assert copied(graph, Returned((0, 1, 2, 3), {2: 0})).outputs[2] is not c  # given to another output
    assert copied(graph, Returned((), {})).outputs == graph.outputs  # arguments of nobody but XLA
    assert copied(graph, None) is not None
    assert copied(graph, None).outputs == graph.outputs
    assert copy_returned(graph, replace(CPU, returned=Returned((0, 1, 2, 3), {}))) is graph


def test_loops_hand_on_copies_of_what_changes_places() -> None:
    def turn(step: Any, state: Any) -> Any:
        a, b, c, _ = state
        return b, a + b, c, c

    def loop(*state: Any) -> Any:
        return jax.lax.fori_loop(0, jnp.int32(state[0][0]), turn, state)

    graph = graph_of(loop, (8,), (8,), (8,), (8,))
    body = next(op for op in graph.walk() if op.name == "stablehlo.while").regions[-1]
    new = next(op for op in copied(graph, None).walk() if op.name == "stablehlo.while").regions[-1]
    added = [op for op in new.ops if op not in body.ops]
    assert len(added) == 2  # b in a's place, c in d's: not c in its own
    args = arrays(graph)
    args[0][0] = 3
    for found, expected in zip(interpret(copied(graph, None), args), interpret(graph, args), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("machine", MACHINES)
def test_a_donated_argument_that_an_earlier_phase_read_is_overwritten(machine: MakeMachine) -> None:
    graph = graph_of(clipped_step, (ROWS, COLUMNS), (ROWS, COLUMNS))
    made = stitch(graph, CUDA, donate=True)
    (kernel,) = made.kernels
    assert len(kernel.phases) > 1
    assert kernel.aliases
    args = arrays(graph)
    (expected,) = interpret(graph, args)
    np.testing.assert_allclose(made.run(args, machine)[0], expected, rtol=2e-5, atol=1e-6)


def test_on_the_cpu_too() -> None:
    p, g = (jnp.asarray(a) for a in arrays(graph_of(clipped_step, (512, 512), (512, 512))))
    expected = clipped_step(p, g)
    options = jstitch.CompileOptions(tune="off", strict=True)
    step = jstitch.jit(lambda p, g: clipped_step(p, g), options=options, donate_argnums=0)
    where = p.unsafe_buffer_pointer()
    found = step(p, g)
    assert found.unsafe_buffer_pointer() == where
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-6)


def test_jit_hands_its_forwarded_results_to_the_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    found = record(monkeypatch)

    def f(x: Any, y: Any) -> Any:
        z = jnp.tanh(x) * y
        return x, z, z

    x = jnp.ones((64, 64))
    options = jstitch.CompileOptions(target="h200", tune="off", strict=True)
    jstitch.jit(f, options=options).trace(x, x).lower(lowering_platforms=("cuda",))
    ((graph, _),) = found.programs
    assert len(set(graph.outputs)) == 3
    assert not set(graph.outputs) & set(graph.inputs)
    inside = jstitch.stitch(f, options=options)
    jax.jit(lambda x, y: [v + 1 for v in inside(x, y)]).trace(x, x).lower(lowering_platforms=("cuda",))
    (graph, _) = found.programs[1]
    assert len(set(graph.outputs)) == 2
    assert set(graph.outputs) & set(graph.inputs)


def test_forwarded_results_are_the_same_arrays_as_ever() -> None:
    def f(x: Any, key: Any) -> Any:
        y = jnp.sin(x) * 2
        return x, y, y, key, jax.random.uniform(key, x.shape)

    x, key = jnp.asarray(Random(0).random() + np.arange(6.0)), jax.random.key(3)
    stitched_f = jstitch.jit(f, options=jstitch.CompileOptions(strict=True))
    for found, expected in zip(stitched_f(x, key)[:3], jax.jit(f)(x, key)[:3], strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert stitched_f(x, key)[3] == key
    grads = [jax.grad(lambda x, g=g: sum(v.sum() for v in g(x, key)[:3]))(x) for g in (f, stitched_f)]
    np.testing.assert_allclose(grads[0], grads[1], rtol=1e-6)
    rows = [jax.vmap(g, in_axes=(0, None))(jnp.ones((3, 4)), key)[1] for g in (f, stitched_f)]
    np.testing.assert_allclose(rows[0], rows[1], rtol=1e-6)
