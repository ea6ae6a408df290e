"""Temporary memory on a GPU that is not here, by XLA's own count: large intermediates never are whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import jstitch
from benchmarks.losses import LOSSES, step
from tests.analysis.test_analyze import needs_plugin

Array = Any
GIB = 1 << 30


@needs_plugin
@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_over_many_classes(name: str) -> None:
    """XLA's own takes 7.8 to 39 GiB."""
    shapes = ((32768, 2560), "bfloat16"), ((2560, 128256), "bfloat16"), ((32768,), "int32")
    found = jstitch.analyze(step(LOSSES[name]), *(jax.ShapeDtypeStruct(*s) for s in shapes))
    assert found.stitched.temporaries <= 2 * GIB < found.plain.temporaries
    assert found.stitched.bytes_moved < found.plain.bytes_moved


@needs_plugin
def test_attention_that_computes_its_scores_again() -> None:
    """As `jax.checkpoint` says: a few heads at a time."""

    def attend(q: Array, k: Array, v: Array) -> Array:
        s = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32) / 8
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s).astype(v.dtype), v)

    again: Callable[..., Any] = jax.checkpoint(attend)  # type: ignore[no-untyped-call]

    def loss(*args: Array) -> Array:
        return jnp.sum(again(*args).astype(jnp.float32) ** 2)

    args = [jax.ShapeDtypeStruct((2, 4096, 12, 64), jnp.bfloat16)] * 3
    found = jstitch.analyze(jax.value_and_grad(loss, (0, 1, 2)), *args)
    assert found.stitched.temporaries < found.plain.temporaries / 2
