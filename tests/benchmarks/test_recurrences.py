"""`python -m benchmarks recurrences`: its cases are right, and what it writes is whole."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from benchmarks.recurrences import CASES, recurrences_command


def test_loops_are_measured(tmp_path: Path) -> None:
    path = tmp_path / "loops.json"
    asked = ["--filter", "128x64", "--seconds", "0.05", "--json", str(path)]
    CliRunner().invoke(recurrences_command, asked, catch_exceptions=False)
    (row,) = json.loads(path.read_text())["cases"]
    assert row["name"] in CASES
    assert row["ratio"] > 0
    assert row["microseconds"].keys() == {"xla", "jstitch"}


def test_loops_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "loops.json"
    asked = ["--filter", "advantages 128x64", "--target", "h200", "--json", str(path)]
    CliRunner().invoke(recurrences_command, asked, catch_exceptions=False)
    (row,) = json.loads(path.read_text())["cases"]
    assert row["jstitch"]["launches"] == 1 < row["xla"]["launches"]
