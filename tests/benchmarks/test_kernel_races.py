"""Each kernel of a drawn program is raced, and the models' errors are told."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from benchmarks.kernel_races import kernels_command


def test_kernels_are_raced_and_told(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    told = ["--count", "2", "--seed", "5", "--seconds", "0.01", "--below", "1000", "--json", str(path)]
    result = CliRunner().invoke(kernels_command, told, catch_exceptions=False)
    rows = json.loads(path.read_text())["rows"]
    assert result.exit_code == 0
    assert len(rows) > 2
    assert all(row["ours"] > 0 and row["xla"] > 0 and row["latency"] > 0 for row in rows)
    assert result.output.count(" us (gate:") == len(rows), "each is slower than a thousand times faster"
    assert "Spearman" in result.output
