"""What depends on an element's position: loops divide nothing, and XLA works on columns for every row."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

import jstitch
from tests.codegen.test_check_phases import kernels, shape

ROWS, COLUMNS = 1473, 977


def causal(x: Any) -> Any:
    return jnp.where(jnp.arange(ROWS)[:, None] >= jnp.arange(COLUMNS), x, 0.0) * 2.0


def waves(x: Any) -> Any:
    return x * jnp.cos(jnp.arange(COLUMNS))


def test_a_mask_by_position_is_made_row_by_row() -> None:
    (kernel,) = kernels(causal, shape(ROWS, COLUMNS))
    assert [lane.rows for phase in kernel.phases for lane in phase.lanes] == [ROWS]


def test_what_asks_for_no_position_is_made_element_by_element() -> None:
    (kernel,) = kernels(lambda x: x * 2.0 + 1.0, shape(ROWS, COLUMNS))
    assert [lane.rows for phase in kernel.phases for lane in phase.lanes] == [ROWS * COLUMNS]


def test_cosines_of_columns_are_kept_from_xla() -> None:
    """It computes them for every row: by cost, one for all is a kernel's."""
    assert jstitch.jit(waves).plan(shape(ROWS, COLUMNS)).patterns
