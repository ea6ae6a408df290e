"""docs/walk.md shows dumps as they are today."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.codegen.cuda.stitched import WHY_NO_PTX

PAGE = Path(__file__).parents[1] / "docs" / "walk.md"
SHOWN = re.compile(r"<!-- from: (.*?) -->\n```\w+\n(.*?)^```", re.DOTALL | re.MULTILINE)
STEPS = SHOWN.findall(PAGE.read_text())


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The files that the page's program writes."""
    block = re.search(r"^```python\n(# walk.py\n.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert block is not None
    folder = tmp_path_factory.mktemp("walk")
    program = block[1].replace('dump_dir="walk"', f"dump_dir={str(folder)!r}")
    exec(compile(program, "walk.py", "exec"), {})
    return {path.name: path.read_text() for path in sorted(folder.glob("*/*"))}


def pieces(shown: str) -> Iterator[str]:
    """What the page shows, between its dots; numbers of registers do not matter."""
    for line in shown.splitlines():
        yield from (plain(part) for part in line.split("...") if part.strip())


def plain(text: str) -> str:
    return re.sub(r"%(r|rd|f|p)\d+", "%", text).strip()


@pytest.mark.skipif(WHY_NO_PTX is not None, reason=str(WHY_NO_PTX))
@pytest.mark.parametrize(("ending", "shown"), STEPS, ids=[name for name, _ in STEPS])
def test_the_walk_shows_what_there_is(ending: str, shown: str, dumps: dict[str, str]) -> None:
    (name,) = (name for name in dumps if name.endswith(ending))
    text, place = plain(dumps[name]), 0
    for piece in pieces(shown):
        found = text.find(piece, place)
        assert found >= 0, f"{name} has no '{piece}' after what was shown before"
        place = found + len(piece)


def test_the_walk_has_six_dumps() -> None:
    assert len(STEPS) == 6
