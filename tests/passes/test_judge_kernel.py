"""A kernel that would be slower than XLA's is left, by the latency-evaluator's word, and explain says so."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import jstitch

OPTIONS = jstitch.CompileOptions(target="h200", strict=True, calibrated=False, ask_seconds=0)
ROWS = jax.ShapeDtypeStruct((32, 3136, 256), jnp.float32)


def group_norm(x: Any, groups: int = 32) -> Any:
    """Few rows, so long that none fits on chip: as many CTAs as groups of one sentence."""
    y = x.reshape(*x.shape[:2], groups, -1)
    y = y - y.mean((1, 3), keepdims=True)
    return (y * jax.lax.rsqrt((y * y).mean((1, 3), keepdims=True) + 1e-5)).reshape(x.shape)


def layer_norm(x: Any) -> Any:
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def record(f: Any, **options: Any) -> jstitch.Record:
    stitched = jax.jit(jstitch.stitch(f, options=OPTIONS.replace(**options)))
    since = jstitch.record_count()
    stitched.trace(ROWS).lower(lowering_platforms=("cuda",))
    return jstitch.last_report(since)[-1]


@pytest.mark.parametrize("f", [group_norm, jax.grad(lambda x: (group_norm(x) ** 3).sum())])
def test_what_would_fill_no_gpu_is_xlas(f: Any) -> None:
    found = record(f)
    assert found.kernels == 0
    assert "1.25 of XLA's" in found.details["details_refused"]


def test_what_fills_it_is_ours() -> None:
    assert record(layer_norm).kernels == 1
    assert record(jax.grad(lambda x: (layer_norm(x) ** 3).sum())).kernels == 1


def test_without_a_gate_it_is_built() -> None:
    assert record(group_norm, tune="off").kernels == 1


def test_what_a_user_asks_for_is_built() -> None:
    assert record(jstitch.fuse_together(group_norm)).kernels == 1
