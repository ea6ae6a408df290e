"""`reduce_precision` to a narrow float's own format rounds what kernels hold in f32."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jstitch
from jstitch.frontend.importer import import_module
from jstitch.passes.pipeline import run
from tests.codegen.cuda import stitched
from tests.codegen.cuda.stitched import stitch
from tests.contexts import H200

OPTIONS = jstitch.CompileOptions(tune="off", strict=True)
FORMATS = {jnp.bfloat16: (8, 7), jnp.float16: (5, 10)}


def program(x: Any, y: Any) -> Any:
    """A product that is rounded before anybody else reads it in f32."""
    exact = lax.reduce_precision(x * y, *FORMATS[x.dtype.type])
    return exact.astype(jnp.float32) * 3, jnp.abs(exact)


@pytest.mark.parametrize("dtype", FORMATS)
def test_what_is_asked_for_is_rounded(dtype: Any) -> None:
    numbers = np.random.default_rng(0)
    x, y = (numbers.uniform(0.5, 2, (64, 128)).astype(dtype) for _ in range(2))
    found = jstitch.jit(program, options=OPTIONS)(x, y)
    rounded = (np.float32(x) * np.float32(y)).astype(dtype)
    np.testing.assert_array_equal(found[0], rounded.astype(np.float32) * 3)
    np.testing.assert_array_equal(np.float32(found[1]), np.float32(rounded))
    for a, b in zip(found, jax.jit(program)(x, y), strict=True):
        np.testing.assert_array_equal(np.float32(a), np.float32(b))


def test_a_product_of_matrices_is_rounded() -> None:
    """As `jax.checkpoint` rounds what it saves, so that it is what is computed again."""

    def f(x: Any) -> Any:
        return jnp.float32(1) * lax.reduce_precision(jnp.dot(x, x), 8, 7).astype(jnp.float32)

    x = jnp.asarray((1 + jnp.finfo(jnp.bfloat16).eps) * np.eye(2), jnp.bfloat16)
    found = jstitch.jit(f, options=OPTIONS)(x)
    np.testing.assert_array_equal(found, np.float32(1.015625) * np.eye(2))


@pytest.mark.skipif(stitched.WHY_NO_PTX is not None, reason=str(stitched.WHY_NO_PTX))
@pytest.mark.parametrize("dtype", FORMATS)
def test_it_is_rounded_as_ptx(dtype: Any) -> None:
    numbers = np.random.default_rng(1)
    args = [numbers.uniform(0.5, 2, (16, 48)).astype(dtype) for _ in range(2)]
    graph = run(import_module(jax.jit(program).lower(*args).compiler_ir("stablehlo")), H200)
    found, _ = stitch(graph, H200.profile).run(args, stitched.interpreted)
    rounded = (np.float32(args[0]) * np.float32(args[1])).astype(dtype)
    np.testing.assert_array_equal(found, rounded.astype(np.float32) * 3)
