"""Chains that are counted for a GPU."""

from __future__ import annotations

from importlib import util

import pytest

from benchmarks.chains import attention, chain
from benchmarks.counted_chains import count_table, counted

pytestmark = pytest.mark.skipif(
    util.find_spec("jax_cuda13_plugin") is None, reason="JAX's CUDA plugin is not installed: jstitch[analyze]"
)


def test_launches_and_bytes_are_counted() -> None:
    heads, width = (2, 128, 64), 2 * 128 * 64 * 2
    row = counted("attention", attention, [heads] * 3, "bfloat16", "h200")
    assert row["least"] == 4 * width
    assert (row["xla"]["launches"], row["jstitch"]["launches"]) == (3, 1)
    assert row["jstitch"]["bytes"] == row["least"] < row["xla"]["bytes"]
    left = counted("f32", chain, [(1, 64, 32), (1, 32, 64), (1, 64, 32)], "float32", "h200")
    assert left["xla"] == left["jstitch"]  # f32 is the library's
    assert count_table([row, left], "h200").row_count == 4
