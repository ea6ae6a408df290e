"""Gathers of one element of each row, as batched ones: where the row's number is what an iota counts."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jstitch
from tests.contexts import CPU
from tests.passes.test_own_columns import graph_of

PICK = lax.GatherDimensionNumbers((), (0, 1), (0, 1))


def _picked(rows: int, dtype: Any) -> tuple[Any, list[np.ndarray]]:
    numbers = np.random.default_rng(0)

    def f(x: Any, y: Any) -> Any:
        places = jnp.stack([lax.iota(dtype, rows), y], 1)
        return lax.gather(jnp.exp(x), places, PICK, (1, 1), mode=lax.GatherScatterMode.CLIP)

    return f, [numbers.standard_normal((rows, 96), np.float32), numbers.integers(0, 96, rows).astype(dtype)]


def _batched(f: Any, args: list[np.ndarray]) -> bool:
    gathers = [op for op in graph_of(f, args, CPU).walk() if op.name == "stablehlo.gather"]
    return all(op.attrs["operand_batching_dims"] for op in gathers)


@pytest.mark.parametrize("rows", [100, 128, 129, 256, 257, 300])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int32])
def test_rows_are_those_that_the_numbers_say(rows: int, dtype: Any) -> None:
    """An iota of more than its integers can count begins again, below 0 where it is signed."""
    f, args = _picked(rows, dtype)
    assert _batched(f, args) == (rows - 1 <= np.iinfo(dtype).max)
    options = jstitch.CompileOptions(strict=True, verify=True, tune="off")
    found, wanted = jstitch.jit(f, options=options)(*args), jax.jit(f)(*args)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
