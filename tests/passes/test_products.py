"""Matrix products as XLA's library runs them: merged where they share an operand, batch dimensions first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jstitch.frontend.importer import import_module
from jstitch.frontend.mlir import parse_module
from jstitch.ir.interpret import interpret
from jstitch.ir.verify import check
from jstitch.passes.graph.cse import cse
from jstitch.passes.graph.dce import dce
from jstitch.passes.graph.join_sums import join_sums
from jstitch.passes.graph.lead_products import lead_products
from jstitch.passes.graph.leave_sums import leave_sums
from jstitch.passes.graph.merge_products import PRODUCT, THRESHOLD, merge_products
from jstitch.passes.graph.reduce_products import SMALL, reduce_products
from jstitch.passes.graph.swap_products import swap_products
from jstitch.passes.graph.turn_products import turn_products
from tests.contexts import CPU, H200
from tests.passes.product_graphs import arrays, changed, graph_of, products


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


def test_products_for_several_heads_are_merged() -> None:
    """Of activations shared on either side, also with one whose weights are a matrix of the same size."""

    def forward(x: Any, p: Any, q: Any, r: Any) -> Any:
        heads = jnp.einsum("blw,whd->blhd", x, p), jnp.einsum("blw,whd->blhd", x, q)
        return *heads, jnp.einsum("blw,wk->blk", x, r)

    def backward(x: Any, p: Any, q: Any) -> Any:
        return jnp.einsum("blhd,blx->hdx", p, x), jnp.einsum("blhd,blx->hdx", q, x)

    (product,) = products(changed(merge_products, forward, *arrays((2, 5, 8), (8, 2, 3), (8, 3, 2), (8, 6))))
    assert product.result.shape == (2, 5, 18)
    (product,) = products(changed(merge_products, backward, *arrays((2, 5, 8), (2, 5, 2, 3), (2, 5, 3, 2))))
    assert product.result.shape == (12, 8)


def test_products_whose_own_dimensions_lie_apart_are_not_merged() -> None:
    def f(x: Any, a: Any, b: Any) -> Any:
        return lax.dot_general(x, a, (((1,), (1,)), ((), ()))), lax.dot_general(
            x, b, (((1,), (1,)), ((), ()))
        )

    graph = graph_of(f, arrays((4, 8), (3, 8, 2), (3, 8, 2)))
    assert merge_products(graph, H200) is graph


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
    assert merge_products(graph, H200) is graph
    rows = THRESHOLD // 4 // 64
    shapes = jax.eval_shape(lambda: (jnp.ones((rows, 64)), jnp.ones((64, 64)), jnp.ones((64, 64))))
    graph = import_module(parse_module(jax.jit(lambda x, a, b: (x @ a, x @ b)).lower(*shapes).as_text()))
    assert merge_products(graph, H200) is graph


def test_the_same_weights_in_every_turn_are_joined_before_the_loop() -> None:
    def f(x: Any, a: Any, b: Any) -> Any:
        def body(h: Any, _: None) -> Any:
            return jnp.tanh(h @ a) + h @ b, None

        return lax.scan(body, x, None, length=20)[0]

    graph = changed(merge_products, f, *arrays((3, 4), (4, 4), (4, 4)))
    assert [op.name for op in graph.ops].count("stablehlo.concatenate") == 1
    assert [op.name for op in graph.walk()].count("stablehlo.concatenate") == 1
    assert len(products(graph)) == 1


def cell(x: Any, h: Any, a: Any, b: Any) -> Any:
    return jnp.tanh(h @ a + x @ b)


def scanned(turn: Callable[..., Any]) -> Callable[..., Any]:
    """A recurrence of the turn over rows of xs."""

    def f(xs: Any, h: Any, *weights: Any) -> Any:
        return lax.scan(lambda h, x: (turn(x, h, *weights), None), h, xs)[0]

    return f


RECURRENCES = {
    "rows": (cell, ((5, 3, 4), (3, 4), (4, 4), (4, 4))),
    "other widths": (cell, ((5, 3, 2), (3, 4), (4, 4), (2, 4))),
    "weights first": (lambda x, h, a, b: jnp.tanh(a @ h + b @ x), ((5, 2, 3), (4, 3), (4, 4), (4, 2))),
    "one of several": (
        lambda x, h, a, b: jnp.tanh(h @ a + x @ b) + jnp.sin(h @ b),
        ((5, 3, 4), (3, 4), (4, 4), (4, 4)),
    ),
}


@pytest.mark.parametrize("case", RECURRENCES)
def test_products_of_a_recurrent_cell_are_one_of_weights_joined_before_the_loop(case: str) -> None:
    turn, shapes = RECURRENCES[case]
    before = len(products(graph_of(scanned(turn), arrays(*shapes))))
    graph = changed(join_sums, scanned(turn), *arrays(*shapes))
    assert len(products(graph)) == before - 1
    assert [op.name for op in graph.ops].count("stablehlo.concatenate") == 1
    assert [op.name for op in graph.walk()].count("stablehlo.concatenate") == 2


def test_turns_share_the_joined_weights() -> None:
    def twice(x: Any, h: Any, a: Any, b: Any) -> Any:
        return cell(x, cell(x, h, a, b), a, b)

    graph = changed(join_sums, scanned(twice), *arrays((5, 3, 4), (3, 4), (4, 4), (4, 4)))
    assert len(products(graph)) == 2
    assert [op.name for op in graph.ops].count("stablehlo.concatenate") == 1


def test_loops_in_loops_join_theirs() -> None:
    inner = scanned(cell)

    def f(xs: Any, h: Any, a: Any, b: Any) -> Any:
        return lax.scan(lambda h, _: (inner(xs, h, a, b), None), h, None, length=3)[0]

    graph = changed(join_sums, f, *arrays((5, 3, 4), (3, 4), (4, 4), (4, 4)))
    assert len(products(graph)) == 1


def wanted_elsewhere(x: Any, h: Any, a: Any, b: Any) -> Any:
    given = x @ b
    return jnp.tanh(h @ a + given) * given


def twice(x: Any, h: Any, a: Any, b: Any) -> Any:
    given = x @ b
    return jnp.tanh(given + given) + h @ a


def of_batches(x: Any, h: Any, a: Any, b: Any) -> Any:
    return jnp.tanh(jnp.einsum("bi,bij->bj", h, a) + jnp.einsum("bi,bij->bj", x, b))


def changing(xs: Any, h: Any, a: Any, b: Any) -> Any:
    return lax.scan(lambda s, x: ((cell(x, *s, b), s[1] * 0.9), None), (h, a), xs)[0]


SQUARE = ((5, 3, 4), (3, 4), (4, 4), (4, 4))
APART = {
    "outside a loop": (lambda xs, h, a, b: cell(xs[0], h, a, b), SQUARE),
    "weights that change": (changing, SQUARE),
    "wide activations": (scanned(cell), ((5, 3, 40), (3, 4), (4, 4), (40, 4))),
    "many weights": (scanned(cell), ((3, 2, 2049), (2, 2049), (2049, 2049), (2049, 2049))),
    "a product wanted elsewhere": (scanned(wanted_elsewhere), SQUARE),
    "a product twice": (scanned(twice), SQUARE),
    "batches": (scanned(of_batches), ((5, 3, 4), (3, 4), (3, 4, 4), (3, 4, 4))),
}


@pytest.mark.parametrize("case", APART)
def test_other_sums_of_products_stay_apart(case: str) -> None:
    f, shapes = APART[case]
    before = graph_of(f, arrays(*shapes))
    assert len(products(changed(join_sums, f, *arrays(*shapes)))) == len(products(before))


def test_gradients_of_recurrences_stay_what_they_are() -> None:
    def loss(xs: Any, h: Any, a: Any, b: Any) -> Any:
        return jnp.sum(scanned(cell)(xs, h, a, b) ** 2)

    shapes = ((4, 3, 4), (3, 4), (4, 4), (4, 4))
    changed(join_sums, jax.grad(loss, (0, 1, 2, 3)), *arrays(*shapes))
    changed(join_sums, jax.vmap(loss, (0, None, None, None)), *arrays((2, 4, 3, 4), *shapes[1:]))


def attention(q: Any, k: Any, v: Any) -> Any:
    """All three made by kernels."""
    scores = jnp.einsum("bqhd,bkhd->bhqk", q + 1, k * 2)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v - 1)


def test_the_same_weights_of_several_heads_are_joined_before_the_loop() -> None:
    def f(x: Any, a: Any, b: Any) -> Any:
        def turn(x: Any, _: None) -> tuple[Any, None]:
            heads = jnp.einsum("bw,whd->bhd", x, a), jnp.einsum("bw,whd->bhd", x, b)
            return sum(head.reshape(x.shape) for head in heads), None

        return lax.scan(turn, x, None, length=3)[0]

    graph = changed(merge_products, f, *arrays((5, 8), (8, 2, 4), (8, 2, 4)))
    (product,) = products(graph)
    assert product.result.shape == (5, 16)
    assert "stablehlo.concatenate" in {op.name for op in graph.ops}


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
    assert turn_products(graph, H200) is graph


SCATTERED = {
    # formula, shapes, and the order of the left operand and of the right one
    "contracted between": ("bkd,ko->bdo", (4, 5, 6), (5, 3), ((1, 0, 2), None)),
    "free between": ("bkd,bod->ko", (4, 5, 6), (4, 3, 6), ((1, 0, 2), (1, 0, 2))),
    "rows": ("bkd,do->bko", (4, 5, 6), (6, 3), (None, None)),
    "columns": ("bkd,bo->kdo", (4, 5, 6), (4, 3), (None, None)),
    "one element between": ("bkd,ko->bdo", (4, 5, 1), (5, 3), (None, None)),
    "batched": ("bkd,bko->bdo", (4, 5, 6), (4, 5, 3), (None, None)),
}


@pytest.mark.parametrize("case", SCATTERED)
def test_what_lies_in_several_runs_is_turned_for_a_cpu(case: str) -> None:
    formula, left, right, orders = SCATTERED[case]

    def f(a: Any, b: Any) -> Any:
        return jnp.einsum(formula, jnp.tanh(a), jnp.exp(b))

    args = arrays(left, right)
    before = graph_of(f, args)
    after = check(turn_products(before, CPU), "turn_products")
    turned = [op for op in after.ops if op not in before.ops and op.name == "stablehlo.transpose"]
    assert [op.attrs["permutation"] for op in turned] == [order for order in orders if order is not None]
    for a, b in zip(interpret(before, args), interpret(after, args), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


def test_what_no_kernel_makes_is_not_turned_for_a_cpu() -> None:
    graph = graph_of(lambda a, b: jnp.einsum("bkd,ko->bdo", a, b), arrays((4, 5, 6), (5, 3)))
    assert turn_products(graph, CPU) is graph


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
    assert lead_products(graph, H200) is graph


def transposes(f: Callable[..., Any], *shapes: tuple[int, ...]) -> int:
    """How many are left."""
    graph = dce(swap_products(cse(graph_of(f, arrays(*shapes)))))
    return sum(op.name == "stablehlo.transpose" for op in graph.ops)


def weights_gradient(x: Any, w: Any, g: Any) -> Any:
    return jax.vjp(lambda w: x @ w, w)[1](g)


def lent(a: Any, b: Any) -> Any:
    """More precise of one operand than of the other."""
    precision = jax.lax.Precision.HIGHEST, jax.lax.Precision.DEFAULT
    return jnp.matmul(a, b, precision=precision).T


def test_products_whose_rows_and_columns_are_exchanged_are_swapped() -> None:
    assert transposes(weights_gradient, (6, 5), (5, 3), (6, 3)) == 0
    assert transposes(lambda a, b: (a @ b).transpose(0, 2, 1), (2, 3, 4), (2, 4, 5)) == 0
    assert transposes(lambda a, b: (a @ b).transpose(2, 0, 1), (2, 3, 4), (4, 5)) == 0


def test_products_stay_that_are_turned_otherwise_or_read_as_they_are() -> None:
    assert transposes(lambda a, b: (a @ b).transpose(0, 2, 1), (2, 3, 4), (4, 5)) == 1
    assert transposes(lambda a, b: a @ b + (a @ b).T, (4, 4), (4, 4)) == 1
    assert transposes(lent, (4, 4), (4, 4)) == 1


NARROW = {
    "scores of one query": ("bhd,bkhd->bhk", (2, 3, 4), (2, 5, 3, 4)),
    "with a dimension of one": ("bqhd,bkhd->bhqk", (2, 1, 3, 4), (2, 5, 3, 4)),
    "mixture": ("bhk,bkhd->bhd", (2, 3, 5), (2, 5, 3, 4)),
    "matrix first": ("blw,w->bl", (2, 5, 4), (4,)),
    "vector first": ("k,wk->w", (5,), (4, 5)),
    "column": ("abk,ko->abo", (2, 3, 4), (4, 1)),
    "two vectors": ("k,k->", (5,), (5,)),
    "turned pairs": ("bcd,dbec->be", (2, 3, 4), (4, 2, 6, 3)),
}


@pytest.mark.parametrize("case", NARROW)
def test_products_of_matrix_and_vector_are_sums(case: str) -> None:
    formula, *shapes = NARROW[case]

    def f(a: Any, b: Any) -> Any:
        return jnp.einsum(formula, a, b)

    for args in (arrays(*shapes), arrays(*shapes)[::-1]):
        g = f if args[0].shape == shapes[0] else lambda b, a: f(a, b)
        assert not products(changed(reduce_products, g, *args))


def test_products_of_matrices_and_large_and_narrow_ones_stay() -> None:
    def f(a: Any, b: Any, c: Any, d: Any) -> Any:
        half = jnp.bfloat16
        return a @ b, c @ d, a.astype(half) @ b[:, 0].astype(half)

    shapes = ((4, 8), (8, 2), (SMALL // 8, 8), (8,))
    args = jax.eval_shape(lambda: [jnp.ones(shape) for shape in shapes])
    graph = import_module(parse_module(jax.jit(f).lower(*args).as_text()))
    assert reduce_products(graph, H200) is graph


def test_the_cpu_keeps_products_as_they_are() -> None:
    graph = graph_of(attention, arrays((2, 5, 3, 4), (2, 5, 3, 4), (2, 5, 3, 4)))
    for change in (lead_products, turn_products, join_sums, merge_products, reduce_products, leave_sums):
        assert change(graph, CPU) is graph
