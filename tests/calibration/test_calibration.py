"""Calibration: what is measured is plausible, kept, used, and never in the way when it is damaged."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from click.testing import CliRunner

from jstitch import _jax
from jstitch.__main__ import main
from jstitch.calibration import measure, store, streams
from jstitch.errors import JstitchWarning
from jstitch.frontend.target import cpu_profile
from jstitch.options import CompileOptions
from jstitch.passes.base import profile
from jstitch.passes.base.bandwidth_curve import BandwidthCurve
from jstitch.passes.base.machine import Machine
from jstitch.xla.cpu_thunks import thunks_a_turn
from jstitch.xla.hlo import parse_module

FAST = replace(
    Machine(), lane_cycle=1e-12, cores=8.0, lone_bandwidths=BandwidthCurve(((1024.0, 1e11), (2048.0, 5e10)))
)


@pytest.fixture
def where(tmp_path: Path) -> store.Place:
    return store.place(str(tmp_path))


def test_what_is_saved_is_loaded(where: store.Place) -> None:
    assert store.load(where) is None
    store.save(FAST, where)
    store._remembered.clear()
    assert store.load(where) == FAST
    assert [path.name for path in where.path.parent.iterdir()] == [where.path.name]


def test_lowering_uses_it_and_the_option_does_not(where: store.Place) -> None:
    store.save(FAST, where)
    folder = str(where.path.parent)
    measured, shipped = (replace(machine, **_jax.XLA_CPU) for machine in (FAST, profile.CPU.machine))
    assert cpu_profile(CompileOptions(cache_dir=folder, calibrated=True)).machine == measured
    assert cpu_profile(CompileOptions(cache_dir=folder, calibrated=False)).machine == shipped


def test_clear(where: store.Place) -> None:
    store.save(FAST, where)
    assert store.clear(where)
    assert not store.clear(where)
    assert store.load(where) is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[: len(text) // 2],
        lambda text: "[]",
        lambda text: text.replace('"schema": 1', '"schema": 0'),
        lambda text: text.replace("1e-12", "-1"),
        lambda text: text.replace("1e-12", "NaN"),
        lambda text: text.replace("1e-12", '"fast"'),
        lambda text: text.replace('"fork"', '"spoon"'),
        lambda text: text.replace("50000000000.0", "0.0"),
        lambda text: json.dumps(json.loads(text) | {"key": "another machine"}),
    ],
)
def test_a_damaged_file_is_one_warning(where: store.Place, damage: object) -> None:
    store.save(FAST, where)
    assert callable(damage)
    where.path.write_text(damage(where.path.read_text()))
    store._remembered.clear()
    with pytest.warns(JstitchWarning, match="cannot use the calibration"):
        assert store.load(where) is None
    assert store.load(where) is None  # and says nothing more


def test_measuring_is_quick_and_plausible() -> None:
    """Wide bounds: what a machine that runs tests at the same time still keeps."""
    steps: list[str] = []
    found = measure.calibrate(steps.append, budget=0.02)
    assert len(steps) == measure.STEPS
    assert 1e-13 < found.lane_cycle < 1e-8
    assert 1e-9 <= found.call_seconds < 1e-3
    assert all(1e7 < speed < 1e14 for _, speed in (*found.bandwidths.points, *found.lone_bandwidths.points))
    assert found.near_bytes >= 1 << 15
    assert found.vector_bytes in (16, 32, 64)


@pytest.mark.parametrize(
    ("disturbed", "least", "most"),
    [
        (lambda turns, run: run % 3 == 0, 3e-6, 3e-6),
        (lambda turns, run: turns == streams.FEW, 1.5e-6, 3e-6),
    ],
    ids=["every third run", "all short runs"],
)
def test_other_work_on_the_machine_leaves_a_plausible_time(
    monkeypatch: pytest.MonkeyPatch, disturbed: Callable[[int, int], bool], least: float, most: float
) -> None:
    """A step of 3 us per turn, 50 us for its dispatch, and 20 ms when other work has the processor."""
    now, run = 0.0, 0

    def step(turns: int) -> list[object]:
        nonlocal now, run
        run += 1
        now += 50e-6 + turns * 3e-6 + 20e-3 * disturbed(turns, run)
        return []

    monkeypatch.setattr(time, "perf_counter", lambda: now)
    assert least * 0.999 <= streams.seconds_per_turn(step, [], 0.02) <= most * 1.001


def test_the_command_shows_and_clears(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JSTITCH_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(measure, "calibrate", lambda advance, budget: FAST)
    run = CliRunner()
    assert "shipped defaults" in run.invoke(main, ["calibrate", "--show"]).output
    made = run.invoke(main, ["calibrate", "--seconds", "1"])
    assert made.exit_code == 0, made.output
    assert "8.0 ps" in made.output
    assert "8.0 ps" in run.invoke(main, ["calibrate", "--show"]).output
    assert "forgotten" in run.invoke(main, ["calibrate", "--clear"]).output
    assert "nothing was measured" in run.invoke(main, ["calibrate", "--clear"]).output
    assert run.invoke(main, ["calibrate", "--show", "--clear"]).exit_code == 2


def test_a_folder_that_cannot_be_written_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("JSTITCH_CACHE_DIR", str(blocked))
    monkeypatch.setattr(measure, "calibrate", lambda advance, budget: FAST)
    found = CliRunner().invoke(main, ["calibrate"])
    assert found.exit_code == 1
    assert "Set JSTITCH_CACHE_DIR" in found.output


def test_small_kernels_are_started_one_by_one() -> None:
    """Not one function with the loop around them, of which a kernel more costs next to nothing."""
    lowered = jax.jit(measure.small_kernels(8)).lower(3, jnp.ones(64), jnp.ones(2))
    module = parse_module(str(lowered.compile().as_text()))
    assert (thunks_a_turn(module) or 0) >= 16
