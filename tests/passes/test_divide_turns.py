"""Dear values of turns that no turn waits for, or that wait for none, are made for all turns at once."""

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
from jstitch.codegen.interpret_kernel import interpret_kernel
from jstitch.codegen.kernel_ir import Kernel, Lane, Let
from jstitch.ir.expr import calls
from jstitch.passes.base.context import Context
from jstitch.passes.graph.find_recurrence import TURN
from jstitch.passes.lower.check_kernel import check_kernel
from jstitch.passes.lower.lower_kernel import lower_kernel
from tests.contexts import CPU, CPU_PROFILE, H200, H200_PROFILE
from tests.passes.test_own_columns import graph_of

OPTIONS = jstitch.CompileOptions(tune="off", strict=True, verify=True)
Turn = Callable[[Any, tuple[Any, ...]], tuple[Any, Any]]


def of_rows(turn: Turn, start: float = 0.0) -> Callable[..., Any]:
    """Every row of the arrays by itself, from its first element to its last."""
    return jax.vmap(lambda *xs: lax.scan(turn, jnp.float32(start), xs)[1])


def gated(c: Any, x: tuple[Any, ...]) -> tuple[Any, Any]:
    c = jax.nn.sigmoid(x[1]) * c + jnp.tanh(x[0])
    return c, jnp.log1p(c * c)


def plain(c: Any, x: tuple[Any, ...]) -> tuple[Any, Any]:
    c = 0.9 * c + x[0] * x[1]
    return c, c


def waiting(c: Any, x: tuple[Any, ...]) -> tuple[Any, Any]:
    c = jnp.tanh(x[1] * c + x[0])
    return c, c


def arrays(rows: int, turns: int, count: int = 2) -> list[np.ndarray]:
    numbers = np.random.default_rng(rows + turns)
    return [numbers.standard_normal((rows, turns), np.float32) for _ in range(count)]


def kernel_of(f: Callable[..., Any], args: list[np.ndarray], context: Context = CPU) -> Kernel:
    """Checked, and run."""
    graph = graph_of(f, args, context)
    profile = CPU_PROFILE if context is CPU else H200_PROFILE
    kernel = lower_kernel("k", graph.ops, graph.inputs, graph.outputs, profile)
    assert check_kernel(kernel) == ()
    for found, wanted in zip(
        interpret_kernel(kernel, args, Random(0)), jax.tree.leaves(f(*args)), strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5)
    return kernel


def functions(lane: Lane) -> list[set[str]]:
    """Of each stage, what is called in a loop over turns."""
    found = []
    for stage in lane.stages:
        inside = [i for n in stage.nests for i in n.body if n.loops and n.loops[-1].var.name == TURN]
        found.append({c.function for i in inside if isinstance(i, Let) for c in calls(i.value)})
    return found


def test_only_what_waits_is_done_turn_by_turn() -> None:
    (lane,) = kernel_of(of_rows(gated), arrays(8, 20)).phases[0].lanes
    early, turns, late = functions(lane)
    assert {"exp", "tanh"} <= early
    assert not turns & {"exp", "tanh", "log1p"}
    assert "log1p" in late


@pytest.mark.parametrize("reverse", [False, True])
def test_seams_are_cut(reverse: bool) -> None:
    """What turns read was shifted by one: no element is asked where it is from."""

    def shifted(x: Any, y: Any) -> Any:
        after = jnp.concatenate([jnp.exp(x[:, 1:]), y[:, :1]], 1)
        return jax.vmap(lambda *xs: lax.scan(plain, jnp.float32(0), xs, reverse=reverse)[1])(
            jnp.tanh(y), after
        )

    (lane,) = kernel_of(shifted, arrays(8, 20)).phases[0].lanes
    early = lane.stages[0].nests
    assert {n.loops[-1].hi for n in early if n.loops} == {19}
    assert not any(
        "select" in {c.function for i in n.body if isinstance(i, Let) for c in calls(i.value)} for n in early
    )


@pytest.mark.parametrize("turn", [plain, waiting])
def test_what_is_cheap_or_waits_stays(turn: Turn) -> None:
    (lane,) = kernel_of(of_rows(turn), arrays(8, 20)).phases[0].lanes
    assert all(
        stage.note not in ("what no turn waits for", "what waits for no turn") for stage in lane.stages
    )


def test_a_gpus_threads_do_all_of_an_element() -> None:
    (lane,) = kernel_of(of_rows(gated), arrays(8, 20), H200).phases[0].lanes
    assert len(lane.stages) == 1


def test_rows_too_long_for_tiles_are_not_divided() -> None:
    turns = CPU_PROFILE.arena_bytes // 4
    graph = graph_of(of_rows(gated), [np.zeros((4, turns), np.float32)] * 2, CPU)
    kernel = lower_kernel("k", graph.ops, graph.inputs, graph.outputs, CPU_PROFILE)
    assert (kernel.arena, kernel.arena_bytes) == ((), 0)
    assert len(kernel.phases[0].lanes[0].stages) == 1


def drawn(random: Random) -> Callable[..., Any]:
    """A loop over the last axis: dear and cheap values before, in and behind what is carried."""
    dear = [jnp.tanh, jnp.exp, jax.nn.sigmoid, jnp.log1p, jnp.sqrt, jnp.sin]
    before, inside, behind = ([random.choice(dear) for _ in range(2)] for _ in range(3))
    shift = random.choice([0, 0, 1, -2])
    waits, both, reverse, leaves = (random.random() < p for p in (0.3, 0.5, 0.5, 0.7))

    def small(f: Callable[..., Any], x: Any) -> Any:
        return f(0.3 + x * x / (1 + x * x))

    def turn(carry: Any, x: tuple[Any, ...]) -> tuple[Any, Any]:
        a, b = carry
        weight = small(inside[0], x[0])
        a, b = 0.5 * weight * a + small(inside[1], x[1]), 0.7 * b + (a if both else x[1])
        a = small(inside[0], a) if waits else a
        left = small(behind[0], a) + x[0] * b if leaves else a
        return (a, b), (left, small(behind[1], b))

    def f(x: Any, y: Any) -> Any:
        xs = small(before[0], x), y * small(before[1], jnp.roll(y, shift, 1))
        last, (left, other) = jax.vmap(
            lambda *rows: lax.scan(turn, (rows[0][0], jnp.float32(1)), rows, reverse=reverse)
        )(*xs)
        return small(behind[1], left) + x, other, last[0]

    return f


@pytest.mark.parametrize("seed", range(12))
def test_drawn_loops(seed: int) -> None:
    random = Random(seed)
    args = arrays(random.choice([1, 3, 8, 30]), random.choice([1, 2, 9, 40]))
    f = drawn(random)
    found = jstitch.jit(f, options=OPTIONS)(*args)
    for mine, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(jax.jit(f)(*args)), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("rows", [2, 3, 17, 40])
def test_a_turn_of_rows_of_one_element(rows: int) -> None:
    """A loop of one turn, which reads its stacks as they are: every row goes on from its own number."""
    x = np.linspace(-1, 2, rows, dtype=np.float32)

    def f(x: Any) -> Any:
        return lax.scan(lambda c, x: (0.5 * jnp.tanh(x) * c + x, c + jnp.sin(c)), x * 3, x[None])

    options = OPTIONS.replace(without=("unroll_loops",))
    for mine, theirs in zip(jstitch.jit(f, options=options)(x), jax.jit(f)(x), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 400))
def test_more_drawn_loops(seed: int) -> None:
    test_drawn_loops(seed)
