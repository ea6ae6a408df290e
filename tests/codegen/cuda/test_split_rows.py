"""Rows that no tile divides go in two parts, which are what the whole is, on the simulator and as PTX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jstitch.codegen.kernel_ir import Kernel
from jstitch.passes.lower.check_kernel import check_kernel
from jstitch.passes.lower.split_rows import where_to_split
from jstitch.passes.lower.tile_rows import FEW_ROWS, MOST_ROWS, TENSOR_ROWS
from tests.codegen.cuda.stitched import (
    OPTIONS,
    PROFILES,
    WHY_NO_PTX,
    Stitched,
    interpreted,
    simulated,
    stitch,
)
from tests.contexts import H200
from tests.passes.chain_programs import HALVES, close, program
from tests.passes.test_own_columns import graph_of

LENGTHS = (67, 77, 83, 131, 197)
QUICK, MORE = range(10), range(10, 150)


def made_of(f: Callable[..., Any], args: Sequence[Any], **options: Any) -> Stitched:
    return stitch(graph_of(f, args, H200), PROFILES["h200"], options=replace(OPTIONS, **options))


def steps_of(kernels: Sequence[Kernel]) -> list[tuple[int, int]]:
    """Rows and rows of a step, of each lane."""
    return [(x.rows, x.step) for kernel in kernels for phase in kernel.phases for x in phase.lanes]


@given(st.integers(1, 100_000))
def test_where_rows_are_split(rows: int) -> None:
    cut = where_to_split(rows)
    if cut is not None:
        assert cut % TENSOR_ROWS == 0
        assert FEW_ROWS <= rows - cut <= MOST_ROWS
    elif rows > MOST_ROWS:
        good = [n for n in range(FEW_ROWS, MOST_ROWS + 1) if rows % n == 0]
        assert good or rows < TENSOR_ROWS + FEW_ROWS


@pytest.mark.parametrize(
    ("rows", "cut"), [(197, 160), (257, 224), (577, 544), (77, 64), (196, None), (33, None)]
)
def test_lengths_that_people_have(rows: int, cut: int | None) -> None:
    assert where_to_split(rows) == cut


@pytest.mark.parametrize("seed", [*QUICK, *(pytest.param(n, marks=pytest.mark.slow) for n in MORE)])
def test_drawn_chains(seed: int) -> None:
    f, args = program(seed, HALVES, (32, 70, 96), LENGTHS)
    made = made_of(f, args)
    assert made.recorder.refused == []
    (kernel,) = made.kernels
    check_kernel(kernel)
    assert len({rows for rows, _ in steps_of([kernel])}) == 2
    close(made.run(args, simulated), f, args)
    if WHY_NO_PTX is None and seed % 5 == 0:
        close(made.run(args, interpreted), f, args)


def drawn(*shapes: tuple[int, ...]) -> list[Any]:
    numbers = np.random.default_rng(0)
    return [numbers.standard_normal(shape).astype(jnp.bfloat16) for shape in shapes]


def attention(q: Any, k: Any, v: Any) -> Any:
    """As models have it: lengths before heads."""
    s = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32) * 0.25
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(s).astype(v.dtype), v)


def with_scores(q: Any, k: Any, v: Any) -> Any:
    s = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32) * 0.25
    p = jax.nn.softmax(s).astype(v.dtype)
    return jnp.einsum("bhqk,bkhd->bqhd", p, v), p


@pytest.mark.parametrize("f", [attention, with_scores])
def test_results_go_where_the_whole_has_them(f: Callable[..., Any]) -> None:
    args = drawn((2, 67, 2, 16), (2, 67, 2, 16), (2, 67, 2, 16))
    made = made_of(f, args)
    (kernel,) = made.kernels
    assert {rows for rows, _ in steps_of([kernel])} == {2 * 2 * 32, 2 * 2 * 35}
    close(made.run(args, simulated), f, args)


def test_causal_rows_know_their_places() -> None:
    """The second part's rows are not the first ones."""

    def f(q: Any, k: Any, v: Any) -> Any:
        s = jnp.einsum("bqd,bkd->bqk", q, k, preferred_element_type=jnp.float32)
        seen = jnp.arange(s.shape[1])[:, None] >= jnp.arange(s.shape[2])
        return jnp.einsum("bqk,bkd->bqd", jax.nn.softmax(jnp.where(seen, s, -1e9)).astype(v.dtype), v)

    args = drawn((2, 83, 16), (2, 83, 16), (2, 83, 16))
    made = made_of(f, args)
    assert len(steps_of([*made.kernels])) == 2
    close(made.run(args, simulated), f, args)


def test_gradients_are_right_whether_they_are_split_or_not() -> None:
    def f(q: Any, k: Any, v: Any) -> Any:
        return jax.grad(lambda *a: jnp.sum(jnp.square(attention(*a).astype(jnp.float32))), (0, 1, 2))(q, k, v)

    args = drawn((1, 67, 2, 16), (1, 67, 2, 16), (1, 67, 2, 16))
    made = made_of(f, args)
    close(made.run(args, simulated), f, args)
