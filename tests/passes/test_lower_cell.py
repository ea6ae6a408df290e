"""Loops whose turns look at rows: cells, forward algorithms, neighbours. One kernel each, right as XLA's."""

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
from benchmarks.cells import covariances, forward, gru, linear_attention, lstm, states
from jstitch.codegen.interpret_kernel import interpret_kernel
from jstitch.codegen.kernel_ir import Kernel, Store
from jstitch.passes.fuse.find_recurrences import find_recurrences
from jstitch.passes.lower.check_kernel import check_kernel
from jstitch.passes.lower.lower_kernel import lower_kernel
from tests.codegen.cuda.stitched import PROFILES, WHY_NO_PTX, interpreted, simulated, stitch
from tests.contexts import CPU, on
from tests.passes.test_own_columns import graph_of

Array = Any
OPTIONS = jstitch.CompileOptions(strict=True, verify=True, tune="off")


def neighbours(x: Array) -> Array:
    return lax.fori_loop(0, 9, lambda i, c: c + 0.1 * jnp.roll(c, 1, -1) - 0.01 * i, x)


def normed(x: Array) -> Array:
    return lax.fori_loop(0, 9, lambda i, c: c / jnp.sqrt(jnp.sum(c * c, -1, keepdims=True)) + 0.1, x)


def register(x: Array, y: Array) -> Any:
    """Each carry goes on from another one, all of which are left, too."""

    def turn(carry: Any, now: Array) -> Any:
        a, b, c = carry
        return (b, c, now + jnp.sum(a, -1, keepdims=True)), (a, c)

    return lax.scan(turn, (y, y * 2, y * 3), x, unroll=2)


def two_kinds(x: Array, y: Array, w: Array) -> Any:
    """A carry in bfloat16, and one in integers."""

    def turn(carry: Any, now: Array) -> Any:
        a, n = carry
        a = jnp.tanh(a @ w + now).astype(a.dtype)
        return (a, n + jnp.argmax(a, -1)), n

    return lax.scan(turn, (y, jnp.zeros(len(y), jnp.int32)), x)


def loss(f: Callable[..., Any], *numbers: int) -> Callable[..., Any]:
    def total(*args: Array) -> Array:
        return sum(jnp.sum(jnp.sin(x)) for x in jax.tree.leaves(f(*args)))

    return jax.grad(total, numbers)


def arrays(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(len(shapes))
    return [0.4 * rng.standard_normal(shape, np.float32) for shape in shapes]


LSTM = arrays((7, 16, 12), (12, 80), (20, 80), (80,), (16, 20), (16, 20))
GRU = arrays((5, 3, 7), (7, 27), (9, 27), (27,), (3, 9))
HMM = arrays((4, 10), (10, 10), (6, 4, 10))

CELLS: dict[str, tuple[Callable[..., Any], list[np.ndarray]]] = {
    "lstm": (lstm, LSTM),
    "one lstm": (lstm, arrays((7, 1, 12), (12, 80), (20, 80), (80,), (1, 20), (1, 20))),
    "gru": (gru, GRU),
    "forward": (forward, HMM),
    "states": (states, arrays((6, 3, 8), (8, 4), (6, 3, 4), (6, 3, 4))),
    "linear attention": (linear_attention, arrays((6, 3, 8), (6, 3, 8), (6, 3, 5))),
    "neighbours": (neighbours, arrays((5, 11))),
    "one row": (neighbours, arrays((11,))),
    "normed": (normed, arrays((5, 11))),
    "register": (register, arrays((8, 3, 5), (3, 5))),
    "covariances": (covariances, arrays((3, 4, 4), (4, 4), (4, 4))),
}
GRADIENTS: dict[str, tuple[Callable[..., Any], list[np.ndarray]]] = {
    "lstm": (loss(lstm, 0, 1, 2, 3, 4, 5), LSTM),
    "gru": (loss(gru, 0, 1, 2, 3, 4), GRU),
    "forward": (loss(forward, 0, 1, 2), HMM),
    "states": (loss(states, 0, 1, 2, 3), CELLS["states"][1]),
    "linear attention": (loss(linear_attention, 0, 1, 2), CELLS["linear attention"][1]),
    "normed": (loss(normed, 0), arrays((5, 11))),
    "many lstms": (jax.vmap(loss(lstm, 0, 2)), [np.stack([x, x * 0.5]) for x in LSTM]),
}


def kernel_of(f: Callable[..., Any], args: list[np.ndarray]) -> tuple[Kernel, bool]:
    """The loop's kernel, and whether it is the whole program."""
    context = on(CPU.profile, tune="off")
    graph = graph_of(f, args, context)
    (pattern,) = find_recurrences(graph, context).patterns
    kernel = lower_kernel("k", pattern.ops, pattern.inputs, pattern.outputs, CPU.profile)
    return kernel, pattern.inputs == graph.inputs and pattern.outputs == graph.outputs


def is_near(ours: Any, theirs: Any, within: float = 5e-5) -> None:
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert (np.shape(a), a.dtype) == (np.shape(b), b.dtype)
        np.testing.assert_allclose(np.asarray(a, np.float64), np.asarray(b, np.float64), within, within)


@pytest.mark.parametrize("name", CELLS)
def test_a_cell_is_one_kernel(name: str) -> None:
    """Checked, interpreted in any order of its programs, and compiled."""
    f, args = CELLS[name]
    wanted = [np.asarray(x) for x in jax.tree.leaves(jax.jit(f)(*args))]
    kernel, whole = kernel_of(f, args)
    assert check_kernel(kernel) == ()
    if whole:
        is_near(interpret_kernel(kernel, args, Random(3)), wanted)
    is_near(jstitch.jit(f, options=OPTIONS)(*args), wanted)


@pytest.mark.parametrize("name", GRADIENTS)
def test_a_gradient_has_no_loops_left(name: str) -> None:
    f, args = GRADIENTS[name]
    made = jstitch.jit(f, options=OPTIONS)
    assert "stablehlo.while(" not in made.lower(*args).as_text()
    is_near(made(*args), jax.jit(f)(*args), 2e-4)


@pytest.mark.skipif(bool(WHY_NO_PTX), reason=str(WHY_NO_PTX))
@pytest.mark.parametrize("name", CELLS)
def test_a_cell_on_a_gpu(name: str) -> None:
    """One launch, in the simulator and as PTX. Tensor cores multiply float32 as tf32, as XLA has them do."""
    f, args = CELLS[name]
    within = 2e-3 if "dot_general" in jax.jit(f).lower(*args).as_text() else 5e-5
    made = stitch(graph_of(f, args, CPU), PROFILES["h200"])
    assert [len(source.launches) for source in made.sources][:1] == [1]
    for machine in (simulated, interpreted):
        is_near(made.run(args, machine), [np.asarray(x) for x in jax.tree.leaves(jax.jit(f)(*args))], within)


@pytest.mark.skipif(bool(WHY_NO_PTX), reason=str(WHY_NO_PTX))
def test_names_of_what_is_carried_are_no_numbers_of_elements() -> None:
    """Threads share the sums of a narrow cell: one kernel knows the elements of both, on every machine."""

    def cell(x: Array, h: Array, u: Array) -> Any:
        def turn(h: Array, now: Array) -> Any:
            gate, new = jnp.split(now + h @ u, 2, -1)
            return jnp.tanh(gate) * jnp.tanh(new) + h[:, ::-1] * 0.5, h

        return lax.scan(turn, h, x)

    args = [x.astype(np.float16) for x in arrays((5, 3, 32), (3, 16), (16, 32))]
    made = stitch(graph_of(cell, args, CPU), PROFILES["h200"], options=OPTIONS)
    (source,) = made.sources
    assert "e1 = clamp_index" in source.text  # threads that share an element's sum
    for machine in (simulated, interpreted):
        is_near(made.run(args, machine), jax.tree.leaves(jax.jit(cell)(*args)), 4e-3)


@pytest.mark.skipif(bool(WHY_NO_PTX), reason=str(WHY_NO_PTX))
def test_fewer_rows_than_half_a_tile_of_tensor_cores() -> None:
    """Threads that hold the tile's second half store nothing: nothing is wrong with where they would."""

    def cell(x: Array, h: Array, w: Array, v: Array) -> Any:
        def turn(carry: Any, now: Array) -> Any:
            h, c = carry
            y = (jax.nn.sigmoid((now + h) @ w) + c[:, ::-1]) @ v
            return (jnp.tanh(y), h), None

        return lax.scan(turn, (h, h), x)[0]

    args = [x.astype(np.float16) for x in arrays((5, 3, 16), (3, 16), (16, 16), (16, 16))]
    made = stitch(graph_of(cell, args, CPU), PROFILES["h200"])
    assert not made.recorder.refused
    assert made.sources
    is_near(made.run(args, simulated), jax.tree.leaves(jax.jit(cell)(*args)), 4e-3)


def test_narrow_carries() -> None:
    """They stay wide from turn to turn, as they are between the ops of any kernel."""
    args = arrays((7, 16, 12), (16, 12), (12, 12))
    args = [x.astype(jnp.bfloat16) for x in args]
    (a, n), left = jstitch.jit(two_kinds, options=OPTIONS)(*args)
    exact = [np.asarray(x).astype(np.float32) for x in args]
    (b, _), _ = jax.jit(two_kinds)(*exact)
    assert (a.dtype, n.dtype, left.shape) == (jnp.bfloat16, np.int32, (7, 16))
    np.testing.assert_allclose(np.asarray(a, np.float32), np.asarray(b, np.float32), 0.05, 0.05)


@pytest.mark.parametrize("name", ["lstm", "forward"])
def test_rows_are_shared_out(name: str) -> None:
    """Turns are around stages of some rows; carries are read before they are written in a stage."""
    kernel, _ = kernel_of(*CELLS[name])
    (lane,) = kernel.phases[0].lanes
    assert lane.rows == len(CELLS[name][1][0 if name == "forward" else -1])
    turns = [stage for stage in lane.stages if stage.turn is not None]
    stored = [
        i.buffer for stage in turns for nest in stage.nests for i in nest.instructions if isinstance(i, Store)
    ]
    assert {b.name for b in stored} >= ({"o2"} if name == "lstm" else {"t0"})


def test_what_a_turn_reads_later_is_not_written_before() -> None:
    kernel, _ = kernel_of(*CELLS["neighbours"])
    (lane,) = kernel.phases[0].lanes
    assert lane.stages[-2].note == "what the next turn goes on from"


@pytest.mark.parametrize(
    ("options", "loops"),
    [
        ({}, 0),
        ({"without": ("sink_products",)}, 0),
        ({"without": ("recompute_stacks",)}, 0),
        ({"without": ("recurrences",)}, 2),
    ],
)
def test_what_is_switched_off_runs_otherwise(options: dict[str, Any], loops: int) -> None:
    f, args = GRADIENTS["lstm"]
    texts = [
        jstitch.jit(f, options=jstitch.CompileOptions(tune="off", **more)).lower(*args).as_text()
        for more in ({}, options)
    ]
    assert texts[1].count("stablehlo.while(") == loops
    assert (texts[0] == texts[1]) == (not options)


@pytest.mark.parametrize("shape", [(0, 5), (4, 0), (1, 1), (3, 1), (1, 7)])
def test_small_and_empty_arrays(shape: tuple[int, ...]) -> None:
    (x,) = arrays(shape)
    is_near(jstitch.jit(normed, options=OPTIONS)(x), jax.jit(normed)(x))


def test_what_a_loop_hands_on_unchanged() -> None:
    def f(x: Array) -> Any:
        return lax.scan(lambda c, _: (c, c), x, None, length=9)

    (x,) = arrays((5, 7))
    is_near(jstitch.jit(f, options=OPTIONS)(x), jax.jit(f)(x))


def test_rows_that_no_cache_holds_stay() -> None:
    one_turn = on(CPU.profile, without=("unroll_turns",))
    graph = graph_of(normed, [jax.ShapeDtypeStruct((50_000, 10_000_000), np.float32)], one_turn)
    (why,) = find_recurrences(graph, on(CPU.profile, tune="off")).refused.values()
    assert "what turns go on from" in str(why)


def test_where_xla_is_quicker() -> None:
    """A large product of one row is shared by all cores."""
    found = find_recurrences(
        graph_of(lstm, arrays((9, 1, 400), (400, 2400), (600, 2400), (2400,), (1, 600), (1, 600)), CPU), CPU
    )
    (why,) = found.refused.values()
    assert "modelled to take" in str(why)
