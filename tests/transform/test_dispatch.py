"""On which thread XLA runs programs: those of many or large results beside their caller, others not."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from transform_support import assert_same, jit

CHEAP = 1000
"""Floating-point operations below which XLA:CPU runs a program on its caller's thread."""


def decay(tensors: list[Any]) -> list[Any]:
    return [0.9 * x + 0.1 * jnp.tanh(x) for x in tensors]


@pytest.mark.parametrize(
    ("count", "size", "beside"),
    [
        *[(40, 100, True), (31, 100, False), (40, 1 << 18, False), (32, 1, True), (1, 1 << 12, False)],
        *[(32, 1 << 13, True), (33, 1 << 13, False)],
        *[
            (1, 1 << 21, True),
            (1, 1 << 20, False),
            (2, 1 << 20, True),
            (1, 1 << 23, True),
            (1, (1 << 23) + 1, False),
        ],
    ],
)
def test_kernels_of_many_or_large_results_run_beside_their_caller(
    count: int, size: int, beside: bool
) -> None:
    tensors = [np.linspace(-1, 1, size, dtype=np.float32) + n for n in range(count)]
    made = jit(decay)
    assert_same(made(tensors), decay(tensors))
    program = made.lower(tensors).compile()
    assert (program.cost_analysis()["flops"] >= CHEAP) == beside
    assert_same(program(tensors), decay(tensors))


def test_results_that_are_written_in_place_are_right() -> None:
    """The operand for XLA comes after those that results take the memory of."""
    made = jit(decay, donate_argnums=0)
    values = [np.full(64, n, np.float32) for n in range(48)]
    assert_same(made([jnp.array(x) for x in values]), decay(values))


def test_large_results_that_are_written_in_place_need_no_other_thread() -> None:
    made = jit(decay, donate_argnums=0)
    program = made.lower([np.zeros(1 << 21, np.float32)]).compile()
    assert program.cost_analysis()["flops"] < CHEAP
