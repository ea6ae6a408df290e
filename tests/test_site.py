"""The documentation site is built without a warning and has all that is public; its pictures are true."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import click
import jax
import pytest

import jstitch
from benchmarks.__main__ import main as benchmarks
from docs.images.draw_plans import DRAWN, drawn, plan
from jstitch.__main__ import main
from tests.pages import DOCS, PAGES, ROOT, blocks

PROGRAMS = {"jstitch": main, "benchmarks": benchmarks}
_LINE = re.compile(
    r"^(?:\$ )?(?:\w+=\S* )*(?:\.venv/bin/)?(?:python -m )?(jstitch|benchmarks) (.+)$", re.MULTILINE
)


def test_the_site_is_built_without_warnings(tmp_path: Path) -> None:
    for package in ("material", "mkdocstrings_handlers", "mkdocs_click"):
        pytest.importorskip(package, reason="needs `pip install '.[docs]'`")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stdout + built.stderr
    home = (tmp_path / "index.html").read_text()
    assert 'href="how-it-works.html"' in home
    assert (tmp_path / "repository" / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    assert 'id="jstitch.fuse_together"' in (tmp_path / "reference" / "python.html").read_text()


def test_the_reference_has_all_that_is_public() -> None:
    text = (DOCS / "reference" / "python.md").read_text()
    shown = re.findall(r"^::: jstitch\.(\w+)$|^      heading: jstitch\.(\w+)$", text, re.MULTILINE)
    assert sorted(one or other for one, other in shown) == sorted(jstitch.__all__)


def commands() -> Iterator[tuple[str, str, str]]:
    for page in PAGES:
        for block in blocks(page):
            if block.language in ("", "sh", "console"):
                yield from ((page.name, m[1], m[2]) for m in _LINE.finditer(block.text))


@pytest.mark.parametrize(("page", "program", "words"), list(commands()))
def test_shown_commands_and_options_exist(page: str, program: str, words: str) -> None:
    group = PROGRAMS[program]
    context = click.Context(group, info_name=program)
    try:
        _, command, rest = group.resolve_command(context, shlex.split(words, comments=True))
        assert command is not None
        command.make_parser(context).parse_args(list(rest))
    except click.UsageError as error:
        pytest.fail(f"{page} shows '{program} {words}': {error.format_message()}")


def test_pages_show_commands() -> None:
    assert len(list(commands())) > 20


@pytest.mark.skipif(not jax.__version__.startswith("0.10."), reason="plans differ between jax releases")
@pytest.mark.parametrize("planner", DRAWN)
def test_pictures_are_of_the_plans(planner: str) -> None:
    """Of presets.md: each box is an op, in the colour of its kernel. `python -m docs.images.draw_plans`."""
    tree = ElementTree.parse(DOCS / "images" / f"plan-{planner}.svg")
    boxes = [name for node in tree.iter() if ":" in (name := node.get("id", ""))]
    assert boxes == list(drawn(plan(planner)).values())
