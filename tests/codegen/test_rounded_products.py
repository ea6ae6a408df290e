"""A product is what it was rounded to wherever it is read, even where something is added to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jstitch
from jstitch.frontend.importer import import_module
from jstitch.ir.ops.elementwise import PRODUCTS, ROUNDED
from jstitch.passes.pipeline import run
from tests.codegen.cuda import stitched
from tests.codegen.cuda.stitched import stitch
from tests.contexts import CPU, H200

Array = Any
S = jax.ShapeDtypeStruct((24, 40), np.float32)


def marked(f: Callable[..., Any]) -> list[bool]:
    """Whether each product of what the passes make of it is rounded, in order."""
    graph = run(import_module(jax.jit(f).lower(S, S).compiler_ir("stablehlo")), CPU)
    return [bool(op.attrs.get(ROUNDED)) for op in graph.walk() if op.name in PRODUCTS]


def loop(x: Array, y: Array) -> Array:
    def turn(c: Array, _: None) -> tuple[Array, None]:
        z = c * y
        return z - z.max(0), None

    return lax.scan(turn, x, None, 3)[0]


@pytest.mark.parametrize(
    ("f", "rounded"),
    [
        (lambda x, y: x * y - (x * y).max(0), [True]),
        (lambda x, y: x * x - (x * x).max(0), [True]),
        (lambda x, y: x * y + y, [False]),
        (lambda x, y: (x * y, x * y + y), [True]),  # the caller has it, too
        (lambda x, y: (x * y).T - jnp.abs(x * y).T, [True]),
        (lambda x, y: x * y - (x * y).sum(0), [False]),
        (lambda x, y: jnp.tanh(x * y) * jnp.exp(x * y), [False, False]),  # nothing is added to it
        (lambda x, y: x * y - jnp.floor(x * y), [True]),
        (loop, [True]),
    ],
)
def test_which_are_rounded(f: Callable[..., Any], rounded: list[bool]) -> None:
    assert marked(f) == rounded


def difference(axis: int | None) -> Callable[..., Any]:
    def f(x: Array, y: Array) -> Array:
        z = x * y
        return (z - z.max(axis, keepdims=True)).max(axis)

    return f


ZEROS = {
    "rows": difference(1),
    "columns": difference(0),
    "all": difference(None),
    "square": lambda x, y: (x * x - (x * x).min(1, keepdims=True)).min(1),
    "scaled": lambda x, y: (x * 1.1 - (x * 1.1).max(1, keepdims=True)).max(1),
    "exponential": lambda x, y: (jnp.exp(x) * y - (jnp.exp(x) * y).max(0)).max(0),
    "below one": lambda x, y: jnp.minimum(x * y - jnp.floor(x * y), 0.0),
    "transposed": lambda x, y: ((x * y).T - (x * y).T.max(0)).max(0),
    "gathered": lambda x, y: (x * y)[:, 3] - (x * y).take(jnp.array([3]), 1)[:, 0],
}


def given(dtype: Any = np.float32, shape: tuple[int, ...] = (300, 400)) -> list[Array]:
    return [jnp.asarray(np.random.default_rng(n).normal(size=shape), dtype) for n in (1, 2)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, jnp.bfloat16])
@pytest.mark.parametrize("name", ZEROS)
def test_differences_of_what_is_the_same_are_zero(name: str, dtype: Any) -> None:
    options = jstitch.CompileOptions(tune="off", strict=True)
    with jax.enable_x64(dtype is np.float64):
        found = np.asarray(jstitch.jit(ZEROS[name], options=options)(*given(dtype)), np.float64)
    np.testing.assert_array_equal(found, np.zeros_like(found))


@pytest.mark.parametrize("scale", [1e8, 1.1e10, 1.1e12])
def test_softmax_of_large_numbers(scale: float) -> None:
    """What rounding loses is larger than what an exponential can hold; XLA:CPU itself gives NaN for some."""

    def f(x: Array) -> tuple[Array, Array]:
        return jax.nn.softmax(x * scale, 1), jax.nn.logsumexp(x * scale, 1)

    x = given()[0]
    softmax, sums = jstitch.jit(f, options=jstitch.CompileOptions(tune="off", strict=True))(x)
    z = np.float64(np.asarray(x) * np.float32(scale))
    powers = np.exp(z - z.max(1, keepdims=True))
    np.testing.assert_allclose(softmax, powers / powers.sum(1, keepdims=True), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(sums, np.log(powers.sum(1)) + z.max(1), rtol=1e-6)


@pytest.mark.skipif(stitched.WHY_NO_PTX is not None, reason=str(stitched.WHY_NO_PTX))
@pytest.mark.parametrize("name", ["rows", "columns", "square", "scaled"])
def test_zero_as_ptx(name: str) -> None:
    """ptxas fuses products that do not say how they are rounded; so does the interpreter."""
    args = [np.asarray(a) for a in given(shape=(16, 48))]
    graph = run(
        import_module(jax.jit(ZEROS[name], keep_unused=True).lower(*args).compiler_ir("stablehlo")), H200
    )
    (found,) = stitch(graph, H200.profile).run(args, stitched.interpreted)
    np.testing.assert_array_equal(found, np.zeros_like(found))
