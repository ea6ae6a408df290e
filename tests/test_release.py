"""tools/release.py refuses what is not ready, and uploads nothing by itself."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = '[project.urls]\nRepository = "https://{host}/jstitch"\n'


@pytest.fixture
def release() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("release", ROOT / "tools" / "release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A committed project of version 1.2.3 with its changelog."""
    if shutil.which("git") is None:
        pytest.skip("releases are made with git")
    (tmp_path / "jstitch").mkdir()
    (tmp_path / "jstitch" / "__init__.py").write_text('"""x"""\n\n__version__ = "1.2.3"\n')
    (tmp_path / "CHANGELOG.md").write_text(
        "# Changelog\n\n## [1.2.3] - 2026-11-26\n\n## [1.2.2] - 2026-01-01\n"
    )
    (tmp_path / "pyproject.toml").write_text(PYPROJECT.format(host="jstitch.example"))
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def git(folder: Path, *arguments: str) -> None:
    me = ("-c", "user.name=me", "-c", "user.email=me@localhost")
    subprocess.run(["git", *me, *arguments], cwd=folder, check=True, capture_output=True)


def commit(folder: Path) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "x")


def test_a_tree_that_is_ready(release: types.ModuleType, tree: Path) -> None:
    assert release.read_version(tree) == "1.2.3"
    release.refuse_unready(tree, "1.2.3")


def changed(tree: Path) -> None:
    (tree / "new.py").write_text("")


def undated(tree: Path) -> None:
    (tree / "CHANGELOG.md").write_text("## [1.2.3] - soon\n\n## [1.2.30] - 2026-11-26\n")
    commit(tree)


def tagged(tree: Path) -> None:
    git(tree, "tag", "v1.2.3")


@pytest.mark.parametrize(
    ("make", "said"), [(changed, "new.py"), (undated, r"no entry `## \[1.2.3\]"), (tagged, "tagged already")]
)
def test_a_tree_that_is_not(
    make: Callable[[Path], None], said: str, release: types.ModuleType, tree: Path
) -> None:
    make(tree)
    with pytest.raises(click.ClickException, match=said):
        release.refuse_unready(tree, "1.2.3")


def test_this_version_has_an_entry(release: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "git", lambda *_: "")
    release.refuse_unready(ROOT, release.read_version(ROOT))


@pytest.fixture
def ran(release: types.ModuleType, tree: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The commands that a release would run; `build` leaves two files."""
    commands: list[tuple[str, ...]] = []

    def run(*command: Any, **settings: Any) -> None:
        commands.append(tuple(map(str, command)))
        if "--outdir" in commands[-1]:
            dist = Path(commands[-1][commands[-1].index("--outdir") + 1])
            dist.mkdir()
            for name in ("jstitch-1.2.3-py3-none-any.whl", "jstitch-1.2.3.tar.gz"):
                (dist / name).write_text("")

    monkeypatch.setattr(release, "ROOT", tree)
    monkeypatch.setattr(release, "run", run)
    return commands


def test_nothing_is_uploaded_unasked(
    release: types.ModuleType, ran: list[tuple[str, ...]], tree: Path
) -> None:
    result = CliRunner().invoke(release.main, [])
    assert result.exit_code == 0, result.output
    assert "git tag -a v1.2.3" in result.output
    steps = (
        "git clone",
        "-m build",
        "twine check --strict",
        "-m venv",
        "pip install",
        "doctor --check",
        "demo",
    )
    lines = [" ".join(command) for command in ran]
    assert len(lines) == len(steps)
    assert all(step in line for step, line in zip(steps, lines, strict=True))
    assert not any("twine upload" in line for line in lines)
    assert {path.name for path in (tree / "dist").iterdir()} == {
        "jstitch-1.2.3-py3-none-any.whl",
        "jstitch-1.2.3.tar.gz",
    }


def test_addresses_that_lead_nowhere_are_not_uploaded(
    release: types.ModuleType, ran: list[tuple[str, ...]], tree: Path
) -> None:
    result = CliRunner().invoke(release.main, ["--upload"])
    assert result.exit_code == 1
    assert "leads nowhere" in result.output
    assert not ran
    (tree / "pyproject.toml").write_text(PYPROJECT.format(host="example.org"))
    commit(tree)
    assert CliRunner().invoke(release.main, ["--upload"]).exit_code == 0
    assert [command[2:4] for command in ran if "upload" in command] == [("twine", "upload")]


def test_what_fails_ends_the_release(release: types.ModuleType) -> None:
    with pytest.raises(click.ClickException, match="status 3: no release"):
        release.run("sh", "-c", "exit 3")
