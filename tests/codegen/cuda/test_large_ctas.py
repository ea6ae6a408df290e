"""Lanes of a launch have CTAs of one size: where it is larger than a lane needs, the lane is not refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import gammaln

from benchmarks.check import require_equal
from benchmarks.workloads.norms import batch_norm, layer_norm
from jstitch.frontend.importer import import_module
from jstitch.frontend.mlir import parse_module
from jstitch.ir.interpret import interpret
from tests.analysis.programs import gelu_residual_norm, pullback
from tests.codegen.cuda import stitched
from tests.codegen.cuda.forms import met
from tests.codegen.cuda.packs import sums_of_all_kinds
from tests.codegen.cuda.stitched import PROFILES, MakeMachine, Stitched, interpreted, simulated, stitch

MACHINES = [
    simulated,
    pytest.param(
        interpreted,
        marks=pytest.mark.skipif(stitched.WHY_NO_PTX is not None, reason=str(stitched.WHY_NO_PTX)),
    ),
]
IN_ARENA = "kept in: partial results, in the arena"
LONG = (2, 12_000)  # rows for CTAs of 1,024 threads


def run(
    f: Callable[..., Any], shapes: Sequence[tuple[int, ...]], machine: MakeMachine, dtype: Any = np.float32
) -> Stitched:
    """The program's kernels, which give what the Graph interpreter gives."""
    rng = np.random.default_rng(0)
    args = [rng.normal(size=shape).astype(dtype) for shape in shapes]
    graph = import_module(parse_module(jax.jit(f, keep_unused=True).lower(*args).as_text()))
    made = stitch(graph, PROFILES["h200"])
    assert not made.recorder.refused
    require_equal(tuple(made.run(args, machine)), interpret(graph, args), 1e-4, "kernels")
    return made


def blocks(made: Stitched) -> list[int]:
    return [launch.block for source in made.sources for launch in source.launches]


def reversed_tiles(x: Any) -> Any:
    """Five rows that other threads read: 82 KB of arena for 256 threads, four times as much for 1,024."""
    kept = [gammaln(x * x + n) for n in range(1, 6)]
    scale = sum(jnp.sum(k, -1, keepdims=True) for k in kept)
    return sum((k / scale)[:, ::-1] for k in kept)


def with_softmax(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda y, *args: (jax.nn.softmax(y), f(*args))


@pytest.mark.parametrize("machine", MACHINES)
def test_what_finds_no_room_in_a_larger_cta_has_a_launch_of_its_own(machine: MakeMachine) -> None:
    alone = blocks(run(reversed_tiles, [(5, 4096)], machine))
    assert 256 in alone
    assert 1024 not in alone
    assert sorted(blocks(run(with_softmax(reversed_tiles), [LONG, (5, 4096)], machine))) == [256, 1024]


@pytest.mark.parametrize("machine", MACHINES)
def test_partial_results_of_several_teams_in_the_arena(machine: MakeMachine) -> None:
    """256 threads keep them in registers, of which a thread among 1,024 has too few."""

    def gradients(x: Any, gamma: Any, beta: Any, upstream: Any) -> Any:
        return pullback(layer_norm, x, gamma, beta, upstream)

    shapes = [(5, 2048), (2048,), (2048,), (5, 2048)]
    assert not met(run(gradients, shapes, machine, jnp.bfloat16))[IN_ARENA]
    packed = run(with_softmax(gradients), [LONG, *shapes], machine, jnp.bfloat16)
    assert met(packed)[IN_ARENA]
    assert 1024 in blocks(packed)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("rows", "columns"), [(257, 40), (130, 24), (300, 16)])
def test_teams_past_the_last_row_leave_partial_results_in_the_arena_alone(
    rows: int, columns: int, machine: MakeMachine
) -> None:
    """Teams of less than a warp take part in the last turn whether or not they have a row."""

    def gradients(*args: Any) -> Any:
        return pullback(batch_norm, *args)

    shapes = [LONG, (rows, columns), (columns,), (columns,), (rows, columns)]
    assert met(run(with_softmax(gradients), shapes, machine, jnp.bfloat16))[IN_ARENA]


@pytest.mark.parametrize("machine", MACHINES)
def test_totals_are_combined_while_partial_results_are_in_the_arena(machine: MakeMachine) -> None:
    assert met(run(sums_of_all_kinds, [(64, 9000)] * 2, machine))[IN_ARENA]


@pytest.mark.parametrize("machine", MACHINES)
def test_tiles_beside_partial_results_that_fill_the_arena_are_computed_again(machine: MakeMachine) -> None:
    def gradients(*args: Any) -> Any:
        return pullback(gelu_residual_norm, *args)

    shapes = [(2, 16_411), (16_411,), (2, 16_411), (16_411,), (16_411,), (2, 16_411)]
    assert blocks(run(gradients, shapes, machine, jnp.bfloat16))
