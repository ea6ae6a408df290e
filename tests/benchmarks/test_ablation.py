"""`python -m benchmarks ablation`, on one small workload."""

import json
from pathlib import Path
from typing import Any

import jax
import pytest
from click.testing import CliRunner

from benchmarks.ablation import DEFAULT, PARTS, ablation_command, summary, variants, without_effect
from benchmarks.planned import plan
from benchmarks.workload import Problem
from jstitch.options import OPTIONAL_PASSES, SCHEMES, TECHNIQUES, CompileOptions

VARIANTS = "packing|sharing|bound_exponents|columns"


def ablation(*arguments: str) -> str:
    done = CliRunner().invoke(ablation_command, [*arguments, "--no-papers"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_rows_of_every_variant(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    few = ("--filter", "^rms_norm$", "--sizes", "l2", "--planner", "auto", "--variant", VARIANTS)
    output = ablation(*few, "--json", str(path))
    rows = json.loads(path.read_text())["rows"]
    assert {(r["target"], r["variant"]) for r in rows} == {
        (target, variant) for target in ("cpu", "h200") for variant in variants("auto", VARIANTS)
    }
    assert all(row["seconds"] > 0 and row["launches"] >= 1 for row in rows)
    assert "auto: changes nothing anywhere: no columns" in output


def test_what_changes_is_measured_too(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    few = ("--filter", "^rms_norm$", "--sizes", "l2", "--planner", "auto", "--target", "cpu")
    ablation(*few, "--variant", "no (block|columns)", "--seconds", "0.01", "--json", str(path))
    rows = {row["variant"]: row for row in json.loads(path.read_text())["rows"]}
    measured = {variant for variant, row in rows.items() if "measured" in row}
    assert measured == {DEFAULT, "no block composition"}
    assert rows["no block composition"]["launches"] > rows[DEFAULT]["launches"]


def test_everything_that_can_be_switched_off_is_a_variant() -> None:
    assert {name for parts in PARTS.values() for name in parts} == {*TECHNIQUES, *OPTIONAL_PASSES}
    assert {f"no {scheme} composition" for scheme in SCHEMES} <= variants("fs2021").keys()


def test_what_only_permits_changes_nothing() -> None:
    """Plans are compared by what runs: bytes that nothing would share are as they were."""
    softmax = Problem(lambda x: jax.nn.softmax(x, 0), (jax.ShapeDtypeStruct((512, 16384), "float32"),))
    digests = {
        without: plan(softmax, CompileOptions(target="h200", without=without)).digest
        for without in ((), ("sharing",), ("columns",))
    }
    assert digests[()] == digests["sharing",]
    assert digests[()] != digests["columns",]


def test_the_summary_is_of_ratios() -> None:
    def row(program: str, variant: str, seconds: float, changed: bool) -> dict[str, Any]:
        kinds = {"launches": 2.0, "nbytes": 1.0, "on_chip": 0, "planning": 1.0}
        about = {"program": program, "variant": variant, "seconds": seconds, "changed": changed}
        return {**about, **kinds, "kernels": 1}

    rows = [row(p, v, s, v == "no a" and p == "f") for p, v, s in (
        ("f", DEFAULT, 1.0), ("f", "no a", 4.0), ("f", "no b", 1.0),
        ("g", DEFAULT, 1.0), ("g", "no a", 1.0), ("g", "no b", 1.0),
    )]  # fmt: skip
    found = {row["variant"]: row for row in summary(rows)}
    assert (found["no a"]["seconds"], found["no a"]["worst"], found["no a"]["changed"]) == (2.0, 4.0, 1)
    assert without_effect(rows) == ["no b"]


def test_a_name_that_matches_nothing_is_an_error() -> None:
    done = CliRunner().invoke(ablation_command, ["--filter", "^nothing$"])
    assert done.exit_code == 2
    assert "no workload matches" in done.output


@pytest.mark.parametrize("text", ["", "layers", "fs2018,nobody"])
def test_planners_are_those_with_parts(text: str) -> None:
    done = CliRunner().invoke(ablation_command, ["--planner", text])
    assert done.exit_code == 2
    assert "expected some of auto, fs2018" in done.output
