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
from jstitch.cli import checks, machine_checks, self_check
from jstitch.cli.checks import CHECKS, look
from jstitch.cli.finding import Finding
from jstitch.cli.self_check import PROGRAMS, SOFTMAX, check_program
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
    make_wrong(monkeypatch)
    assert "differ from XLA's" in look_at("cpu kernels").text
    monkeypatch.setattr(self_check, "jit", lambda f, options: jax.jit(f))
    assert "nothing was stitched" in look_at("cpu kernels").text


def make_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels of softmax are off by a hundredth of a percent, all others right."""
    right = self_check.jit

    def wrong(f: Any, **settings: Any) -> Any:
        return right((lambda x: f(x) * 1.0001) if f is SOFTMAX.f else f, **settings)

    monkeypatch.setattr(self_check, "jit", wrong)


def check(monkeypatch: pytest.MonkeyPatch, *programs: self_check.Program) -> Any:
    """`jstitch doctor --check` of these programs alone."""
    monkeypatch.setattr(checks, "CHECKS", {})
    monkeypatch.setattr(checks, "SELF_CHECK", {p.name: check_program(p) for p in programs})
    return CliRunner().invoke(main, ["doctor", "--check", "--json"])


def test_every_program_of_the_self_check_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    result = check(monkeypatch, *PROGRAMS)
    found = {f["name"]: f for f in json.loads(result.stdout)}
    assert result.exit_code == 0, result.output
    assert list(found) == [program.name for program in PROGRAMS]
    for program in PROGRAMS:
        said = found[program.name]["text"]
        assert "as near to float64 as XLA's" in said
        assert not program.kernels or int(said.partition(" kernel")[0]) >= 1


def test_the_self_check_ends_with_status_1(monkeypatch: pytest.MonkeyPatch) -> None:
    make_wrong(monkeypatch)
    last = PROGRAMS[-1]
    result = check(monkeypatch, SOFTMAX, last)
    assert result.exit_code == 1
    assert [f["status"] for f in json.loads(result.stdout)] == ["fail", "ok"]
    assert "output 0" in result.stdout


def test_the_self_check_runs_only_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "CHECKS", {})
    assert not checks.sections(False)
    assert set(checks.sections(True)["kernels against XLA"]) == {p.name for p in PROGRAMS}


@pytest.mark.parametrize(
    ("system", "machine", "release", "status", "text"),
    [
        ("Linux", "x86_64", "6.1.0-amd64", "ok", "what the tests run on"),
        ("Linux", "x86_64", "5.15.1-microsoft-standard-WSL2", "warn", "on WSL: not tested"),
        ("Linux", "aarch64", "6.1.0-arm64", "warn", "emulation"),
        ("Darwin", "arm64", "24.0.0", "warn", "never run there"),
        ("Windows", "AMD64", "11", "warn", "programs stay XLA's"),
        ("Linux", "riscv64", "6.1.0", "warn", "nobody has tried it"),
    ],
)
def test_systems(
    system: str, machine: str, release: str, status: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("system", system), ("machine", machine), ("release", release)):
        monkeypatch.setattr(f"platform.{name}", lambda value=value: value)
    found = look_at("system")
    assert (found.status, text in found.text) == (status, True)
    assert found.text.startswith(f"{system} {machine}")
    assert bool(found.hint) == (status == "warn")


def test_a_driver_that_is_of_windows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machine_checks, "DRIVER", tmp_path / "none")
    assert look_at("driver").status == "none"
    monkeypatch.setattr(machine_checks, "WSL_DRIVER", tmp_path)
    assert look_at("driver").status == "ok"


def test_two_versions_of_jstitch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks.metadata, "version", lambda name: "0.0.1")
    found = look_at("jstitch")
    assert found.status == "warn"
    assert "0.0.1 is installed" in found.text


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
