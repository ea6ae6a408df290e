"""Loops that stack up what their turns make start with memory as it comes; nothing else does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.strategies import DataObject, data, integers, lists, sampled_from, tuples
from jax import lax

from jstitch.frontend.custom_call import UNSET_TARGET
from jstitch.frontend.exporter import export_module
from jstitch.frontend.importer import import_module
from jstitch.frontend.mlir import parse_module
from jstitch.ir.graph import Graph
from jstitch.ir.interpret import interpret
from jstitch.ir.ops import UNSET
from jstitch.ir.verify import check
from jstitch.passes.fuse.unroll_turns import unroll_turns
from jstitch.passes.graph.canonicalize import canonicalize
from jstitch.passes.graph.leave_unset import leave_unset
from tests.contexts import CPU, H200

X = np.linspace(-1, 1, 24, dtype=np.float32).reshape(8, 3)
Program = Callable[[Any], Any]


def graph_of(f: Program, x: Any = X) -> Graph:
    return canonicalize(import_module(parse_module(jax.jit(f).lower(x).as_text())))


def unset(graph: Graph) -> int:
    return sum(op.name == UNSET for op in graph.walk())


def left_unset(f: Program, x: Any = X, before: Callable[[Graph], Graph] = lambda graph: graph) -> int:
    """How many values start unset; the program means the same, although unset floats are NaN."""
    changed = check(leave_unset(before(graph_of(f, x)), H200), "leave_unset")
    want = jax.tree.leaves(jax.jit(f)(x))
    for a, b in zip(want, interpret(changed, [x]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    return unset(changed)


def turn(state: Any, row: Any) -> tuple[Any, Any]:
    state = jnp.tanh(state + row)
    return state, state * 2


def forward(x: Any) -> Any:
    return lax.scan(turn, jnp.zeros(3), x)


def backward(x: Any) -> Any:
    return lax.scan(turn, jnp.zeros(3), x, reverse=True)


def loss(x: Any) -> Any:
    return jnp.sum(forward(x)[1] ** 2)


def several(x: Any) -> Any:
    return lax.scan(lambda s, r: (s + r, (s, r.astype(jnp.bfloat16), s > r, r[0].astype(int))), x[0], x)


def nested(x: Any) -> Any:
    return lax.scan(lambda s, _: (s, lax.scan(turn, s, x)[1]), jnp.zeros(3), None, length=4)


CHANGES = pytest.mark.parametrize(
    "change", [lambda graph: graph, lambda graph: unroll_turns(graph, H200)], ids=["turns", "several turns"]
)


@CHANGES
@pytest.mark.parametrize(
    ("f", "stacks"), [(forward, 1), (backward, 1), (several, 4), (nested, 2), (jax.vmap(forward), 1)]
)
def test_what_a_scan_stacks_up_starts_unset(f: Program, stacks: int, change: Any) -> None:
    assert left_unset(f, before=change) == stacks


@CHANGES
def test_what_a_gradient_keeps_of_every_turn_starts_unset(change: Any) -> None:
    """How many stacks that is depends on JAX's version."""
    graph = graph_of(jax.grad(loss))
    loops = [op for op in graph.walk() if op.name == "stablehlo.while"]
    made = {op.result: op for op in graph.walk() if op.name == "stablehlo.constant"}
    filled = [v for op in loops for v in op.operands if v in made and v.shape == X.shape]
    assert left_unset(jax.grad(loss), before=change) == len(filled) >= 3


def by_hand(start: int, stop: int, where: Callable[[Any], Any], read: bool = False) -> Program:
    """A loop that writes rows of eight."""

    def f(x: Any) -> Any:
        def body(i: Any, stack: Any) -> Any:
            row = x[0] + i + (stack.sum() if read else 0)
            return lax.dynamic_update_slice(stack, row[None], (where(i), 0))

        return lax.fori_loop(start, stop, body, jnp.zeros((8, 3)))

    return f


def test_rows_in_other_orders_are_all_written() -> None:
    assert left_unset(by_hand(0, 8, lambda i: i)) == 1
    assert left_unset(by_hand(0, 8, lambda i: 7 - i)) == 1
    assert left_unset(by_hand(2, 10, lambda i: i - 2)) == 1


def passed_on(x: Any) -> Any:
    """The stack is wanted as it is before a turn."""
    return lax.fori_loop(
        0, 8, lambda i, s: (s[1], lax.dynamic_update_slice(s[1], x[:1], (i, 0))), (x, jnp.zeros((8, 3)))
    )


def asked(x: Any) -> Any:
    def more(state: Any) -> Any:
        return (state[0] < 8) & (state[1][0, 0] < 100)

    def body(state: Any) -> Any:
        i, stack = state
        return i + 1, lax.dynamic_update_slice(stack, x[:1], (i, 0))

    return lax.while_loop(more, body, (0, jnp.zeros((8, 3))))


def read_after(x: Any) -> Any:
    """Of each turn's rows."""

    def body(i: Any, state: Any) -> Any:
        stack = lax.dynamic_update_slice(state[0], x[:1] + i, (i, 0))
        return stack, state[1] + stack.sum()

    return lax.fori_loop(0, 8, body, (jnp.zeros((8, 3)), jnp.float32(0)))


def of_the_caller(x: Any) -> Any:
    return lax.fori_loop(0, 8, lambda i, s: lax.dynamic_update_slice(s, x[:1], (i, 0)), x * 2)


STAYS = {
    "a row too few": by_hand(1, 8, lambda i: i),
    "a row twice": by_hand(0, 8, lambda i: i // 2),
    "beyond the end": by_hand(0, 8, lambda i: i + 1),
    "read by a turn": by_hand(0, 8, lambda i: i, read=True),
    "read after a turn": read_after,
    "asked about": asked,
    "passed on": passed_on,
    "the caller's": of_the_caller,
    "not written": lambda x: lax.fori_loop(0, 8, lambda i, s: (s[0] + x, s[1]), (x, jnp.zeros((8, 3)))),
    "of a length that is not known": lambda x: lax.fori_loop(
        0, x[0, 0].astype(int), lambda i, s: lax.dynamic_update_slice(s, x[:1], (i, 0)), jnp.zeros((8, 3))
    ),
}


@pytest.mark.parametrize("case", STAYS)
def test_what_somebody_reads_is_filled(case: str) -> None:
    assert left_unset(STAYS[case]) == 0


@settings(max_examples=40, deadline=None)
@given(data())
def test_random_loops_mean_the_same(draw: DataObject) -> None:
    """Updates of one or two rows, at multiples of the counter and more: NaN would show."""
    rows, start, trips = (draw.draw(integers(*bounds)) for bounds in ((1, 9), (0, 3), (0, 9)))
    updates = draw.draw(
        lists(tuples(sampled_from([-1, 0, 1, 2]), integers(-4, 9), integers(1, 2)), min_size=1)
    )

    def f(x: Any) -> Any:
        def body(i: Any, stack: Any) -> Any:
            for scale, offset, size in updates:
                row = jnp.full((min(size, rows), 3), i, jnp.float32) + x[0, 0]
                stack = lax.dynamic_update_slice(stack, row, (scale * i + offset, 0))
            return stack

        return lax.fori_loop(start, start + trips, body, jnp.ones((rows, 3)))

    left_unset(f)


def test_the_cpu_fills_it() -> None:
    graph = graph_of(forward)
    assert leave_unset(graph, CPU) is graph


def test_an_index_that_is_a_long_sum_is_not_followed_for_ever() -> None:
    def where(i: Any) -> Any:
        for _ in range(60):
            i = i + i
        return i

    assert left_unset(by_hand(0, 8, where)) == 0


def test_unset_memory_is_xlas_own_call_and_zeros_without_a_backend() -> None:
    graph = leave_unset(graph_of(several), H200)
    assert UNSET_TARGET not in str(export_module(graph))
    text = str(export_module(graph, emit_kernel=lambda op, operands: []))
    assert text.count(f"@{UNSET_TARGET}()") == 4
    configs = {
        line.partition("backend_config = ")[2].split('"')[1]
        for line in text.splitlines()
        if UNSET_TARGET in line
    }
    assert len(configs) == 4  # XLA would make equal ones one, and copy it


@pytest.mark.parametrize("dtype", [jnp.bool_, jnp.int8, jnp.uint32, jnp.bfloat16, jnp.float32, jnp.complex64])
def test_unset_memory_of_every_type_can_be_looked_at(dtype: Any) -> None:
    graph = leave_unset(
        graph_of(lambda x: lax.scan(lambda s, r: (s, (s + r[0]).astype(dtype)), x[0, 0], x)), H200
    )
    assert unset(graph) == 1
    (op,) = (op for op in graph.walk() if op.name == UNSET)
    (value,) = interpret(Graph((), (op,), op.results), [])
    assert value.dtype == dtype
    assert np.all(value != 0)
