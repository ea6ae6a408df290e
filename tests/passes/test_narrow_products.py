"""Products of widened numbers are products of the narrow ones, and as exact; others stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import jstitch
from jstitch.ir.interpret import interpret
from jstitch.ir.types import DType
from jstitch.ir.verify import check
from jstitch.passes.graph.canonicalize import canonicalize
from jstitch.passes.graph.fold_constants import fold_constants
from jstitch.passes.graph.narrow_products import narrow_products
from tests.contexts import CPU, H200
from tests.passes.product_graphs import graph_of, products

F32 = jnp.float32


def plain(q: Any, k: Any) -> Any:
    return jnp.einsum("bqd,bkd->bqk", q.astype(F32), k.astype(F32))


def scaled(q: Any, k: Any) -> Any:
    """As flax does it: the query is scaled once it is wide."""
    return jnp.einsum("bqd,bkd->bqk", q.astype(F32) / jnp.sqrt(16.0), 0.5 * k.astype(F32))


def turned(q: Any, k: Any) -> Any:
    wide = jnp.moveaxis(q.astype(F32).reshape(2, 5, 4, 4) * 0.3, 1, 2)
    return jnp.einsum("bhqd,bkhd->bhqk", wide, k.astype(F32).reshape(2, 7, 4, 4))


def sums_of_products(q: Any, k: Any) -> Any:
    """The wide values are wanted, too."""
    wide = q.astype(F32)
    return jnp.einsum("bqd,bkd->bqk", wide, k.astype(F32)) + wide.sum(-1, keepdims=True)


NARROWED = (plain, scaled, turned, sums_of_products)


def added(q: Any, k: Any) -> Any:
    return jnp.einsum("bqd,bkd->bqk", q.astype(F32) + 1.0, k.astype(F32))


def scaled_by_rows(q: Any, k: Any) -> Any:
    wide = q.astype(F32)
    return jnp.einsum("bqd,bkd->bqk", wide / jnp.linalg.norm(wide, axis=-1, keepdims=True), k.astype(F32))


def scaled_too_much(q: Any, k: Any) -> Any:
    return jnp.einsum("bqd,bkd->bqk", q.astype(F32) * 1e-30, k.astype(F32))


def of_one_wide_operand(q: Any, k: Any) -> Any:
    return jnp.einsum("bqd,bkd->bqk", jnp.sin(q.astype(F32)), k.astype(F32))


STAY = (added, scaled_by_rows, scaled_too_much, of_one_wide_operand)


def drawn(*kinds: Any) -> list[Any]:
    numbers = np.random.default_rng(0)
    shapes = (2, 5, 16), (2, 7, 16)
    return [numbers.standard_normal(s).astype(kind) for s, kind in zip(shapes, kinds, strict=True)]


def narrowed(f: Callable[..., Any], args: list[Any]) -> tuple[Any, Any]:
    before = fold_constants(canonicalize(graph_of(f, tuple(args))))
    return before, check(narrow_products(before, H200), "narrow_products")


@pytest.mark.parametrize("kind", [jnp.bfloat16, jnp.float16])
@pytest.mark.parametrize("f", NARROWED)
def test_products_of_widened_numbers(f: Callable[..., Any], kind: Any) -> None:
    args = drawn(kind, kind)
    before, after = narrowed(f, args)
    (op,) = products(after)
    assert {v.tensor.dtype.compute for v in op.operands} <= {DType.F32}
    assert all(v.tensor.dtype is not DType.F32 for v in op.operands)
    assert op.result.tensor.dtype is DType.F32
    (want,), (found,) = interpret(before, args), interpret(after, args)
    np.testing.assert_allclose(found, want, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("f", STAY)
def test_other_products_stay(f: Callable[..., Any]) -> None:
    before, after = narrowed(f, drawn(jnp.bfloat16, jnp.bfloat16))
    assert products(before) == products(after)


def test_two_types_of_16_bits_are_not_one() -> None:
    before, after = narrowed(plain, drawn(jnp.bfloat16, jnp.float16))
    assert products(before) == products(after)


def test_a_cpu_multiplies_floats() -> None:
    before = graph_of(plain, tuple(drawn(jnp.bfloat16, jnp.bfloat16)))
    assert narrow_products(before, CPU) is before


def test_attention_with_a_softmax_in_f32_is_a_chain() -> None:
    """Of an H200's kernels, where products of f32 are XLA's, as they are to be f32."""

    def attention(q: Any, k: Any, v: Any) -> Any:
        p = jnp.exp(scaled(q, k) - scaled(q, k).max(-1, keepdims=True))
        return jnp.einsum("bqk,bkd->bqd", (p / p.sum(-1, keepdims=True)).astype(v.dtype), v)

    args = [jnp.zeros((8, 256, 64), jnp.bfloat16)] * 3
    for without, found in ((("tf32",), True), (("tf32", "narrow_products"), False)):
        options = jstitch.CompileOptions(target="h200", without=without)
        assert ("by find_chains" in str(jstitch.explain(attention, options=options)(*args))) == found
