"""Many products of small matrices are multiplications and sums, with the same results, on CPUs."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jstitch
from jstitch.ir.graph import Graph
from jstitch.ir.interpret import interpret
from jstitch.ir.verify import check
from jstitch.passes.base.product_side import PRODUCT
from jstitch.passes.graph.reduce_products import reduce_products
from tests.contexts import CPU, H200
from tests.passes.product_graphs import graph_of

OPTIONS = jstitch.CompileOptions(tune="off", strict=True, verify=True)
SPECS = ("bmk,bkn->bmn", "bmk,bnk->bmn", "bkm,bkn->bmn", "mbk,nkb->nmb", "bcmk,bckn->bcmn", "bmkj,bjkn->bmn")


def products(graph: Graph) -> int:
    return sum(op.name == PRODUCT for op in graph.walk())


def drawn(seed: int) -> tuple[Callable[..., Any], list[np.ndarray]]:
    random = Random(seed)
    spec = random.choice(SPECS)
    sizes = {"b": random.choice((16, 33)), "c": 3, "j": 2 if "j" in spec else 1}
    sizes |= {d: random.randint(4, 7) for d in "mkn"} | {random.choice("mn"): random.randint(2, 7)}
    sizes["k"] = random.randint(2, 3) if "j" in spec else sizes["k"]
    if max(sizes["m"], sizes["n"]) < 4:
        sizes["m"] = 5
    dtype = random.choice((np.float32, np.float32, jnp.bfloat16))
    numbers = np.random.default_rng(seed)
    sides = spec.partition("->")[0].split(",")
    args = [numbers.standard_normal([sizes[d] for d in side], np.float32).astype(dtype) for side in sides]
    return lambda a, b: jnp.einsum(spec, a, b), args


@pytest.mark.parametrize("seed", range(30))
def test_drawn_products(seed: int) -> None:
    f, args = drawn(seed)
    after = check(reduce_products(graph_of(f, args), CPU))
    assert products(after) == 0
    exact = f(*(np.float64(x) for x in args))
    close = {"rtol": 2e-2, "atol": 5e-2} if args[0].dtype == jnp.bfloat16 else {"rtol": 1e-5, "atol": 1e-5}
    for found in (*interpret(after, args), jstitch.jit(f, options=OPTIONS)(*args)):
        np.testing.assert_allclose(np.float64(found), np.float64(exact), **close)


@pytest.mark.parametrize(
    ("batch", "m", "k", "n", "left"),
    [
        (20, 4, 4, 4, 0),
        (20, 2, 7, 5, 0),
        (20, 4, 3, 4, 1),  # XLA writes it out
        (20, 3, 7, 3, 1),
        (20, 4, 4, 8, 1),  # vectors
        (20, 4, 8, 4, 1),
        (8, 4, 4, 4, 1),  # few
    ],
)
def test_which_are_written(batch: int, m: int, k: int, n: int, left: int) -> None:
    args = [np.zeros(shape, np.float32) for shape in ((batch, m, k), (batch, k, n))]
    graph = graph_of(lambda a, b: a @ b, args)
    assert products(reduce_products(graph, CPU)) == left
    assert products(reduce_products(graph, H200)) == 1  # a library has batches


def poses(a: Any, b: Any, x: Any) -> Any:
    """Transformations one after another, of points."""
    both = a @ jnp.tanh(b)
    return jnp.einsum("nij,npj->npi", both, x), both.sum(0)


def test_they_share_a_kernel_with_what_is_beside_them() -> None:
    numbers = np.random.default_rng(0)
    args = [numbers.standard_normal(n, np.float32) for n in ((200, 4, 4), (200, 4, 4), (200, 9, 4))]
    since = jstitch.record_count()
    found, theirs = jstitch.jit(poses, options=OPTIONS)(*args), jax.jit(poses)(*args)
    assert jstitch.last_report(since)[-1].kernels >= 1
    for a, b in zip(found, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_gradients_in_a_loop() -> None:
    def f(a: Any, x: Any) -> Any:
        return jax.lax.scan(lambda c, _: (jnp.tanh(a @ c), c.sum()), x, None, length=5)[0].sum()

    numbers = np.random.default_rng(1)
    args = [0.3 * numbers.standard_normal((32, 5, 5), np.float32) for _ in range(2)]
    g = jax.grad(f, (0, 1))
    for a, b in zip(jstitch.jit(g, options=OPTIONS)(*args), jax.jit(g)(*args), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
