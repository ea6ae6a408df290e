"""Products of a matrix and few vectors are sums that kernels make, and products again where none does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
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
from jstitch.ir.verify import check
from jstitch.passes.base.thin_products import THIN, products_back
from jstitch.passes.graph.dce import dce
from jstitch.passes.graph.reduce_products import FEW, reduce_products
from tests.contexts import CPU
from tests.passes.product_graphs import graph_of, products

OPTIONS = jstitch.CompileOptions(tune="off", strict=True, verify=True)


def as_sums(f: Callable[..., Any], *args: Any) -> tuple[Graph, Graph, Graph]:
    """Before, as sums, and back: all mean the same."""
    before = graph_of(f, args)
    after = check(reduce_products(before, CPU), "reduce_products")
    back = check(dce(replace(after, ops=tuple(products_back(after.ops)))), "products_back")
    for graph in (after, back):
        for want, found in zip(interpret(before, args), interpret(graph, args), strict=True):
            assert want.dtype == found.dtype
            rounding = 1e-2 if want.dtype == jnp.bfloat16 else 1e-4
            np.testing.assert_allclose(*map(np.float32, (found, want)), rtol=rounding, atol=rounding)
    return before, after, back


def drawn(random: Random) -> tuple[str, list[tuple[int, ...]]]:
    """A specification for einsum, with a matrix, and one or a few vectors; and shapes."""
    sizes = {"b": 2, "h": 3, "n": 9, "k": 5, "j": 2, "m": random.choice((1, 1, 2, 4))}
    letters = [*random.sample("bhkj", random.randint(1, 3)), "n"]
    random.shuffle(letters)
    summed = [x for x in letters if x in "kj"] or ["k"]
    matrix = [*letters, *(x for x in summed if x not in letters)]
    vector = [x for x in matrix if x != "n"] + (["m"] if sizes["m"] > 1 else [])
    random.shuffle(vector)
    out = [x for x in (*matrix, "m") if x not in summed and (x in matrix or x in vector)]
    random.shuffle(out)
    sides = [matrix, vector] if random.random() < 0.5 else [vector, matrix]
    spec = ",".join("".join(side) for side in sides) + "->" + "".join(out)
    return spec, [tuple(sizes[x] for x in side) for side in sides]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("seed", range(40))
def test_drawn_products(seed: int, dtype: str) -> None:
    spec, shapes = drawn(Random(seed))
    numbers = np.random.default_rng(seed)
    args = [numbers.standard_normal(shape).astype(jnp.dtype(dtype)) for shape in shapes]

    def f(x: Any, y: Any) -> Any:
        return jnp.einsum(spec, x, y)

    before, after, back = as_sums(f, *args)
    (op,) = products(before)
    if not products(after):
        (again,) = products(back)
        (matrix,) = (v.shape for v in op.operands if 9 in v.shape)
        assert matrix in [v.shape for v in again.operands]  # vectors may be turned
        assert [v.tensor.dtype for v in again.results] == [v.tensor.dtype for v in op.results]
        assert not any(THIN in o.attrs for o in back.walk())
    found = jstitch.jit(f, options=OPTIONS)(*args)
    want = np.einsum(spec, *map(np.float64, args))
    np.testing.assert_allclose(np.float64(found), want, rtol=2e-2, atol=5e-2 if dtype == "bfloat16" else 1e-4)


def test_which_are_sums() -> None:
    """One vector anywhere, a few where a library would have to turn the matrix first; no square products."""
    kinds = {
        "nk,k->n": True,
        "kn,k->n": True,
        "bnk,bk->bn": True,
        "nk,mk->nm": False,
        "bnk,bmk->bnm": False,
        "nbk,bmk->nbm": True,
        "nk,lk->nl": False,
        "nk,k->": False,
        "bn,b->bn": False,
    }
    sizes = {"b": 2, "n": 9, "k": 5, "m": FEW, "l": 8}
    for spec, expected in kinds.items():
        args = [np.ones([sizes[x] for x in side], np.float32) for side in spec.split("->")[0].split(",")]
        _, after, _ = as_sums(lambda x, y, spec=spec: jnp.einsum(spec, x, y), *args)
        assert any(THIN in op.attrs for op in after.walk()) == expected, spec


def test_nothing_is_made_of_nothing() -> None:
    for shapes in (((0, 5), (5,)), ((5, 0), (0,))):
        args = [np.ones(shape, np.float32) for shape in shapes]
        _, after, _ = as_sums(lambda x, y: x @ y, *args)
        assert products(after)


ROUNDED = """
func.func @main(%x: tensor<9x5xf32>, %y: tensor<5xf32>) -> tensor<9xf32> {
  %r = stablehlo.convert %x : (tensor<9x5xf32>) -> tensor<9x5xbf16>
  %s = stablehlo.dot_general %r, %y, contracting_dims = [1] x [0]
    : (tensor<9x5xbf16>, tensor<5xf32>) -> tensor<9xf32>
  return %s : tensor<9xf32>
}
"""


def test_what_is_rounded_stays_rounded() -> None:
    """A matrix that the program rounds to bf16, and a vector of f32."""
    before = import_module(parse_module(ROUNDED))
    after = reduce_products(before, CPU)
    assert any(THIN in op.attrs for op in after.walk())
    args = np.full((9, 5), 1 + 2**-12, np.float32), np.ones(5, np.float32)
    for ops in (after.ops, products_back(after.ops)):
        np.testing.assert_array_equal(interpret(replace(after, ops=tuple(ops)), args)[0], np.float32(5.0))


def test_weights_of_loops_stay_products() -> None:
    """They are turned and widened once; what changes from turn to turn is a sum."""

    def weights(w: Any, h: Any) -> Any:
        return lax.fori_loop(0, 50, lambda i, h: jnp.tanh(w @ h), h)

    def changing(w: Any, h: Any) -> Any:
        return lax.fori_loop(0, 50, lambda i, s: (s[0] * 0.5, jnp.tanh(s[0] @ s[1])), (w, h))[1]

    args = np.ones((8, 8), np.float32) / 9, np.ones(8, np.float32)
    for f, expected in ((weights, False), (changing, True)):
        _, after, _ = as_sums(f, *args)
        assert any(THIN in op.attrs for op in after.walk()) == expected


def decode(q: Any, keys: Any, values: Any, length: Any) -> Any:
    """Attention of one query, heads [b, h, d] and caches [b, l, h, d]."""
    s = jnp.einsum("bhd,blhd->bhl", q, keys) * q.shape[-1] ** -0.5
    s = jnp.where(jnp.arange(keys.shape[1]) < length, s, -1e30)
    return jnp.einsum("bhl,blhd->bhd", jax.nn.softmax(s, -1), values)


def grouped(q: Any, keys: Any, values: Any, length: Any) -> Any:
    """The same with two queries for each head of keys."""
    b, h, d = q.shape
    s = jnp.einsum("bgqd,blgd->bgql", q.reshape(b, h // 2, 2, d), keys[:, :, : h // 2])
    p = jax.nn.softmax(jnp.where(jnp.arange(keys.shape[1]) < length, s, -jnp.inf), -1)
    return jnp.einsum("bgql,blgd->bgqd", p, values[:, :, : h // 2]).reshape(b, h, d)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("f", [decode, grouped])
def test_one_query_is_one_kernel(f: Callable[..., Any], dtype: str) -> None:
    numbers = np.random.default_rng(0)
    shapes = [(2, 4, 16), (2, 33, 4, 16), (2, 33, 4, 16)]
    args = [numbers.standard_normal(s).astype(jnp.dtype(dtype)) for s in shapes]
    jitted = jstitch.jit(f, options=OPTIONS)
    rounding = 2e-2 if dtype == "bfloat16" else 1e-5
    want = np.float64(f(*map(np.float32, args), 20))
    np.testing.assert_allclose(np.float64(jitted(*args, 20)), want, rtol=rounding, atol=rounding)
    assert len(jitted.plan(*args, 20).patterns) == 1
    assert "dot_general" not in jitted.lower(*args, 20).as_text()
    plain = jstitch.jit(f, options=jstitch.CompileOptions(tune="off", without=("reduce_products",)))
    assert "dot_general" in plain.lower(*args, 20).as_text()


def test_what_no_kernel_takes_is_a_product_again() -> None:
    """Beside a kernel that pays, a product too small for one, at the precision that was asked for."""

    def f(x: Any, a: Any, b: Any) -> tuple[Any, Any]:
        return jnp.exp(jax.nn.softmax(x, -1)) * x, jnp.dot(a, b, precision="highest")

    args = np.ones((4096, 1024), np.float32), np.ones((1, 3), np.float32), np.ones(3, np.float32)
    jitted = jstitch.jit(f)
    assert jitted.plan(*args).patterns
    text = jitted.lower(*args).as_text()
    assert "stablehlo.dot_general" in text
    assert "HIGHEST" in text
    np.testing.assert_allclose(jitted(*args)[1], 3.0)


def test_gradients_of_a_head_of_one_output() -> None:
    numbers = np.random.default_rng(0)
    args = [numbers.standard_normal(s).astype(np.float32) for s in ((64, 32), (32, 1), (64,))]

    def loss(x: Any, w: Any, y: Any) -> Any:
        return jnp.mean((jnp.tanh(x @ w)[:, 0] - y) ** 2)

    step = jax.value_and_grad(loss, (0, 1))
    for found, want in zip(
        jax.tree.leaves(jstitch.jit(step, options=OPTIONS)(*args)), jax.tree.leaves(step(*args)), strict=True
    ):
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)
