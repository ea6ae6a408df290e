"""Columns between products in blocks: running values are what whole rows have, on every machine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jstitch.codegen.interpret_kernel import interpret_kernel
from jstitch.codegen.kernel_ir import Kernel, Lane, Stage
from jstitch.codegen.map_kernel import map_lanes
from jstitch.ir.ops import KERNEL
from jstitch.passes.base.profile import Profile
from jstitch.passes.lower.check_kernel import check_kernel
from jstitch.passes.lower.lower_kernel import lower_kernel
from tests.codegen.cuda.stitched import (
    OPTIONS,
    PROFILES,
    SPEC,
    WHY_NO_PTX,
    Stitched,
    execute,
    interpreted,
    on_cpu,
    simulated,
    stitch,
    stitch_for_cpu,
)
from tests.contexts import CPU, H200
from tests.passes.chain_programs import HALVES, close, program
from tests.passes.test_own_columns import graph_of

SMALL = replace(PROFILES["h200"], product_bytes=80 << 10)
"""A GPU where rows of a few hundred columns find no room."""
WIDTHS = (600, 640, 1000, 1040)
QUICK, MORE = range(8), range(8, 240)


BLOCKED = replace(OPTIONS, without=("tile_chains",))
"""Few rows are quicker whole where so few of them find room: what is tested here are blocks."""


def made_of(f: Callable[..., Any], args: Sequence[np.ndarray], profile: Profile = SMALL) -> Stitched:
    return stitch(graph_of(f, args, H200), profile, options=BLOCKED)


def loops_of(kernels: Sequence[Kernel]) -> list[str]:
    """The loops of stages that kernels have, by name; once where they are apart."""
    lanes = [lane for kernel in kernels for phase in kernel.phases for lane in phase.lanes]
    return list(dict.fromkeys(loop.var.name for lane in lanes for loop, _ in lane.loops if loop is not None))


@pytest.mark.parametrize("seed", [*QUICK, *(pytest.param(n, marks=pytest.mark.slow) for n in MORE)])
def test_drawn_chains(seed: int) -> None:
    f, args = program(seed, HALVES, WIDTHS)
    made = made_of(f, args)
    assert made.recorder.refused == []
    loops = loops_of([*made.kernels])
    assert loops in (["turn0"], ["turn0", "turn1"]) or args[0].shape[-2] == 8
    close(made.run(args, simulated), f, args)
    if WHY_NO_PTX is None and seed % 4 == 0:
        close(made.run(args, interpreted), f, args)


# -- what a maximum may be ----------------------------------------------------------------------------------

Scores = Any


def _guarded(s: Scores) -> Scores:
    """As `jax.nn.logsumexp` does it: rows of nothing are zero."""
    s = jnp.where(jnp.arange(s.shape[-1]) > 300, s - 50.0, -jnp.inf)
    largest = jnp.max(s, -1, keepdims=True)
    e = jnp.exp(s - jnp.where(jnp.isfinite(largest), largest, 0.0))
    return e / (jnp.sum(e, -1, keepdims=True) + 1e-9)


def _columns(test: Callable[[Any], Any], value: float) -> Callable[[Scores], Scores]:
    return lambda s: jax.nn.softmax(jnp.where(test(jnp.arange(s.shape[-1])), value, s))


def _rows(test: Callable[[Any], Any]) -> Callable[[Scores], Scores]:
    return lambda s: jax.nn.softmax(jnp.where(test(jnp.arange(s.shape[-2]))[:, None], -jnp.inf, s))


LOWEST = float(np.finfo(np.float32).min)
BETWEEN: dict[str, Callable[[Scores], Scores]] = {
    "whole rows masked": _rows(lambda i: i % 3 == 0),
    "the first blocks masked": _columns(lambda j: j < 300, -jnp.inf),
    "masked by the lowest number": _columns(lambda j: j < 300, LOWEST),
    "the last blocks masked": _columns(lambda j: j > 150, -jnp.inf),
    "everything masked by the lowest number": lambda s: jax.nn.softmax(jnp.where(s < 1e30, LOWEST, s)),
    "an infinity": _columns(lambda j: j == 300, jnp.inf),
    "a maximum that may be replaced": _guarded,
    "maxima that grow": lambda s: jax.nn.softmax(s + jnp.arange(s.shape[-1]) * 2.0),
    "maxima that fall": lambda s: jax.nn.softmax(s - jnp.arange(s.shape[-1]) * 2.0),
    "rows by their largest": lambda s: s / jnp.max(jnp.abs(s), -1, keepdims=True),
    "normalised rows": lambda s: s * jax.lax.rsqrt(jnp.mean(s * s, -1, keepdims=True)),
    "a softmax of a softmax": lambda s: jax.nn.softmax(jax.nn.softmax(s) * 100.0),
    "nothing": lambda s: s,
}


def between(name: str) -> Callable[..., Any]:
    def f(q: Any, k: Any, v: Any) -> Any:
        scores = jnp.einsum("bqd,bkd->bqk", q, k, preferred_element_type=jnp.float32) * 0.25
        made = (BETWEEN | MASKED | NEEDED)[name](scores)
        return jnp.einsum("bqk,bkd->bqd", made.astype(v.dtype), v)

    return f


def drawn(*shapes: tuple[int, ...]) -> Sequence[np.ndarray]:
    numbers = np.random.default_rng(0)
    return [numbers.standard_normal(shape).astype(jnp.bfloat16) for shape in shapes]


ARGS = drawn((1, 48, 16), (1, 512, 16), (1, 512, 24))
FEW = drawn((1, 16, 2), (1, 256, 2), (1, 256, 2))


@pytest.mark.parametrize("name", BETWEEN)
def test_what_is_between(name: str) -> None:
    f = between(name)
    made = made_of(f, ARGS)
    assert len(made.kernels) == 1
    assert "turn0" in loops_of([*made.kernels])
    close(made.run(ARGS, simulated), f, ARGS)


def test_a_value_that_is_not_a_number_is_not_lost() -> None:
    """Where its column is masked, too: nothing times infinity."""
    q, k, v = (np.array(a) for a in ARGS)
    v[0, 3, 5], k[0, 200, 2] = np.inf, np.nan
    f = between("the first blocks masked")
    close(made_of(f, (q, k, v)).run((q, k, v), simulated), f, (q, k, v))


# -- what else programs want of the columns ----------------------------------------------------------------


def rows_too(q: Any, k: Any, v: Any) -> Any:
    """The softmax itself, too."""
    scores = jnp.einsum("bqd,bkd->bqk", q, k, preferred_element_type=jnp.float32) * 0.25
    p = jax.nn.softmax(scores).astype(v.dtype)
    return jnp.einsum("bqk,bkd->bqd", p, v), p


def gradient(q: Any, k: Any, v: Any) -> Any:
    f = between("causal, large")
    return jax.grad(lambda *args: jnp.sum(jnp.square(f(*args).astype(jnp.float32))), (0, 1, 2))(q, k, v)


@pytest.mark.parametrize("f", [rows_too, gradient])
def test_columns_that_are_stored(f: Callable[..., Any]) -> None:
    """Products of f32, which the gradient has, are XLA's here."""
    args = drawn((1, 48, 16), (1, 640, 16), (1, 640, 24))
    device = replace(SPEC, tf32=False)
    made = made_of(f, args, replace(SMALL, machine=replace(SMALL.machine, device=device)))
    assert made.recorder.refused == []
    assert "turn0" in loops_of([*made.kernels])
    close(made.run(args, simulated), f, args)


# -- masks that leave blocks out ---------------------------------------------------------------------------


def _causal(offset: int, mask: float, above: float = 0.0) -> Callable[[Scores], Scores]:
    def f(s: Scores) -> Scores:
        i, j = jnp.arange(s.shape[-2])[:, None] + offset, jnp.arange(s.shape[-1])
        return jax.nn.softmax(jnp.where(i >= j, s + above, mask))

    return f


def _padded(s: Scores) -> Scores:
    """Rows of nothing, and rows that see a part of what they may."""
    i, j = jnp.arange(s.shape[-2])[:, None], jnp.arange(s.shape[-1])
    return jax.nn.softmax(jnp.where((i >= j) & (j > 20), s, -jnp.inf))


MASKED: dict[str, Callable[[Scores], Scores]] = {
    "causal": _causal(0, -jnp.inf),
    "causal, large": _causal(0, -1e9),
    "causal, largest": _causal(0, LOWEST),
    "later rows": _causal(130, -1e9),
    "strict": lambda s: jax.nn.softmax(
        jnp.where(jnp.arange(s.shape[-1]) < jnp.arange(s.shape[-2])[:, None] + 1, s, -1e9)
    ),
    "scores below the mask": _causal(0, -1e5, above=-2e5),
    "scores as low as the mask": _causal(0, -1e5, above=-1e5),
    "rows of nothing": _padded,
}


def leaves_out(kernels: Sequence[Kernel]) -> bool:
    return any(lane.leaves_out for kernel in kernels for phase in kernel.phases for lane in phase.lanes)


@pytest.mark.parametrize("name", MASKED)
def test_masked_blocks_are_left_out(name: str) -> None:
    """Unless scores are so low that they matter."""
    f = between(name)
    made = made_of(f, ARGS)
    assert leaves_out([*made.kernels])
    close(made.run(ARGS, simulated), f, ARGS)
    if WHY_NO_PTX is None:
        close(made.run(ARGS, interpreted), f, ARGS)


def test_masked_blocks_of_a_row_that_is_not_a_number() -> None:
    q, k, v = (np.array(a) for a in ARGS)
    q[0, 7, 3] = np.nan
    f = between("causal, large")
    close(made_of(f, (q, k, v)).run((q, k, v), simulated), f, (q, k, v))


def _entropy(s: Scores) -> Scores:
    """Zero times the logarithm of zero is not a number: only the pass before it may leave blocks out."""
    p = _causal(0, -1e9)(s)
    return p + jnp.sum(p * jnp.log(p), -1, keepdims=True)


def _two_maxima(s: Scores) -> Scores:
    masked = jnp.where(jnp.arange(s.shape[-2])[:, None] >= jnp.arange(s.shape[-1]), s, -1e9)
    return jax.nn.softmax(masked) + jnp.max(jnp.abs(masked), -1, keepdims=True)


NEEDED = {"an entropy": _entropy, "a maximum of its own": _two_maxima}
MASKED_NOT = ("the last blocks masked", "whole rows masked", "nothing", "a maximum of its own")


@pytest.mark.parametrize("name", NEEDED)
def test_masked_blocks_that_matter(name: str) -> None:
    f = between(name)
    close(made_of(f, ARGS).run(ARGS, simulated), f, ARGS)


@pytest.mark.parametrize("name", MASKED_NOT)
def test_masks_that_leave_nothing_out(name: str) -> None:
    assert not leaves_out([*made_of(between(name), ARGS).kernels])


@pytest.mark.parametrize("name", MASKED)
def test_masked_blocks_are_left_out_on_a_cpu(name: str) -> None:
    f, args = between(name), [a.astype(np.float32) for a in ARGS]
    made = stitch_for_cpu(graph_of(f, args, CPU))
    kernels = [op.attrs["kernel"] for op in made.ops if op.name == KERNEL]
    assert leaves_out(kernels)
    close(execute(made, args, on_cpu), f, args)


# -- one pass, or several ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "passes"),
    [("maxima that grow", 1), ("nothing", 1), ("rows by their largest", 2), ("a softmax of a softmax", 2)],
)
def test_passes_are_as_few_as_the_algebra_allows(name: str, passes: int) -> None:
    assert len(loops_of([*made_of(between(name), ARGS).kernels])) == passes


def test_without_blocks_rows_are_whole() -> None:
    kernel = kernel_of("maxima that grow", replace(SMALL, column_blocks=False))
    assert loops_of([kernel]) == []


# -- checks -----------------------------------------------------------------------------------------------


def kernel_of(name: str, profile: Profile = SMALL) -> Kernel:
    graph = graph_of(between(name), FEW, H200)
    return lower_kernel("k", graph.ops, graph.inputs, graph.outputs, replace(profile, product_bytes=47 << 10))


def changed(kernel: Kernel, change: Callable[[Stage], Stage | None]) -> Kernel:
    def stages(lane: Lane) -> Lane:
        return replace(lane, stages=tuple(s for stage in lane.stages if (s := change(stage)) is not None))

    return map_lanes(kernel, stages)


def test_kernels_are_followed_turn_by_turn() -> None:
    assert check_kernel(kernel_of("maxima that grow")) == ()


def test_a_running_value_that_never_starts_is_found() -> None:
    kernel = kernel_of("maxima that grow")
    without = changed(kernel, lambda s: None if s.note.startswith("start what") else s)
    assert any("read before it is written" in text for text in check_kernel(without))


def test_a_block_that_does_not_go_on_is_found() -> None:
    """By its results: every block begins anew."""
    f, kernel = between("maxima that grow"), kernel_of("maxima that grow")
    close(interpret_kernel(kernel, FEW), f, FEW)
    broken = changed(kernel, lambda s: None if s.note.startswith("the next block") else s)
    with pytest.raises(AssertionError):
        close(interpret_kernel(broken, FEW), f, FEW)
