"""`python -m benchmarks ablation`, on one small workload."""

import json
from pathlib import Path

from click.testing import CliRunner

from benchmarks.ablation import ablation_command, variants

VARIANTS = "packing|sharing|bound_exponents|planner"


def test_rows_of_every_variant(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    arguments = [
        "--filter",
        "^rms_norm$",
        "--sizes",
        "l2",
        "--seconds",
        "0.01",
        "--variant",
        VARIANTS,
        "--no-gpu",
        "--json",
        str(path),
    ]
    done = CliRunner().invoke(ablation_command, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    rows = {row["variant"]: row for row in json.loads(path.read_text())["rows"]}
    assert set(rows) == {"XLA alone", *variants(VARIANTS)}
    assert all(row["cpu_us"] > 0 for row in rows.values())
    assert (rows["XLA alone"]["cpu_kernels"], rows["default"]["cpu_kernels"]) == (0, 1)
    assert "geometric means" in done.output


def test_a_name_that_matches_nothing_is_an_error() -> None:
    done = CliRunner().invoke(ablation_command, ["--filter", "^nothing$"])
    assert done.exit_code == 2
    assert "no workload matches" in done.output
