"""What the shell offers after Tab."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.shell_completion import BashComplete

from jstitch.__main__ import main
from jstitch.device_spec import SPECS
from jstitch.options import PLANNERS
from jstitch.passes.pipeline import PIPELINE


def offered(*words: str) -> list[str]:
    *before, last = words
    shell = BashComplete(main, {}, "jstitch", "_JSTITCH_COMPLETE")
    return [item.value for item in shell.get_completions(list(before), last)]


def test_commands_planners_and_targets() -> None:
    assert {"inspect", "bench", "cache", "doctor", "opt"} <= set(offered(""))
    assert offered("ca") == ["cache", "calibrate"]
    assert offered("opt", "--planner", "") == list(PLANNERS)
    assert set(offered("opt", "--target", "")) >= {"cpu", "sm_90", *SPECS}
    assert offered("opt", "--target", "h2") == ["h200"]
    assert offered("opt", "--target", "sm_9") == ["sm_90"]


def test_passes() -> None:
    assert {p.name for p in PIPELINE} <= set(offered("opt", "--passes", ""))
    assert offered("opt", "--passes", "dce,cs") == ["dce,cse"]
    assert "cse" in offered("opt", "--print-after", "c")


@pytest.fixture
def dump(tmp_path: Path) -> str:
    call = tmp_path / "step_0"
    call.mkdir()
    for name in ("00_input.mlir", "01_cse.txt", "02_step_0.kernel.txt"):
        (call / name).write_text("")
    return str(tmp_path)


def test_dumps(dump: str) -> None:
    assert offered("inspect", dump, "") == ["compare", "diff", "kernel", "show"]
    assert offered("inspect", dump, "show", "") == ["step_0"]
    assert offered("inspect", dump, "diff", "step_0", "c") == ["cse"]
    assert offered("inspect", dump, "kernel", "") == ["step_0"]


def test_no_dump_offers_nothing(tmp_path: Path) -> None:
    assert offered("inspect", str(tmp_path), "show", "") == []
    assert offered("inspect", str(tmp_path / "none"), "show", "x", "") == []
