"""The soak: what it says of series that grow and of those that do not, and a short share of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import soak
from benchmarks.soak_worker import TROUBLES, check, is_noise, small_programs


def series(leak: float, rounds: int = 40) -> list[dict[str, Any]]:
    """Rounds of a process that fills caches at first, and keeps `leak` bytes of every program."""
    noise = np.random.default_rng(0).normal(0, 1e4, rounds)
    return [
        {
            **{"programs": 4 * n, "seconds": 8.0 * n, "kernels": 6 * n, "problems": [], "said": []},
            "resident": 5e8 + 1e8 * (1 - 0.5**n) + 4 * n * leak + noise[n],
            **{"open_files": 4 + n % 2, "native_threads": 22, "objects": 150_000 + 40 * n, "temporary": 0},
        }
        for n in range(rounds)
    ]


@pytest.mark.parametrize("leak", [0.0, 5e4])
def test_a_leak_is_told_from_filling_caches(leak: float) -> None:
    found = soak.growth(series(leak))
    assert found["resident"] == pytest.approx(leak, abs=500)
    assert found["objects"] == pytest.approx(10)
    assert found["open_files"] == pytest.approx(0, abs=0.02)
    assert found["kernels"] == pytest.approx(1.5)
    assert found["eight_hours"] == pytest.approx(found["resident"] * 0.5 * soak.EIGHT_HOURS)
    assert soak.growth(series(leak, 4)) == {}


def test_wrong_results_and_errors_are_problems() -> None:
    program = next(small_programs(3))

    def wrong(f: Any) -> Any:
        return lambda *args: [x + 1 for x in np.atleast_1d(f(*args))]

    def fails(f: Any) -> Any:
        raise ValueError("no kernel")

    assert check(lambda f: f, program) is None
    assert check(wrong, program) is not None
    assert "no kernel" in (check(fails, program) or "")
    assert not is_noise(program, [np.array([1.0, np.nan])], [np.array([1.0, 2.0])])
    assert not is_noise(program, [np.array([1.0, 2.0])], [np.array([1.0, 3.0])])
    assert is_noise(program, [np.array([1.0, 1e-9])], [np.array([1.0, -1e-9])])


def worker(folder: Path, trouble: str) -> list[dict[str, Any]]:
    """One round."""
    return list(soak._rows(folder, "jstitch", 0.1, 2, 1, trouble))


def test_a_round_on_a_full_disk(tmp_path: Path) -> None:
    (row,) = worker(tmp_path / "cache", "full disk")
    assert row["problems"] == []
    assert row["kernels"] > 0
    assert len(row["said"]) == 1
    assert "cannot write" in row["said"][0]
    assert row["temporary"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("trouble", TROUBLES)
def test_every_trouble(tmp_path: Path, trouble: str) -> None:
    (row,) = worker(tmp_path / "cache", trouble)
    assert not row["problems"]
    assert len(row["said"]) == (trouble in ("full disk", "no cache", "others write"))


@pytest.mark.slow
def test_the_whole_soak(tmp_path: Path) -> None:
    found = soak.soak(240, 2, 0, tmp_path)
    assert found["problems"] == []
    assert all(told["programs"] for told in found["troubles"].values())
    assert all(told["temporary"] == 0 for name, told in found["troubles"].items() if name != "killed writers")
