"""Several turns of a loop in its body: same results, fewer turns; stacks are still written in place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jstitch
from jstitch.frontend.importer import import_module
from jstitch.frontend.mlir import parse_module
from jstitch.ir.graph import Graph, Op
from jstitch.ir.interpret import interpret
from jstitch.ir.verify import check
from jstitch.passes.fuse.find_recurrences import Recurrences
from jstitch.passes.fuse.unroll_turns import MAX_OPS, PAIR_OPS, unroll_turns
from jstitch.passes.graph.is_moved import COPIED
from jstitch.passes.graph.keep_counters import LEFT, keep_counters
from jstitch.passes.pipeline import frames, run
from tests.contexts import CPU, on
from tests.contexts import H200 as WHOLE
from tests.passes.test_updates_and_recomputation import run_contracted

H200 = on(WHOLE.profile, without=("recurrences",))
"""Loops here would be kernels as they are."""
LARGE = COPIED // 4
PAIRS = on(CPU.profile, without=("recurrences",))

X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
Loop = Callable[..., Any]


def graph_of(f: Loop, *args: Any) -> Graph:
    return import_module(parse_module(jax.jit(f).lower(*args).as_text()))


def loops(graph: Graph) -> list[Op]:
    return [op for op in graph.walk() if op.name == "stablehlo.while"]


def unrolled(f: Loop, *args: Any) -> list[int]:
    """How many sines each loop's body has afterwards; the results are the same."""
    before = graph_of(f, *args)
    after = check(unroll_turns(before, H200), "unroll_turns")
    for a, b in zip(interpret(before, args), interpret(after, args), strict=True):
        np.testing.assert_array_equal(a, b)
    return [sum(op.name == "stablehlo.sine" for op in loop.regions[1].ops) for loop in loops(after)]


def counted(trips: int) -> Loop:
    return lambda x: lax.fori_loop(2, 2 + trips, lambda i, y: jnp.sin(y) + i, x)


@pytest.mark.parametrize(("trips", "turns"), [(28, 4), (50, 5), (6, 3), (22, 2), (5, 1), (29, 1)])
def test_turns_divide_the_trip_count(trips: int, turns: int) -> None:
    assert unrolled(counted(trips), X) == [turns]


def test_scans_read_and_stack_the_right_rows() -> None:
    def f(x: Any, xs: Any) -> Any:
        def body(h: Any, row: Any) -> Any:
            new = jnp.sin(h + row)
            return new, (new * 2, h)

        return lax.scan(body, x, xs), lax.scan(body, x, xs, reverse=True)

    rows = np.random.default_rng(0).standard_normal((20, 3, 4)).astype(np.float32)
    assert unrolled(f, X, rows) == [5, 5]


def test_only_inner_loops_that_constants_count_are_unrolled() -> None:
    def nested(x: Any) -> Any:
        return lax.fori_loop(0, 8, lambda i, y: counted(6)(y) * 0.5, x)

    assert unrolled(nested, X) == [0, 3]
    assert unrolled(lambda x, n: lax.fori_loop(0, n, lambda i, y: jnp.sin(y), x), X, np.int32(8)) == [1]
    until = graph_of(lambda x: lax.while_loop(lambda y: y[0, 0] > -1, lambda y: y - 1, x), X)
    assert unroll_turns(until, H200) is until


def test_a_long_body_has_two_turns_at_most() -> None:
    def many(count: int) -> Loop:
        def body(i: Any, y: Any) -> Any:
            for _ in range(count):
                y = jnp.sin(y)
            return y

        return lambda x: lax.fori_loop(0, 20, body, x)

    assert unrolled(many(MAX_OPS // 4), X) == [MAX_OPS // 2]
    assert unrolled(many(MAX_OPS - 2), X) == [2 * (MAX_OPS - 2)]
    long = graph_of(many(PAIR_OPS // 2), X)
    assert unroll_turns(long, H200) is long


def test_what_only_xla_knows_stands_in_every_turn_if_it_has_no_effect() -> None:
    def search(x: Any) -> Any:
        return lax.fori_loop(0, 6, lambda i, y: lax.top_k(jnp.sin(y), 4)[0], x)

    def talk(x: Any) -> Any:
        def body(i: Any, y: Any) -> Any:
            jax.debug.callback(lambda: None)
            return jnp.sin(y)

        return lax.fori_loop(0, 6, body, x)

    (loop,) = loops(check(unroll_turns(graph_of(search, X), H200), "unroll_turns"))
    assert [op.name for op in loop.regions[1].ops].count("chlo.top_k") == 3
    assert unroll_turns(before := graph_of(talk, X), H200) is before


def test_what_is_a_kernel_keeps_its_turns() -> None:
    assert unroll_turns(graph := graph_of(counted(28), X), WHOLE) is graph


def test_the_cpu_keeps_turns() -> None:
    graph = graph_of(counted(28), X)
    assert unroll_turns(graph, CPU) is graph


def test_kernels_are_lowered_only_where_turns_would_be_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: object) -> Recurrences:
        raise AssertionError("a loop that copies nothing was lowered")

    monkeypatch.setattr("jstitch.passes.fuse.unroll_turns.find_recurrences", asked)
    f, _ = stencil(6, LARGE, moves=False)
    unroll_turns(graph := graph_of(f, np.zeros(LARGE, np.float32)), PAIRS)
    assert loops(graph)
    moving, x = stencil(6, LARGE)
    with pytest.raises(AssertionError, match="was lowered"):
        unroll_turns(graph_of(moving, x), PAIRS)


def stencil(trips: int, size: int, moves: bool = True) -> tuple[Loop, np.ndarray]:
    """Turns that add neighbours, or change every element by itself."""

    def turn(i: Any, x: Any) -> Any:
        return jnp.sin(x + jnp.pad(x, 1)[2:]) if moves else jnp.sin(x + 1.0)

    return lambda x: lax.fori_loop(0, trips, turn, x), np.linspace(-1, 1, size, dtype=np.float32)


@pytest.mark.parametrize(
    ("trips", "size", "moves", "turns"),
    [
        (6, LARGE, True, 2),
        (7, LARGE, True, 2),
        (3, LARGE, True, 1),
        (6, LARGE - 1, True, 1),
        (6, LARGE, False, 1),
        (2, LARGE, True, 1),
    ],
)
def test_the_cpu_has_two_of_what_is_copied_back(trips: int, size: int, moves: bool, turns: int) -> None:
    f, x = stencil(trips, size, moves)
    before = graph_of(f, x)
    after = check(unroll_turns(before, PAIRS), "unroll_turns")
    assert [sum(op.name == "stablehlo.sine" for op in loop.regions[1].ops) for loop in loops(after)] == [
        turns
    ]
    np.testing.assert_array_equal(interpret(after, [x])[0], interpret(before, [x])[0])


@pytest.mark.parametrize("trips", [12, 13])
def test_no_kernel_has_ops_of_two_turns(trips: int) -> None:
    """Else XLA would copy what it makes back: the loop's body has two calls, and copies nothing."""
    f, x = stencil(trips, LARGE)
    jitted = jstitch.jit(f, options=jstitch.CompileOptions(tune="off", without=("recurrences",)))
    text = jitted.lower(x).compile().as_text()
    called = [part for part in text.split("\n\n") if "custom-call(" in part]
    (body,) = [part for part in called if not part.startswith("ENTRY")]
    assert body.count("custom-call(") == 2
    assert " copy(" not in body


def test_pairs_of_turns_compute_the_same() -> None:
    """Odd and even numbers of turns, forwards and back, of two fields that read each other's neighbours."""

    def waves(x: Any, trips: int) -> Any:
        def turn(_: Any, state: Any) -> Any:
            now, before = state
            wide = jnp.pad(now, 1)
            around = wide[2:, 1:-1] + wide[:-2, 1:-1] + wide[1:-1, 2:] + wide[1:-1, :-2] - 4 * now
            return 2 * now - before + 0.1 * around, now

        return lax.fori_loop(0, trips, turn, (x, jnp.zeros_like(x)))

    x = np.random.default_rng(0).standard_normal((130, 131), np.float32)
    for trips in (8, 9):
        f = partial(waves, trips=trips)
        found, expected = jstitch.jit(f)(x), jax.jit(f)(x)
        assert jstitch.last_report()[-1].kernels
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_one_addition_counts_all_turns() -> None:
    graph = keep_counters(run(graph_of(counted(28), X), H200))
    (loop,) = loops(graph)
    left = [op for op in loop.regions[1].ops if LEFT in op.attrs]
    assert [op.name for op in left] == ["stablehlo.add"]


@pytest.mark.parametrize("turns", [1, 4])
def test_stacks_are_written_by_the_kernels_of_all_turns(turns: int) -> None:
    """With products between the turns, each turn has kernels of its own, and each writes into its row."""

    def cell(carry: Any, x: Any) -> Any:
        new = jnp.tanh(carry @ jnp.ones((4, 4)) + x)
        return new, (new, carry)

    graph = graph_of(lambda c, xs: lax.scan(cell, c, xs), X, np.ones((8, 3, 4), np.float32))
    context = replace(H200, profile=replace(H200.profile, turns=turns))
    (body,) = [frame for frame in frames(keep_counters(run(graph, context))) if len(frame.outputs) > 3]
    rng = np.random.default_rng(0)
    args = [
        np.asarray(4, v.tensor.dtype.numpy)
        if v.tensor.dtype.is_integer
        else rng.standard_normal(v.shape).astype(np.float32)
        for v in body.inputs
    ]
    found, kernels, updates = run_contracted(body, args)
    assert kernels >= turns
    assert updates == 2 * turns
    for a, b in zip(found, interpret(body, args), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


def test_two_rows_of_one_stack_are_not_written_by_one_kernel() -> None:
    """Without products all turns are one kernel, which could not take the stack and give it on."""

    def cell(carry: Any, x: Any) -> Any:
        new = jnp.tanh(carry + x)
        return new, new

    graph = graph_of(lambda c, xs: lax.scan(cell, c, xs), X, np.ones((16, 3, 4), np.float32))
    (body,) = [frame for frame in frames(keep_counters(run(graph, H200))) if len(frame.outputs) > 2]
    args = [
        np.zeros((), np.int32) if v.tensor.dtype.is_integer else np.ones(v.shape, np.float32)
        for v in body.inputs
    ]
    found, _, _ = run_contracted(body, args)
    for a, b in zip(found, interpret(body, args), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
