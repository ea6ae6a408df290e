"""Parts of an elementwise value, taken of what it is made of: where, and what parts cost in a kernel."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jstitch
from jstitch.frontend.importer import import_module
from jstitch.frontend.mlir import parse_module
from jstitch.ir.graph import Graph, Op
from jstitch.ir.ops.build import takes_part
from jstitch.ir.verify import check
from jstitch.passes.cost.parts_read import bytes_read, shares_made
from jstitch.passes.graph.canonicalize import canonicalize
from jstitch.passes.graph.cse import cse
from jstitch.passes.graph.hoist_slices import hoist_slices
from tests.contexts import CPU

Array = jax.Array
WIDE = jax.ShapeDtypeStruct((512, 256), jnp.float32)
ROWS = jax.ShapeDtypeStruct((8,), jnp.int32)
ACTIVATIONS: tuple[Callable[[Array], Array], ...] = (
    jax.nn.silu,
    lambda x: jnp.clip(x, -1, 1),
    lambda x: jnp.where(x > 0, x, x * x),
    lambda x: (x * 3).astype(jnp.bfloat16).astype(jnp.float32),
)
TAKEN: tuple[Callable[[Array, Array], Array], ...] = (
    lambda h, i: h[-1],
    lambda h, i: h[:, 3],
    lambda h, i: h[::9, 1:50],
    lambda h, i: h[i],
    lambda h, i: h[:, i[:3]],
    lambda h, i: jax.lax.dynamic_slice(h, (i[0], 3), (4, 100)),
)


def graph_of(f: Callable[..., Any], *args: Any) -> Graph:
    return cse(canonicalize(import_module(parse_module(jax.jit(f).lower(*args).as_text()))))


def hoisted(f: Callable[..., Any], *args: Any) -> Graph:
    found = hoist_slices(graph_of(f, *args), CPU)
    check(found, "hoist_slices")
    return found


def of_parts(graph: Graph) -> list[Op | None]:
    """What makes the values that parts are taken of; None: an input."""
    producers = graph.producers()
    return [producers.get(op.operands[0]) for op in graph.ops if takes_part(op)]


def test_a_value_that_nobody_else_reads() -> None:
    assert of_parts(hoisted(lambda x: jnp.tanh(jax.nn.silu(x))[-1], WIDE)) == [None]


def test_a_value_that_a_later_kernel_makes() -> None:
    """The scatter of the gradient is between the part and those who read all."""

    def loss(x: Array, i: Array) -> Array:
        return jnp.sum(jnp.sin(jax.nn.silu(x)[i]))

    taken = of_parts(hoisted(jax.grad(loss), WIDE, ROWS))
    assert taken
    assert set(taken) == {None}


def test_not_where_one_kernel_makes_the_value_and_its_part() -> None:
    (maker,) = of_parts(hoisted(lambda x: (jnp.tanh(x).sum(), jnp.tanh(x)[-1]), WIDE))
    assert maker is not None


@pytest.mark.parametrize(
    "f",
    [
        lambda x: (jnp.tanh(x)[:200],),  # no small part
        lambda x: (jnp.tanh(x[:64, :32])[-1],),  # of no large value
        lambda x: (jnp.tanh(x - x.max(-1, keepdims=True))[-1],),  # of what is not in memory
        lambda x: tuple(jnp.tanh(x)[k * 32 : k * 32 + 32] for k in range(16)),  # all, part by part
    ],
)
def test_what_stays(f: Callable[[Array], Any]) -> None:
    graph = graph_of(f, WIDE)
    assert hoist_slices(graph, CPU) is graph


def test_an_element_of_each_row_is_left_to_its_kernel() -> None:
    def picked(x: Array, i: Array) -> Array:
        return jnp.take_along_axis(jnp.tanh(x), i, axis=-1)

    graph = graph_of(picked, WIDE, jax.ShapeDtypeStruct((512, 1), jnp.int32))
    assert any(op.attrs["operand_batching_dims"] for op in graph.ops if op.name == "stablehlo.gather")
    assert hoist_slices(graph, CPU) is graph


@pytest.mark.parametrize("seed", range(12))
def test_the_same_numbers(seed: int) -> None:
    random = Random(seed)
    first, second = random.sample(ACTIVATIONS, 2)
    taken = TAKEN[seed % len(TAKEN)]
    shape = random.randint(130, 400), random.randint(130, 400)

    def loss(x: Array, i: Array) -> Array:
        h = second(first(x))
        whole = jnp.sum(h * h) if seed % 2 else 0.0
        return whole + jnp.sum(jnp.sin(taken(h, i)))

    rng = np.random.default_rng(seed)
    x = jnp.asarray(rng.normal(size=shape), jnp.float32)
    i = jnp.asarray(rng.integers(-2, 200, 5), jnp.int32)
    options = jstitch.CompileOptions(tune="off", strict=True, verify=True)
    for f in (loss, jax.grad(loss)):
        found, expected = jstitch.jit(f, options=options)(x, i), jax.jit(f)(x, i)
        np.testing.assert_allclose(found, expected, 2e-4, 2e-4)


# -- what parts cost --------------------------------------------------------------------------------------


def costs(f: Callable[..., Any], *args: Any) -> tuple[float, float]:
    """Bytes read, and elements made of the first tanh, as a share."""
    graph = graph_of(f, *args)
    shares = shares_made(graph.ops, graph.outputs)
    readers = {op: shares.get(op, 1.0) for op in graph.ops}
    made = [readers[op] for op in graph.ops if op.name == "stablehlo.tanh"]
    return bytes_read(graph.inputs, readers), made[0]


def test_bytes_of_parts() -> None:
    row, element = 256 * 4, 4
    assert costs(lambda x: jnp.tanh(x[3]), WIDE) == (row, 1.0)
    assert costs(lambda x: jnp.tanh(x[:, 3]), WIDE) == (512 * 64, 1.0)  # a line each
    assert costs(lambda x: jnp.tanh(x)[3], WIDE) == (row, 1 / 512)
    assert costs(lambda x: (jnp.tanh(x)[3], x * 2), WIDE) == (512 * row, 1 / 512)
    assert costs(lambda x: (jnp.tanh(x)[3, 2], jnp.tanh(x)), WIDE) == (512 * row, 1.0)
    assert costs(lambda x: jnp.tanh(x)[:, 0:0], WIDE)[0] == 0
    assert costs(lambda x: jnp.tanh(x)[3, 5:6], WIDE)[0] == element
