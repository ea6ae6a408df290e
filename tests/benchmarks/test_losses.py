"""`python -m benchmarks losses`: its cases are right, and what it writes is whole."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from benchmarks.losses import LOSSES, losses_command


def test_losses_are_measured(tmp_path: Path) -> None:
    path = tmp_path / "losses.json"
    sizes = ["--rows", "32", "--width", "4", "--classes", "100", "--seconds", "0.01"]
    found = CliRunner().invoke(losses_command, [*sizes, "--json", str(path)], catch_exceptions=False)
    assert found.exit_code == 0
    rows = json.loads(path.read_text())["cases"]
    assert [row["name"] for row in rows] == list(LOSSES)
    assert all(row["ratio"] > 0 and row["xla"]["milliseconds"] > 0 for row in rows)
