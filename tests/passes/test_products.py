"""Matrix products as XLA's library runs them: merged where they share an operand, batch dimensions first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jstitch.device_spec import find_spec
from jstitch.frontend.importer import import_module
from jstitch.frontend.mlir import parse_module
from jstitch.frontend.target import cuda_profile
from jstitch.ir.graph import Graph, Op
from jstitch.ir.interpret import interpret
from jstitch.ir.verify import check
from jstitch.passes import profile
from jstitch.passes.lead_products import lead_products
from jstitch.passes.merge_products import PRODUCT, THRESHOLD, merge_products
from jstitch.passes.turn_products import turn_products

Args = tuple[Any, ...]


@pytest.fixture(autouse=True)
def cuda() -> Iterator[None]:
    with profile.using(cuda_profile(find_spec("h200"))):
        yield


def arrays(*shapes: tuple[int, ...]) -> Args:
    rng = np.random.default_rng(0)
    return tuple(rng.standard_normal(shape).astype(np.float32) for shape in shapes)


def graph_of(f: Callable[..., Any], args: Args) -> Graph:
    return import_module(parse_module(jax.jit(f).lower(*args).as_text()))


def products(graph: Graph) -> list[Op]:
    return [op for op in graph.walk() if op.name == PRODUCT]


def changed(change: Callable[[Graph], Graph], f: Callable[..., Any], *args: Any) -> Graph:
    """The graph after the pass, which means the same."""
    before = graph_of(f, args)
    after = check(change(before), change.__name__)
    for a, b in zip(interpret(before, args), interpret(after, args), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
    return after


def test_products_of_one_left_operand_are_merged() -> None:
    def f(x: Any, a: Any, b: Any, c: Any) -> Any:
        return jnp.exp(x @ a), x @ b, (x + 1) @ c

    args = arrays((5, 4, 8), (8, 3), (8, 3), (8, 3))
    merged = products(changed(merge_products, f, *args))
    assert sorted(op.result.shape for op in merged) == [(5, 4, 3), (5, 4, 6)]


def test_products_of_one_right_operand_are_merged() -> None:
    """Gradients of weights: what is pulled back differs, the activations are shared."""

    def f(x: Any, p: Any, q: Any) -> Any:
        return jnp.einsum("blw,blx->wx", p, x), jnp.einsum("blw,blx->wx", jnp.sin(q), x)

    (product,) = products(changed(merge_products, f, *arrays((2, 4, 8), (2, 4, 3), (2, 4, 3))))
    assert product.result.shape == (6, 8)


def test_products_that_need_each_other_are_not_merged() -> None:
    def f(x: Any, a: Any) -> Any:
        b = (x @ a) @ a.T
        return x @ b.T

    assert len(products(changed(merge_products, f, *arrays((4, 4), (4, 4))))) == 3


def test_crosswise_needs_do_not_become_a_cycle() -> None:
    """x @ b waits for y @ c, and y @ d for x @ a: one of the two pairs at most may be one."""

    def f(x: Any, y: Any, a: Any, c: Any) -> Any:
        p, q = x @ a, y @ c
        return x @ jnp.sin(q), y @ jnp.sin(p)

    assert len(products(changed(merge_products, f, *arrays((4, 4), (4, 4), (4, 4), (4, 4))))) == 4


def test_large_and_different_products_stay() -> None:
    def f(x: Any, a: Any, b: Any) -> Any:
        return x @ a, lax.dot(x, b, precision="highest")

    graph = graph_of(f, arrays((4, 4), (4, 3), (4, 3)))
    assert merge_products(graph) is graph
    rows = THRESHOLD // 4 // 64
    shapes = jax.eval_shape(lambda: (jnp.ones((rows, 64)), jnp.ones((64, 64)), jnp.ones((64, 64))))
    graph = import_module(parse_module(jax.jit(lambda x, a, b: (x @ a, x @ b)).lower(*shapes).as_text()))
    assert merge_products(graph) is graph


def test_the_same_weights_in_every_turn_are_joined_before_the_loop() -> None:
    def f(x: Any, a: Any, b: Any) -> Any:
        def body(h: Any, _: None) -> Any:
            return jnp.tanh(h @ a) + h @ b, None

        return lax.scan(body, x, None, length=20)[0]

    graph = changed(merge_products, f, *arrays((3, 4), (4, 4), (4, 4)))
    assert [op.name for op in graph.ops].count("stablehlo.concatenate") == 1
    assert [op.name for op in graph.walk()].count("stablehlo.concatenate") == 1
    assert len(products(graph)) == 1


def attention(q: Any, k: Any, v: Any) -> Any:
    """All three made by kernels."""
    scores = jnp.einsum("bqhd,bkhd->bhqk", q + 1, k * 2)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v - 1)


def test_operands_of_batched_products_are_turned() -> None:
    graph = changed(turn_products, attention, *arrays((2, 5, 3, 4), (2, 5, 3, 4), (2, 5, 3, 4)))
    for op in products(graph):
        assert op.attrs["lhs_batching_dimensions"] == op.attrs["rhs_batching_dimensions"] == (0, 1)
    before = graph_of(attention, arrays((2, 5, 3, 4), (2, 5, 3, 4), (2, 5, 3, 4)))
    turned = [sum(op.name == "stablehlo.transpose" for op in g.ops) for g in (before, graph)]
    assert turned[1] - turned[0] == 3


def test_operands_that_no_kernel_makes_stay() -> None:
    def f(q: Any, k: Any) -> Any:
        return jnp.einsum("bqhd,bkhd->bhqk", q, k)

    graph = graph_of(f, arrays((2, 5, 3, 4), (2, 5, 3, 4)))
    assert turn_products(graph) is graph


def sums(x: Any, a: Any, b: Any, c: Any) -> Any:
    """A chain of sums of products, as the gradient of weights that are used again and again."""
    return x + a.T @ b + (b.T @ a).T + a.T @ c + c


def test_products_lead_the_sums_that_they_are_added_to() -> None:
    graph = changed(lead_products, sums, *arrays((4, 4), (4, 4), (4, 4), (4, 4)))
    made = {v: op for op in graph.ops for v in op.results}
    added = [[made[v].name if v in made else "" for v in op.operands] for op in graph.ops if "add" in op.name]
    turned = "stablehlo.transpose"
    assert [names[0] for names in added] == [PRODUCT, turned, PRODUCT, "stablehlo.add"]


def test_a_sum_of_two_products_stays() -> None:
    graph = graph_of(lambda a, b: a @ b + b @ a, arrays((4, 4), (4, 4)))
    assert lead_products(graph) is graph


def test_the_cpu_keeps_products_as_they_are() -> None:
    graph = graph_of(attention, arrays((2, 5, 3, 4), (2, 5, 3, 4), (2, 5, 3, 4)))
    with profile.using(profile.CPU):
        assert lead_products(turn_products(merge_products(graph))) is graph
