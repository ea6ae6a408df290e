"""The sdist and the wheel: whole, with real folders for links, and saying of themselves what is true."""

from __future__ import annotations

import email
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from email.message import Message
from pathlib import Path

import pytest

import jstitch

pytest.importorskip("setuptools", "77", "older setuptools know no SPDX licences")

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "CHANGELOG.md", "LICENSE")
ROOMS = ("jstitch", "passes", "codegen")
BUILD = "import sys, setuptools.build_meta as b; print(getattr(b, 'build_' + sys.argv[1])(sys.argv[2]))"
LINK = re.compile(r"\]\(([^)]+)\)")


@dataclass(frozen=True)
class Built:
    """files: of the wheel, with their contents. sdist: names, without the first folder."""

    files: dict[str, bytes]
    sdist: frozenset[str]
    root: str
    metadata: Message

    def of(self, folder: str) -> set[str]:
        return {name for name in self.files if name.startswith(f"{folder}/")}


def build(what: str, folder: Path, to: Path) -> Path:
    """What `python -m build --no-isolation` does, without `build`."""
    to.mkdir(exist_ok=True)
    command = [sys.executable, "-c", BUILD, what, str(to)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return to / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The sdist of a clean copy, and the wheel that is made of this sdist."""
    work = tmp_path_factory.mktemp("package")
    copy = work / "copy"
    copy.mkdir()
    for name in SOURCES:
        shutil.copy(ROOT / name, copy)
    for room in ROOMS:
        shutil.copytree(ROOT / room, copy / room, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    assert (copy / "jstitch" / "passes").is_symlink()
    with tarfile.open(build("sdist", copy, work / "dist")) as archive:
        names = archive.getnames()
        archive.extractall(work, filter="data")
    root = names[0].partition("/")[0]
    with zipfile.ZipFile(build("wheel", work / root, work / "dist")) as wheel:
        files = {name: wheel.read(name) for name in wheel.namelist()}
    (about,) = (data for name, data in files.items() if name.endswith(".dist-info/METADATA"))
    sdist = frozenset(name.partition("/")[2] for name in names)
    return Built(files, sdist, root, email.message_from_bytes(about))


def sources() -> dict[str, Path]:
    """Every file of the package, links followed; what an editor or Python left there is not of it."""
    found = {}
    for folder, _, files in os.walk(ROOT / "jstitch", followlinks=True):
        paths = (Path(folder, file) for file in files)
        found |= {p.relative_to(ROOT).as_posix(): p for p in paths if p.parent.name != "__pycache__"}
    return found


def test_the_wheel_has_every_file(built: Built) -> None:
    expected = sources()
    assert built.of("jstitch") == set(expected)
    assert {name for name, path in expected.items() if built.files[name] != path.read_bytes()} == set()
    assert {"jstitch/py.typed", "jstitch/inspection/report/static/report.html"} <= built.of("jstitch")


def test_the_wheel_has_nothing_else(built: Built) -> None:
    (folder,) = {name.partition("/")[0] for name in built.files} - {"jstitch"}
    assert folder == f"jstitch-{jstitch.__version__}.dist-info"
    assert b"jstitch = jstitch.__main__:main" in built.files[f"{folder}/entry_points.txt"]


@pytest.mark.parametrize("room", ["passes", "codegen"])
def test_links_have_become_folders(built: Built, room: str) -> None:
    """Nor is there a second copy where the links led."""
    assert len(built.of(f"jstitch/{room}")) > 50
    assert f"jstitch/{room}/__init__.py" in built.sdist
    assert not built.of(room)
    assert not [name for name in built.sdist if name.startswith(f"{room}/")]


def test_the_sdist_has_what_a_wheel_is_made_of(built: Built) -> None:
    assert {*SOURCES, *sources()} <= built.sdist
    assert not [name for name in built.sdist if name.startswith(("tests", "docs", "benchmarks", ".ci"))]


def test_there_is_one_version(built: Built) -> None:
    assert built.metadata["Version"] == jstitch.__version__
    assert built.root == f"jstitch-{jstitch.__version__}"
    text = (ROOT / "pyproject.toml").read_text()
    assert jstitch.__version__ not in text.replace("2026", "")
    assert re.search(rf"^## \[{re.escape(jstitch.__version__)}\]", (ROOT / "CHANGELOG.md").read_text(), re.M)


def test_the_metadata_are_whole(built: Built) -> None:
    about = built.metadata
    assert {"Summary", "Author", "Keywords", "License-Expression", "Requires-Python"} <= set(about.keys())
    urls = dict(url.split(", ") for url in about.get_all("Project-URL", []))
    assert {"Repository", "Documentation", "Changelog", "Issues"} == set(urls)
    assert urls["Changelog"].endswith("/CHANGELOG.md")
    classifiers = about.get_all("Classifier", [])
    for version in ("3.11", "3.12", "3.13"):
        assert f"Programming Language :: Python :: {version}" in classifiers
    assert "Typing :: Typed" in classifiers
    licences = {name.partition("/licenses/")[2] for name in built.files if "/licenses/" in name}
    assert licences == set(about.get_all("License-File", []))


def test_links_of_the_readme_are_whole_addresses(built: Built) -> None:
    """A package index has no files beside it. They lead to the files of this very version."""
    text = str(built.metadata.get_payload())
    links, written = LINK.findall(text), LINK.findall((ROOT / "README.md").read_text())
    assert len(links) == len(written) > 20
    assert all(link.startswith("https://") for link in links)
    base = f"https://jstitch.example/jstitch/blob/v{jstitch.__version__}/"
    assert f"{base}docs/how-it-works.md#a-whole-kernel" in links
    assert base.replace("blob", "raw") + "docs/images/report.png" in links
    assert re.search(r"^```python\n", text, re.MULTILINE), "the rest is as it was"


def test_extras_for_releases_are_not_for_tests(built: Built) -> None:
    wanted = built.metadata.get_all("Requires-Dist", [])
    assert {r.partition(">")[0] for r in wanted if 'extra == "release"' in r} == {"build", "twine"}
