"""Products of what their operands are transpositions of: the same numbers, and nothing is transposed."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jstitch
from jstitch.frontend.importer import import_module
from jstitch.ir.interpret import interpret
from jstitch.ir.verify import check
from jstitch.passes.graph.dce import dce
from jstitch.passes.graph.fold_transposes import fold_transposes

OPTIONS = jstitch.CompileOptions(tune="off", strict=True, verify=True)
Dims = tuple[int, ...]
NONE: tuple[Dims, Dims] = ((), ())


@pytest.mark.parametrize(
    ("shapes", "permutations", "contracted", "batch", "left"),
    [
        (((5, 3), (7, 3)), (None, (1, 0)), ((1,), (0,)), NONE, 0),
        (((3, 5), (7, 3)), ((1, 0), (1, 0)), ((1,), (0,)), NONE, 0),
        (((2, 5, 3), (2, 7, 3)), (None, (0, 2, 1)), ((2,), (1,)), ((0,), (0,)), 0),
        # a batch that is not first: the library would have to be given a copy
        (((2, 5, 3), (7, 2, 3)), (None, (1, 2, 0)), ((2,), (1,)), ((0,), (0,)), 1),
        # what is contracted lies side by side only in the first of these
        (((5, 2, 3), (2, 3, 7)), ((1, 2, 0), None), ((0, 1), (0, 1)), NONE, 0),
        (((2, 5, 3), (2, 3, 7)), ((0, 2, 1), None), ((0, 1), (0, 1)), NONE, 1),
        # two dimensions that are not contracted, and none
        (((5, 3), (7, 2, 3)), (None, (2, 0, 1)), ((1,), (0,)), NONE, 1),
        (((2, 3), (3, 2)), ((1, 0), None), ((0, 1), (0, 1)), NONE, 1),
    ],
)
def test_which_transposes_are_folded(
    shapes: Any, permutations: Any, contracted: Any, batch: Any, left: int
) -> None:
    numbers = np.random.default_rng(0)
    args = [numbers.standard_normal(shape).astype(np.float32) for shape in shapes]

    def f(*operands: Any) -> Any:
        turned = (
            x if p is None else jnp.transpose(x, p) for x, p in zip(operands, permutations, strict=True)
        )
        return lax.dot_general(*turned, (contracted, batch))

    graph = import_module(jax.jit(f).lower(*args).compiler_ir("stablehlo"))
    found = dce(check(fold_transposes(graph), "fold_transposes"))
    assert sum(op.name == "stablehlo.transpose" for op in found.ops) == left
    np.testing.assert_allclose(interpret(found, args)[0], f(*args), 1e-5, 1e-6)


def similarities(x: Any, y: Any) -> Any:
    x, y = (v / jnp.linalg.norm(v, axis=-1, keepdims=True) for v in (x, y))
    return x @ y.mT


@pytest.mark.parametrize("shape", [(300, 64), (3, 100, 48)])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_similarities_of_rows(shape: Dims, dtype: Any) -> None:
    """The kernel writes rows as they lie; so do its gradients."""
    x, y = (jax.random.normal(key, shape, dtype) for key in jax.random.split(jax.random.key(0)))
    text = jstitch.jit(similarities, options=OPTIONS).lower(x, y).as_text()
    assert "stablehlo.transpose" not in text

    def loss(x: Any, y: Any) -> Any:
        return jnp.square(similarities(x, y).astype(jnp.float32)).sum()

    for f in (similarities, jax.grad(loss, (0, 1))):
        found, theirs = (jax.tree.leaves(g(x, y)) for g in (jstitch.jit(f, options=OPTIONS), jax.jit(f)))
        for a, b in zip(found, theirs, strict=True):
            a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
            scale = np.abs(b).max() * (1e-5 if dtype == jnp.float32 else 1e-1)
            np.testing.assert_allclose(a, b, rtol=0, atol=scale)


def test_without_it_columns_are_written() -> None:
    """By the kernel, whose result the product reads."""
    x = jnp.ones((64, 32))
    columns = "tensor<32x64xf32>"
    without = jstitch.CompileOptions(tune="off", without=("fold_transposes",))
    assert columns in jstitch.jit(similarities, options=without).lower(x, x).as_text()
    assert columns not in jstitch.jit(similarities, options=OPTIONS).lower(x, x).as_text()
