"""The example programs, tiny: the same losses under both jits; their command line and what it writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

pytest.importorskip("optax")

from click.testing import CliRunner

import jstitch
from examples.command import command
from examples.common import NAMES, Program, load
from examples.reference import losses_differ
from jstitch.inspection.numerics import blind_difference

STEPS = 2
QUICK = {"xla_backend_optimization_level": 0}  # of XLA's code: most of the time goes into compiling that
LONG = ("gpt", "vit", "bert", "diffusion", "ppo")  # to compile, twice: seconds


def losses(program: Program) -> list[float]:
    state, found = program.start(), []
    step: Any = program.step.lower(state, *program.batch(0)).compile(compiler_options=QUICK)
    for number in range(STEPS):
        state, loss = step(state, *program.batch(number))
        found.append(float(loss))
    return found


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in LONG else pytest.mark.once) for n in NAMES]
)
def test_the_losses_are_those_of_jax_jit(name: str) -> None:
    make, since = load(name), jstitch.record_count()
    ours = losses(make(jstitch.jit, small=True))
    assert jstitch.stitch_count(since) > 0
    expected = losses(make(jax.jit, small=True))
    assert len(set(expected)) == STEPS
    assert blind_difference(np.float32(ours), np.float32(expected)) is None


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_long_training_keeps_to_the_rule(name: str, tmp_path: Path) -> None:
    run(name, "--small", "--steps", "40", "--json", str(tmp_path / "found.json"))


def test_what_is_measured_is_written(tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    text = run("wave", "--small", "--steps", "9", "--floor", "--json", str(path))
    assert "equal" in text
    found = json.loads(path.read_text())
    (row,) = found["programs"]
    assert found["machine"]["packages"]["jax"] == jax.__version__
    assert (row["name"], row["steps"], row["complaint"]) == ("wave", 9, None)
    assert all(row[name]["value"] > 0 for name in ("ratio", "floor"))
    assert 0 < row["jstitch"]["stitched"] <= row["jstitch"]["kernels"] < row["xla"]["kernels"]


def run(*args: str) -> str:
    result = CliRunner().invoke(command, args, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_other_losses_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """jstitch.jit that makes everything a thousandth larger: status 1."""

    def wrong(f: Any, **settings: Any) -> Any:
        def larger(*args: Any) -> Any:
            state, loss = f(*args)
            return state, loss * 1.001

        return jax.jit(larger, **settings)

    monkeypatch.setattr("examples.common.jstitch.jit", wrong)
    result = CliRunner().invoke(command, ["wave", "--small", "--steps", "3"])
    assert result.exit_code == 1
    assert "DIFFER" in result.output
    assert "too far off" in result.output


def test_the_rule_allows_what_a_rounding_does() -> None:
    exact, nearby = np.array([1.0, 0.5]), np.float32([1.0, 0.5 + 1e-4])
    assert losses_differ([1.0, 0.50015], [1.0, 0.5], [exact, nearby]) is None
    assert losses_differ([1.0, 0.5004], [1.0, 0.5], [exact, nearby]) is not None


@pytest.mark.parametrize("args", [[], ["gtp"], ["gpt", "--steps", "0"]])
def test_bad_input(args: list[str]) -> None:
    assert CliRunner().invoke(command, args).exit_code == 2
