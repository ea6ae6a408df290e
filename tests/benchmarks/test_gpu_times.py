"""What `benchmarks gpu` says of programs: on a CPU, where nothing but the times is missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import gpu_times, timeline
from benchmarks.gpu_times import GpuCase, check, difference, measure, tolerance_on_gpu
from benchmarks.kernel_times import NoTimesError, kernel_times

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "2026-11-27-gpu-h200.json"


def case(monkeypatch: pytest.MonkeyPatch, function: Any) -> None:
    struct: Any = jax.ShapeDtypeStruct
    made = GpuCase(function, (struct((8, 256), jnp.float32),), 5e-5)
    monkeypatch.setattr(gpu_times, "gpu_case", lambda name: made)


def test_a_right_program(monkeypatch: pytest.MonkeyPatch) -> None:
    case(monkeypatch, jax.nn.softmax)
    row = check("softmax")
    assert "error" not in row
    assert row["difference"] < 1e-6


@pytest.mark.parametrize("wrong", [lambda x: 1.001 * x, lambda x: x.at[0, 0].set(jnp.nan), lambda x: x[:4]])
def test_a_wrong_one(monkeypatch: pytest.MonkeyPatch, wrong: Any) -> None:
    case(monkeypatch, jax.nn.softmax)
    monkeypatch.setattr("jstitch.jit", lambda f: lambda x: wrong(f(x)))
    assert "differs from jax.jit" in check("softmax")["error"]


def test_a_program_that_fails_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    case(monkeypatch, lambda x: x.reshape(7, -1))
    assert "reshape" in check("odd")["error"]
    (row,) = measure(["odd"], 60.0)
    assert "reshape" in row["error"]


def test_without_a_gpu_nothing_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoTimesError):
        kernel_times(lambda: jnp.ones(8) + 1, calls=1)
    case(monkeypatch, jax.nn.softmax)
    (row,) = measure(["softmax"], 60.0)
    assert row["error"].startswith("not measured")


def test_differences() -> None:
    x = jnp.array([1.0, -jnp.inf, jnp.nan, 4.0])
    assert difference(x, x) == 0.0
    assert difference(x.at[3].set(3.0), x) == 0.25
    assert difference(x.at[1].set(0.0), x) == np.inf
    assert difference(jnp.array([7, 3]), jnp.array([7, 5])) == 2.0
    assert difference(jnp.ones((0, 3)), jnp.ones((0, 3))) == 0.0


def test_products_are_rounded_as_tf32() -> None:
    x = jnp.ones((4, 4))
    assert tolerance_on_gpu(jnp.dot, (x, x), 5e-5) == gpu_times.TF32
    assert tolerance_on_gpu(jnp.add, (x, x), 5e-5) == 5e-5


def test_estimates_beside_what_was_measured() -> None:
    measured = json.loads(RESULTS.read_text(encoding="utf-8"))
    (row,) = [r for r in measured["rows"] if r["name"] == "adamw float32"]
    seconds = sum(k["seconds"] for k in row["jstitch"]["kernels"].values())
    estimate = {"program": "adamw float32", "launch": "phase0", "us": 2e6 * seconds}
    both = estimate | timeline._beside(estimate, measured)
    assert both["measured"] == pytest.approx(1e6 * seconds)
    assert timeline._beside({"program": "nothing", "launch": "phase0"}, measured) == {}
    assert "2 launches" in timeline._errors([both, both])
    assert "are 2.00 of that" in timeline._errors([both, both])
    assert "fewer than two" in timeline._errors([both])
