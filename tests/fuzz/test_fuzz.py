"""Differential fuzz: random programs under `jstitch.jit` against `jax.jit`, by the numerics rule.

The quick share runs everywhere. The sweep (`pytest -m slow tests/fuzz`) takes JSTITCH_FUZZ_PROGRAMS programs
(3,000 unless set), of which this process runs the share JSTITCH_FUZZ_SHARD = "k/n" (k counts from 0).
"""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jstitch.ir.expr import formula
from jstitch.ir.graph import Graph, Value
from jstitch.ir.ops import OPS, build
from jstitch.ir.types import DType, TensorType
from jstitch.passes.base import profile
from jstitch.passes.lower import form_groups
from jstitch.runtime.report import record_count, stitch_count
from tests.fuzz.harness import run_alone, run_batch
from tests.fuzz.programs import make_program
from tests.passes.random_graphs import Limits

BATCH = 10
QUICK = 60  # programs of each kind
SWEEP = 10_000  # the sweep's first program
LARGE = Limits(ops=7, elements=1 << 16)


@pytest.fixture
def many_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small tensors are cut into programs, phases and tiles like large ones."""
    small = replace(profile.CPU, program_work=16, combine_whole=64, partial_rows=2, keep_cost=1.0)
    monkeypatch.setattr(profile, "CPU", small)
    monkeypatch.setattr(form_groups, "RECOMPUTE", 6.0)


def batches(start: int, stop: int) -> list[range]:
    return [range(k, min(k + BATCH, stop)) for k in range(start, stop, BATCH)]


def assert_equal(seeds: range, limits: Limits = Limits()) -> None:  # noqa: B008
    since = record_count()
    failures = run_batch(seeds, limits)
    assert not failures, "\n\n".join(map(str, failures))
    if len(seeds) == BATCH:
        assert stitch_count(since) > 0


@pytest.mark.parametrize("seeds", batches(0, QUICK), ids=str)
def test_programs(seeds: range) -> None:
    assert_equal(seeds)


@pytest.mark.usefixtures("many_programs")
@pytest.mark.parametrize("seeds", batches(QUICK, 2 * QUICK), ids=str)
def test_programs_in_many_pieces(seeds: range) -> None:
    assert_equal(seeds)


@pytest.mark.parametrize("seed", range(2 * QUICK, 2 * QUICK + 10))
def test_large_programs(seed: int) -> None:
    assert_equal(range(seed, seed + 1), LARGE)


@settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 1 << 20))
def test_programs_that_hypothesis_picks(seed: int) -> None:
    message = run_alone(seed, make_program(seed))
    assert message is None, message


def share() -> list[range]:
    """This process's batches of the sweep."""
    total = int(os.environ.get("JSTITCH_FUZZ_PROGRAMS", "3000"))
    number, count = map(int, os.environ.get("JSTITCH_FUZZ_SHARD", "0/1").split("/"))
    return batches(SWEEP, SWEEP + total)[number::count]


@pytest.mark.slow
@pytest.mark.parametrize("seeds", share(), ids=str)
def test_sweep(seeds: range, request: pytest.FixtureRequest) -> None:
    """Every third batch in many pieces."""
    if seeds.start // BATCH % 3 == 0:
        request.getfixturevalue("many_programs")
    assert_equal(seeds)


def test_a_wrong_kernel_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect in one op's kernel expression shows, so that the comparison is no formality."""
    name = "stablehlo.negate"
    monkeypatch.setitem(OPS, name, replace(OPS[name], scalar=lambda op: formula("abs_")))
    x = Value(TensorType((5, 7), DType.F32))
    op = build.elementwise(name, x)
    half = build.elementwise("stablehlo.cbrt", op.result)
    message = run_alone(0, Graph((x,), (op, half), half.results))
    assert message is not None
    assert "too far off" in message
