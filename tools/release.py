"""Make a release of what is committed, and try it; nothing leaves this machine unless --upload is given.

    pip install '.[release]'
    python tools/release.py     dist/jstitch-<version>.tar.gz and .whl, checked, installed and tried

Refuses a tree with changes, a version without a dated entry in CHANGELOG.md, and one that is tagged already.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

import click

ROOT = Path(__file__).resolve().parents[1]


@click.command()
@click.option("--upload", is_flag=True, help="Hand the files to `twine upload`, which asks for credentials.")
@click.option("--python", default=sys.executable, help="Installs and tries the wheel; default: this one.")
def main(upload: bool, python: str) -> None:
    """Build, check, install and try the version that is committed here; say how to tag it."""
    version = read_version(ROOT)
    refuse_unready(ROOT, version)
    if upload:
        refuse_placeholder(ROOT)
    with tempfile.TemporaryDirectory(prefix="jstitch-release-") as work:
        files = build(ROOT, Path(work))
        run(sys.executable, "-m", "twine", "check", "--strict", *files)
        try_wheel(next(f for f in files if f.suffix == ".whl"), Path(work), python)
        kept = keep(files, ROOT / "dist")
    click.echo(f"\n{version} is fine:", err=True)
    click.echo("\n".join(map(str, kept)))
    if upload:
        run(sys.executable, "-m", "twine", "upload", *kept)
    click.echo(f"git tag -a v{version} -m 'jstitch {version}' && git push origin v{version}")


def read_version(root: Path) -> str:
    """`jstitch.__version__`, without importing what may not be installed."""
    text = (root / "jstitch" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    if found is None:
        raise click.ClickException('jstitch/__init__.py has no line `__version__ = "..."`')
    return found[1]


def refuse_unready(root: Path, version: str) -> None:
    """Raises ClickException, saying what is to be done first."""
    changed = git(root, "status", "--porcelain")
    if changed:
        raise click.ClickException(f"the tree has changes; commit or stash them first:\n{changed}")
    if git(root, "tag", "--list", f"v{version}"):
        raise click.ClickException(f"v{version} is tagged already; raise jstitch.__version__")
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    if not re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", changelog, re.MULTILINE):
        raise click.ClickException(f"CHANGELOG.md has no entry `## [{version}] - YYYY-MM-DD`")


def refuse_placeholder(root: Path) -> None:
    """An index shows the addresses for ever: they must lead somewhere."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for name, url in project["urls"].items():
        if (urlsplit(url).hostname or "").endswith(".example"):
            raise click.ClickException(f"project.urls.{name} is {url}, which leads nowhere: set it first")


def build(root: Path, work: Path) -> list[Path]:
    """The sdist, and the wheel that is made of it; of a clone, so that nothing ignored by git gets in."""
    run("git", "clone", "--quiet", str(root), str(work / "clone"))
    run(sys.executable, "-m", "build", "--outdir", str(work / "dist"), str(work / "clone"))
    return sorted((work / "dist").iterdir())


def try_wheel(wheel: Path, work: Path, python: str) -> None:
    """Installed alone, where no source tree is."""
    environment, elsewhere = work / "environment", work / "elsewhere"
    elsewhere.mkdir()
    run(python, "-m", "venv", str(environment))
    mine = environment / "bin" / "python"
    run(mine, "-m", "pip", "install", "--quiet", f"{wheel}[demo]", cwd=elsewhere)
    for command in (("doctor", "--check"), ("demo", "--small", "--steps", "10")):
        run(mine, "-m", "jstitch", *command, cwd=elsewhere, JSTITCH_CACHE_DIR=str(work / "kernels"))


def keep(files: list[Path], folder: Path) -> list[Path]:
    folder.mkdir(exist_ok=True)
    return [Path(shutil.copy(file, folder)) for file in files]


def git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        raise click.ClickException(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()


def run(*command: str | Path, cwd: Path | None = None, **variables: str) -> None:
    """Show the command and its output. variables: of its environment, in which nothing else is set for Python
    or jstitch. Raises ClickException when it fails."""
    words = list(map(str, command))
    click.echo(f"$ {' '.join(words)}", err=True)
    ours = ("PYTHONPATH", "PYTHONHOME", "JSTITCH_")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    done = subprocess.run(words, cwd=cwd, env={**clean, **variables}, check=False)
    if done.returncode:
        raise click.ClickException(f"{words[0]} ended with status {done.returncode}: no release")


if __name__ == "__main__":
    main()
