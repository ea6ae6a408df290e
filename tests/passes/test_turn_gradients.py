"""Gradients of weights come out with the long side last, and are turned back where XLA cannot undo it."""

from __future__ import annotations

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jstitch
from jstitch.frontend.importer import import_module
from jstitch.ir.graph import Graph
from jstitch.ir.interpret import interpret
from jstitch.ir.verify import check
from jstitch.passes.graph.fold_transposes import fold_transposes
from jstitch.passes.graph.turn_gradients import LONGER, NARROW, turn_gradients
from tests.contexts import CPU, H200


def product(*shapes: tuple[int, ...], dtype: Any = np.float32, **options: Any) -> tuple[Graph, list[Any]]:
    dims = tuple(range(len(shapes[0]) - 1))
    numbers = np.random.default_rng(0)
    args = [(4 * numbers.standard_normal(shape)).astype(dtype) for shape in shapes]

    def f(x: Any, d: Any) -> Any:
        return lax.dot_general(x, d, ((dims, dims), ((), ())), **options)

    return import_module(jax.jit(f).lower(*args).compiler_ir("stablehlo")), args


def names(graph: Graph) -> list[str]:
    return [op.name.removeprefix("stablehlo.") for op in graph.ops]


TURNED = ["dot_general", "jstitch.turned", "transpose"]


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        (((50, 40), (50, 3)), True),
        (((2, 7, 40), (2, 7, 3)), True),
        (((0, 40), (0, 3)), False),
        (((2, 40), (2, 3)), False),
        (((200, LONGER * NARROW), (200, NARROW)), True),
        (((200, 4 * NARROW), (200, NARROW + 1)), False),
        (((50, LONGER * 8 - 1), (50, 8)), False),
        (((50, 3), (50, 40)), False),
        (((50, 40), (50, 1)), False),
    ],
)
def test_which_products_are_turned(shapes: tuple[tuple[int, ...], ...], expected: bool) -> None:
    graph, args = product(*shapes)
    found = check(turn_gradients(graph, CPU), "turn_gradients")
    assert names(found) == (TURNED if expected else ["dot_general"])
    np.testing.assert_allclose(interpret(found, args)[0], interpret(graph, args)[0], 1e-5, 1e-4)
    assert turn_gradients(graph, H200) is graph


def test_what_is_asked_for_one_operand_stays_with_it() -> None:
    uneven, _ = product((50, 40), (50, 3), precision=("highest", "default"))
    assert names(turn_gradients(uneven, CPU)) == ["dot_general"]
    even, _ = product((50, 40), (50, 3), precision="highest")
    (op, *_) = turn_gradients(even, CPU).ops
    assert "HIGHEST" in str(op.attrs["precision_config"])
    numbers, _ = product((50, 40), (50, 3), dtype=np.int32)
    assert names(turn_gradients(numbers, CPU)) == ["dot_general"]


def loss(w: Any, b: Any, x: Any, y: Any) -> Any:
    """Of a dense layer of few classes."""
    found = jax.nn.log_softmax(jnp.tanh(x @ w + b))
    return -jnp.take_along_axis(found, y[:, None], -1).mean()


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_xla_multiplies_the_other_way_round(dtype: Any) -> None:
    """And does not fold the transpose back."""
    numbers = np.random.default_rng(0)
    w, x = (jnp.asarray(numbers.standard_normal(s), dtype) for s in ((784, 10), (256, 784)))
    args = w / 28, jnp.zeros(10, dtype), x, numbers.integers(0, 10, 256)
    step = jax.value_and_grad(loss, (0, 1, 2))
    jitted = jstitch.jit(step, options=jstitch.CompileOptions(tune="off", strict=True))
    text = jitted.lower(*args).compile().as_text()
    (found,) = re.findall(r"= \w+(\[10,784\]\S*|\[784,10\]\S*) dot\(", text)
    assert found in ("[10,784]{1,0}", "[784,10]{0,1}")
    tolerance = 1e-4 if dtype == jnp.float32 else 5e-2
    for a, b in zip(*(jax.tree.leaves(f(*args)) for f in (jitted, jax.jit(step))), strict=True):
        np.testing.assert_allclose(np.float64(a), np.float64(b), tolerance, tolerance / 10)


@pytest.mark.parametrize(
    ("permutations", "contracted"),
    [(((1, 0), None), ((1,), (0,))), ((None, (1, 0)), ((0,), (1,))), (((1, 0), (1, 0)), ((1,), (1,)))],
)
def test_operands_may_be_written_transposed(permutations: Any, contracted: Any) -> None:
    """`x.T @ d` sums over the rows of both, too."""
    numbers = np.random.default_rng(0)
    args = [numbers.standard_normal(s).astype(np.float32) for s in ((50, 40), (50, 3))]

    def f(*operands: Any) -> Any:
        turned = (x if p is None else x.transpose(p) for x, p in zip(operands, permutations, strict=True))
        return lax.dot_general(*turned, (contracted, ((), ())))

    graph = import_module(jax.jit(f).lower(*args).compiler_ir("stablehlo"))
    found = check(turn_gradients(fold_transposes(graph), CPU), "turn_gradients")
    assert names(found)[-3:] == TURNED
    np.testing.assert_allclose(interpret(found, args)[0], args[0].T @ args[1], 1e-5, 1e-4)


@pytest.mark.parametrize(("contracted", "expected"), [(((1, 0), (0, 1)), True), (((0, 1), (1, 0)), False)])
def test_rows_of_several_dimensions_may_be_written_in_another_order(contracted: Any, expected: bool) -> None:
    """Where both operands are summed in the order in which they lie; else a copy would be."""
    numbers = np.random.default_rng(0)
    args = [numbers.standard_normal(s).astype(np.float32) for s in ((7, 7, 40), (7, 7, 3))]

    def f(x: Any, d: Any) -> Any:
        return lax.dot_general(x.transpose(1, 0, 2), d, (contracted, ((), ())))

    graph = import_module(jax.jit(f).lower(*args).compiler_ir("stablehlo"))
    found = check(turn_gradients(fold_transposes(graph), CPU), "turn_gradients")
    assert (names(found)[-3:] == TURNED) == expected
    np.testing.assert_allclose(interpret(found, args)[0], f(*args), 1e-5, 1e-4)


def test_a_program_without_kernels_has_them_too() -> None:
    numbers = np.random.default_rng(0)
    x, d = (numbers.standard_normal(s).astype(np.float32) for s in ((500, 60), (500, 6)))
    since = jstitch.record_count()
    jitted = jstitch.jit(lambda x, d: x.T @ d)
    text = jitted.lower(x, d).compile().as_text()
    assert re.findall(r"= f32(\[6,60\]\S*) dot\(", text)
    (record,) = jstitch.last_report(since)
    assert (record.kernels, record.details["turned"]) == (0, 1)
    np.testing.assert_allclose(jitted(x, d), x.T @ d, 1e-4, 1e-4)
    left = jstitch.jit(lambda x, d: x.T @ d, options=jstitch.CompileOptions(without=("turn_gradients",)))
    assert "f32[6,60]" not in left.lower(x, d).compile().as_text()
