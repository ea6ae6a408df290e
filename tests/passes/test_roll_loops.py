"""Loops whose turns are several of the same turns are rolled up, with the same results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jstitch
from jstitch.frontend.importer import import_module
from jstitch.frontend.mlir import parse_module
from jstitch.ir.graph import Graph
from jstitch.ir.interpret import interpret
from jstitch.ir.ops import WHILE
from jstitch.ir.verify import check
from jstitch.passes.base.rewrite import has
from jstitch.passes.fuse.find_copies import find_copies
from jstitch.passes.fuse.roll_loops import roll_loops
from jstitch.passes.graph.canonicalize import canonicalize
from tests.contexts import CPU

OPTIONS = jstitch.CompileOptions(tune="off", strict=True, verify=True)
Turn = Callable[[Any, Any], tuple[Any, Any]]


def shared(c: Any, t: Any) -> Any:
    """What a turn reads is what the next one reads of the one before."""
    a, b = c
    n = a * 0.9 + jnp.sin(t) * b
    return (n, t), (n * 2, a)


def shifted(c: Any, t: Any) -> Any:
    """A filter's last values."""
    a, b = c
    y = t + 0.3 * a - 0.2 * b
    return (y, a), y


def swapped(c: Any, t: Any) -> Any:
    a, b = c
    return (b, a * 0.5 + t), (a, b * t)


def without_stacks(c: Any, t: Any) -> Any:
    a, b = c
    return (jnp.maximum(a, t), b), None


def compressor(c: Any, t: Any) -> Any:
    a, b = c
    k = jnp.where(t < a, 0.9, 0.999)
    return (k * a + (1 - k) * t, b), a


TURNS: Mapping[str, Turn] = {f.__name__: f for f in (shared, shifted, swapped, without_stacks, compressor)}


def graph_of(f: Callable[..., Any], args: list[np.ndarray]) -> Graph:
    """As the pass is given it."""
    return canonicalize(import_module(parse_module(jax.jit(f).lower(*args).as_text())))


def scanned(turn: Turn, unroll: int, reverse: bool) -> Callable[[Any], Any]:
    def f(x: Any) -> Any:
        begin = jnp.zeros(x.shape[1:]), jnp.zeros(x.shape[1:]) + 0.5
        return lax.scan(turn, begin, x, unroll=unroll, reverse=reverse)

    return f


def loops(graph: Graph) -> list[int]:
    """Copies of a turn that each loop has."""
    producers = graph.producers()
    found = (find_copies(op, producers.get) for op in graph.ops if op.name == WHILE)
    return [1 if copies is None else copies.count for copies in found]


def drawn(random: Random) -> tuple[Callable[[Any], Any], np.ndarray]:
    unroll, turns = random.choice((2, 3, 4, 8)), random.choice((2, 5, 9))
    rest = random.choice((0, 0, 1))
    shape = (unroll * turns + rest, *random.choice(((), (1,), (8,), (3, 5), (40,))))
    x = np.random.default_rng(random.randrange(1 << 30)).standard_normal(shape).astype(np.float32)
    return scanned(TURNS[random.choice(list(TURNS))], unroll, random.random() < 0.5), x


@pytest.mark.parametrize(
    "seed", [*range(24), *(pytest.param(n, marks=pytest.mark.slow) for n in range(24, 300))]
)
def test_drawn_loops(seed: int) -> None:
    """The graph by its interpreter, then the kernels, with the pass and without, and the gradient's."""
    f, x = drawn(Random(seed))
    wanted = jax.tree.leaves(jax.jit(f)(x))
    graph = graph_of(f, [x])
    after = check(roll_loops(graph, CPU))
    for a, b in zip(interpret(after, [x]), wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)

    def loss(x: Any) -> Any:
        return sum(jnp.sum(v**2) for v in jax.tree.leaves(f(x)))

    for g in (f, jax.grad(loss)):
        for without in ((), ("roll_loops",)):
            found = jstitch.jit(g, options=OPTIONS.replace(without=without))(x)
            for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(jax.jit(g)(x)), strict=True):
                np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("turn", TURNS)
@pytest.mark.parametrize("reverse", [False, True])
def test_copies_are_found(turn: str, reverse: bool) -> None:
    f = scanned(TURNS[turn], 4, reverse)
    x = np.zeros((480, 40), np.float32)
    graph = graph_of(f, [x])
    assert loops(graph) == [4]
    assert loops(roll_loops(graph, CPU)) == [1]


@pytest.mark.parametrize(
    "f",
    [
        lambda x: lax.scan(lambda c, t: (c + t[0] * t[1], c), 0.0, x.reshape(24, 2, 16)[..., 0]),
        lambda x: lax.scan(lambda c, t: ((c + t[0]) * 2 + t[1], c), jnp.zeros(16), x.reshape(24, 2, 16)),
        lambda x: lax.scan(lambda c, t: (c + t[0] + 3 * t[1], c), jnp.zeros(16), x.reshape(24, 2, 16)),
        lambda x: lax.scan(lambda c, t: (c + t, c), jnp.zeros(16), x),
    ],
)
def test_what_only_looks_alike_stays(f: Callable[[Any], Any]) -> None:
    x = np.zeros((48, 16), np.float32)
    graph = graph_of(f, [x])
    assert loops(graph) == [1]
    assert roll_loops(graph, CPU) is graph


@pytest.mark.parametrize("turns", [2, 17])
def test_empty_arrays(turns: int) -> None:
    def f(x: Any, h: Any) -> Any:
        return lax.scan(lambda h, now: (jnp.tanh(h + now.sum()), None), h, x)[0]

    args = np.ones((turns, 3, 0), np.float32), np.ones((3, 40), np.float32)
    found = jstitch.jit(f, options=jstitch.CompileOptions(strict=True))(*args)
    np.testing.assert_allclose(found, jax.jit(f)(*args), rtol=1e-6)


def test_loops_that_are_no_kernels_stay() -> None:
    def f(x: Any, w: Any) -> Any:
        return lax.scan(lambda c, t: (jnp.linalg.cholesky(c @ w + t), None), w, x, unroll=2)[0]

    args = [np.zeros((8, 4, 4), np.float32), np.zeros((4, 4), np.float32)]
    graph = graph_of(f, args)
    assert has(roll_loops(graph, CPU), WHILE)
    assert roll_loops(graph, CPU) is graph
    without = type(CPU)(jstitch.CompileOptions(without=("recurrences",)), CPU.profile)
    rolled = graph_of(scanned(shifted, 4, False), [np.zeros((48, 16), np.float32)])
    assert roll_loops(rolled, without) is rolled


def test_rows_side_by_side_read_one_carry_before_it_changes() -> None:
    """Four elements of what a turn leaves, and a carry that is a number."""
    f, x = scanned(shared, 4, True), np.random.default_rng(0).standard_normal(12).astype(np.float32)
    without = OPTIONS.replace(without=("roll_loops",))
    for a, b in zip(
        jax.tree.leaves(jstitch.jit(f, options=without)(x)), jax.tree.leaves(jax.jit(f)(x)), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    assert jstitch.last_report()[-1].kernels == 1
