"""Rows counted by two loops, where their number is divided: which lanes, and what they compute.

Of 9 elements or more: shorter ones are components.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jstitch
from jstitch.codegen.cpu.emit import emit
from jstitch.codegen.cpu.row_periods import period_of
from jstitch.codegen.kernel_ir import ROW, Instr, Lane, Load
from jstitch.codegen.map_kernel import map_nests
from jstitch.ir.index import Var, add, const, floordiv, var
from jstitch.passes.schedule.nest_rows import LEAST, LONGEST
from tests.codegen.test_check_phases import kernels, shape

Array = jax.Array
OPTIONS = jstitch.CompileOptions(tune="off", strict=True, verify=True)


def by_place(x: Array, w: Array) -> Array:
    return jnp.exp(x + w).sum(-1)


def by_both(x: Array, y: Array, w: Array) -> Array:
    """Rows of three dimensions; the middle one's size divides both divisors."""
    return jnp.exp(x * w + y[:, None]).sum(-1)


def lanes(f: Callable[..., Any], *args: Any) -> list[Lane]:
    return [lane for kernel in kernels(f, *args) for phase in kernel.phases for lane in phase.lanes]


def periods(f: Callable[..., Any], *args: Any) -> list[int]:
    return [lane.period for lane in lanes(f, *args)]


def test_rows_that_divide_are_nested() -> None:
    assert periods(by_place, shape(9, 88, 12), shape(88, 12)) == [88]
    assert periods(by_place, shape(9, 88, LONGEST), shape(88, LONGEST)) == [88]


def test_but_for_long_rows_and_short_periods() -> None:
    assert periods(by_place, shape(9, 88, LONGEST + 1), shape(88, LONGEST + 1)) == [1]
    assert periods(by_place, shape(99, LEAST - 1, 12), shape(LEAST - 1, 12)) == [1]
    assert periods(by_place, shape(1, 88, 12), shape(88, 12)) == [1]  # nothing is divided


def test_no_division_is_left() -> None:
    (kernel,) = kernels(by_both, shape(5, 7, 20, 12), shape(5, 20, 12), shape(20, 12))
    (lane,) = kernel.phases[0].lanes
    assert lane.period == period_of(lane) == 20
    inner = emit(kernel).source.text.partition("for place in")[2]
    assert inner
    assert "quotient(place" not in inner
    assert "remainder_pos(place" not in inner


def test_a_division_that_stays_leaves_one_loop() -> None:
    """(r + 1) // 5 does not start again with the period of r % 88."""
    (lane,) = lanes(by_place, shape(9, 88, 12), shape(88, 12))
    other = floordiv(add(var(Var(ROW, lane.rows)), const(1)), 5)

    def further(i: Instr) -> Instr:
        return replace(i, offset=add(i.offset, other)) if isinstance(i, Load) else i

    changed = map_nests(lane, lambda nest: replace(nest, body=tuple(map(further, nest.body))))
    assert period_of(lane) == 88
    assert period_of(changed) == 1


@settings(max_examples=6, deadline=None)
@given(st.integers(1, 700), st.integers(LEAST, 90), st.integers(2, LONGEST), st.booleans())
def test_the_same_numbers(times: int, period: int, elements: int, wide: bool) -> None:
    """Programs begin and end anywhere in a period."""
    rng = np.random.default_rng(times * period)
    dtype = jnp.float32 if wide else jnp.bfloat16
    x, w = (jnp.asarray(rng.normal(size=s), dtype) for s in ((times, period, elements), (period, elements)))
    for f in (by_place, lambda x, w: jax.nn.softmax(x * w), jax.grad(lambda x, w: by_place(x, w).sum())):
        found, expected = jstitch.jit(f, options=OPTIONS)(x, w), jax.jit(f)(x, w)
        tolerance = 1e-5 if wide else 5e-2  # XLA does not round between ops
        np.testing.assert_allclose(
            *(np.asarray(v, np.float32) for v in (found, expected)), tolerance, tolerance
        )


@pytest.mark.parametrize("without", [(), ("nest_rows",)])
def test_it_decides(without: tuple[str, ...], tmp_path: Path) -> None:
    options = jstitch.CompileOptions(tune="off", strict=True, without=without, dump_dir=str(tmp_path))
    x, w = jnp.ones((9, 88, 12)), jnp.ones((88, 12))
    np.testing.assert_allclose(jstitch.jit(by_place, options=options)(x, w), jax.jit(by_place)(x, w), 1e-5)
    (text,) = tmp_path.rglob("*_0.py")
    assert ("remainder_pos" in text.read_text()) is bool(without)
