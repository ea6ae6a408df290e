"""`jstitch doctor`: it finds what is broken, tells what works, and never crashes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import jax
import pytest
from click.testing import CliRunner

from jstitch.__main__ import main
from jstitch.cli import checks
from jstitch.cli.checks import CHECKS, Finding, look
from jstitch.errors import JstitchWarning


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As on a user's machine, with a cache of its own."""
    for name in [n for n in os.environ if n.startswith("JSTITCH_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("JSTITCH_CACHE_DIR", str(tmp_path / "cache"))


def look_at(name: str) -> Finding:
    return look(name, next(section[name] for section in CHECKS.values() if name in section))


def test_a_healthy_machine() -> None:
    result = CliRunner().invoke(main, ["doctor", "--json"])
    found = {f["name"]: f for f in json.loads(result.stdout)}
    assert result.exit_code == 0, result.output
    assert len(found) == sum(map(len, CHECKS.values()))
    assert found["cpu kernels"]["status"] == "ok"
    assert found["cache folder"]["status"] == "ok"
    assert jax.__version__ in found["jax"]["text"]
    assert "fail" not in {f["status"] for f in found.values()}
    assert all(f["hint"] for f in found.values() if f["status"] == "warn")


def test_the_text_and_the_status_of_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> Finding:
        raise ImportError("libfoo.so: cannot open [shared] object\nsecond line")

    monkeypatch.setattr(
        checks, "CHECKS", {"things": {"foo": broken, "bar": lambda n: Finding(n, "warn", "x", "y")}}
    )
    result = CliRunner().invoke(main, ["doctor"])
    assert result.exit_code == 1
    assert "FAIL  foo  ImportError: libfoo.so: cannot open [shared] object\n" in result.stdout
    assert "next: y" in result.stdout
    assert "second line" not in result.stdout


def test_a_library_that_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    assert look_at("numba").status == "fail"
    assert look_at("llvmlite").status == "ok"


def test_a_warning_is_what_a_check_found() -> None:
    def check(name: str) -> Finding:
        warnings.warn("the file is damaged", JstitchWarning, stacklevel=1)
        return Finding(name, "ok", "fine")

    assert look("x", check) == Finding("x", "warn", "the file is damaged")


@pytest.mark.parametrize(
    ("name", "value", "status", "text"),
    [
        ("JSTITCH_PLANNER", "weave", "fail", "'weave'"),
        ("JSTITCH_PLANER", "ilp", "warn", "JSTITCH_PLANER means nothing"),
        ("JSTITCH_PLANNER", "ilp", "ok", "JSTITCH_PLANNER=ilp"),
    ],
)
@pytest.mark.filterwarnings("ignore:Environment variable JSTITCH_PLANER")
def test_variables(monkeypatch: pytest.MonkeyPatch, name: str, value: str, status: str, text: str) -> None:
    monkeypatch.setenv(name, value)
    found = look_at("variables")
    assert (found.status, text in found.text) == (status, True)


def test_a_cache_folder_that_cannot_be(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("JSTITCH_CACHE_DIR", str(tmp_path / "file"))
    found = look_at("cache folder")
    assert found.status == "fail"
    assert "JSTITCH_CACHE_DIR" in found.hint


def test_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "LITTLE_ROOM", 1 << 62)
    assert look_at("cache folder").status == "warn"


def test_the_cpu_check_compares(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that computes something else, and a program that is not stitched at all."""
    right = checks.jit

    def wrong(f: Any, **settings: Any) -> Any:
        return right(lambda x: f(x) * 1.001, **settings)

    monkeypatch.setattr(checks, "jit", wrong)
    assert "differ from XLA's" in look_at("cpu kernels").text
    monkeypatch.setattr(checks, "jit", lambda f, options: jax.jit(f))
    assert "nothing was stitched" in look_at("cpu kernels").text


BROKEN = """
import sys
sys.modules["numba"] = None
from jstitch.__main__ import main
main(["doctor"], prog_name="jstitch")
"""


def test_a_broken_numba_is_two_lines_and_no_traceback(tmp_path: Path) -> None:
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    variables = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "JSTITCH_CACHE_DIR": str(tmp_path / "empty"),
    }
    done = subprocess.run(
        [sys.executable, "-c", BROKEN], env=variables, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1
    failed = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("  FAIL")]
    assert {"numba", "cpu"} <= set(failed)
    assert "Traceback" not in done.stdout + done.stderr
    assert "`python -m jstitch doctor` says what works" in done.stderr
