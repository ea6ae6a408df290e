"""Products of matrices that sum nothing up are multiplications; others stay."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jstitch.ir.interpret import interpret
from jstitch.passes.graph.multiply_products import multiply_products
from jstitch.passes.graph.swap_products import TRANSPOSE, swap_products
from tests.passes.product_graphs import graph_of, products

CASES: dict[str, tuple[str, tuple[int, ...], tuple[int, ...]]] = {
    "a scale of heads": ("bhqk,h->bhqk", (2, 3, 4, 5), (3,)),
    "a mask of rows": ("bqd,bq->bqd", (2, 4, 5), (2, 4)),
    "an outer product": ("i,j->ij", (4,), (5,)),
    "outer products of heads, turned": ("hbi,bhj->jihb", (2, 3, 4), (3, 2, 5)),
    "elementwise": ("ab,ba->ab", (3, 4), (4, 3)),
    "one element each": ("ik,kj->ij", (4, 1), (1, 5)),
}


def rewritten(f: Callable[..., Any], *args: Any) -> tuple[Any, Any]:
    before = graph_of(f, args)
    return before, multiply_products(before)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "complex64"])
@pytest.mark.parametrize("name", CASES)
def test_products_without_sums(name: str, dtype: str) -> None:
    what, *shapes = CASES[name]
    numbers = np.random.default_rng(0)
    args = [(10 * numbers.standard_normal(s)).astype(jnp.dtype(dtype)) for s in shapes]
    before, after = rewritten(lambda x, y: jnp.einsum(what, x, y), *args)
    assert products(before)
    assert not products(after)
    for want, found in zip(interpret(before, args), interpret(after, args), strict=True):
        np.testing.assert_array_equal(np.asarray(found), np.asarray(want))


def test_a_scaled_product_comes_out_as_it_is_wanted() -> None:
    """Nothing is turned after the multiplication: the product's operands are exchanged."""
    args = [np.random.default_rng(0).standard_normal(s, np.float32) for s in ((2, 5, 4), (2, 4, 3), (2, 5))]
    before, after = rewritten(lambda q, m, z: jnp.einsum("bnd,bde,bn->bne", q, m, z), *args)
    swapped = swap_products(after)
    turned = [op.attrs["permutation"] for op in swapped.ops if op.name == TRANSPOSE]
    assert all(list(p) == sorted(p) for p in turned)
    np.testing.assert_allclose(interpret(swapped, args)[0], interpret(before, args)[0], rtol=1e-5, atol=1e-6)


def test_results_that_are_wider_than_operands() -> None:
    args = [np.arange(n, dtype=np.float32).astype(jnp.bfloat16) for n in (5, 7)]
    before, after = rewritten(
        lambda x, y: lax.dot(x[:, None], y[None], preferred_element_type=jnp.float32), *args
    )
    assert not products(after)
    np.testing.assert_array_equal(interpret(after, args)[0], interpret(before, args)[0])


def test_products_that_sum_stay() -> None:
    args = [np.zeros(s, np.float32) for s in ((3, 4), (4, 5))]
    before, after = rewritten(lambda x, y: x @ y, *args)
    assert products(before) == products(after)


def test_nothing_is_made_of_nothing() -> None:
    """Empty results, and sums over nothing, stay as they are."""
    for shapes in (((0,), (5,)), ((3, 0), (0, 5))):
        args = [np.zeros(s, np.float32) for s in shapes]
        what = "i,j->ij" if len(shapes[0]) == 1 else "ik,kj->ij"
        before, after = rewritten(lambda x, y, what=what: jnp.einsum(what, x, y), *args)
        assert products(before) == products(after)


@pytest.mark.parametrize("seed", range(20))
def test_drawn_products(seed: int) -> None:
    random = Random(seed)
    letters = random.sample("abcdef", random.randint(2, 4))
    left = random.sample(letters, random.randint(1, len(letters)))
    right = [*{*letters} - {*left}, *random.sample(left, random.randint(0, len(left)))]
    random.shuffle(right)
    if not right:
        right = left[:1]
    out = [x for x in letters if x in left or x in right]
    random.shuffle(out)
    sizes = {x: random.randint(1, 4) for x in letters}
    numbers = np.random.default_rng(seed)
    args = [numbers.standard_normal([sizes[x] for x in side]).astype(np.float32) for side in (left, right)]
    what = f"{''.join(left)},{''.join(right)}->{''.join(out)}"
    before, after = rewritten(lambda x, y: jnp.einsum(what, x, y), *args)
    assert not products(after)
    np.testing.assert_array_equal(interpret(after, args)[0], interpret(before, args)[0])
