"""`jstitch plan --save`, `--diff` and `--pinned`: files, what is printed, exit statuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.test_plan import run

PROGRAM = """
import jax, jax.numpy as jnp

def soft(x):
    return jax.nn.softmax(jnp.{function}(x)) @ x.T

def case():
    return soft, (jnp.ones((64, 300)),)
"""


@pytest.fixture
def programs(tmp_path: Path) -> tuple[str, str]:
    """Two versions of one."""
    for function in ("tanh", "sin"):
        (tmp_path / f"{function}.py").write_text(PROGRAM.format(function=function))
    return f"{tmp_path / 'tanh.py'}:case", f"{tmp_path / 'sin.py'}:case"


@pytest.fixture
def saved(programs: tuple[str, str], tmp_path: Path) -> Path:
    path = tmp_path / "plan.txt"
    done = run("plan", programs[0], "--tune", "off", "--save", path)
    assert done.stderr == f"{path}: 1 kernels\n"
    assert not done.stdout
    return path


def test_the_same_program_has_no_difference(programs: tuple[str, str], saved: Path) -> None:
    assert run("plan", programs[0], "--tune", "off", "--diff", saved).stdout == "the plans are the same\n"
    assert run("plan", saved, "--diff", saved).stdout == "the plans are the same\n"


def test_a_difference_is_a_finding(programs: tuple[str, str], saved: Path, tmp_path: Path) -> None:
    """Of a program, and of its plan."""
    other = tmp_path / "other.txt"
    found = run("plan", programs[1], "--tune", "off", "--diff", saved, "--save", other, status=1)
    assert run("plan", "--diff", saved, other, status=1).stdout == found.stdout
    lines = found.stdout.splitlines()
    assert lines[:3] == [
        "soft: 1 kernels, 1 launches, 0.23 MB",
        "  the program has changed",
        "  0 kernels are the same",
    ]
    changed = [line for line in lines if line[0] in "+-" and "f32[64,300]" in line]
    assert [line.partition(".")[0] for line in changed] == ["-tanh", "+sine"]
    assert all(line.endswith(".py:5 (soft)") for line in changed)
    shown = json.loads(run("plan", other, "--diff", saved, "--json", status=1).stdout)
    assert shown == {"same": False, "lines": lines}


def test_a_pinned_plan_says_what_is_not_as_it_was(programs: tuple[str, str], saved: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JSTITCH_STRICT", "0")
        with pytest.warns(match="is not as"):
            done = run("plan", programs[1], "--tune", "off", "--pinned", saved)
    assert f"soft: 0 of 1 kernels of {saved}\n" in done.stdout
    assert "soft: gone: tanh f32[64,300] at " in done.stdout
    strict = run("plan", programs[1], "--tune", "off", "--pinned", saved, status=2)
    assert strict.stderr.startswith(f"jstitch: {programs[1]}: PlanMismatchError: Expected the program that ")
    assert f"1 of 1 kernels of {saved}\n" in run("plan", programs[0], "--pinned", saved).stdout
    assert f"soft: 1 of 1 kernels of {saved}\n" in run("explain", programs[0], "--pinned", saved).stdout


def test_a_report_says_so_too(programs: tuple[str, str], saved: Path) -> None:
    arguments = ("--tune", "off", "--pinned", saved, "--json")
    shown = json.loads(run("report", programs[0], *arguments).stdout)["saved"]
    assert shown == [f"soft: 1 of 1 kernels of {saved}", "the plan is the saved one"]


@pytest.mark.parametrize("option", ["--diff", "--pinned"])
@pytest.mark.parametrize("text", [None, "", "format = 2", "not a plan", "\0"])
def test_bad_plans_are_one_line(
    option: str, text: str | None, programs: tuple[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "bad.txt"
    if text is not None:
        path.write_text(text)
    done = run("plan", programs[0], option, path, status=2)
    assert done.stderr.startswith("jstitch: ")
    assert str(path) in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_place_that_cannot_be_written_is_one_line(programs: tuple[str, str], tmp_path: Path) -> None:
    done = run("plan", programs[0], "--save", tmp_path / "none" / "plan.txt", status=2)
    assert done.stderr.count("\n") == 1
    files = (path for path in tmp_path.iterdir() if path.name != "__pycache__")
    assert sorted(path.suffix for path in files) == [".py", ".py"]
