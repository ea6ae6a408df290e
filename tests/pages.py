"""Pages of the documentation and the code in them.

```python       a program: the blocks of a page run in order, in one namespace; libraries may be missing
```py           a fragment, or generated code: not run
<!-- prints -->
```text         what the block before prints; where the page says ..., anything
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
LIBRARIES = {"equinox", "flax", "haiku", "keras", "numpyro", "transformers"}
"""Of `pip install '.[libraries]'`: where they are not installed, the pages about them are not run."""
_FENCE = re.compile(
    r"^(?:<!-- (?P<mark>prints|from: .*?) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Block:
    """line: of its first line of text. mark: of the comment before it, 'prints', 'from: a file', or ''."""

    language: str
    text: str
    line: int
    mark: str


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(m["language"], m["text"], text.count("\n", 0, m.start("text")) + 1, m["mark"] or "")
        for m in _FENCE.finditer(text)
    ]


def is_program(page: Path) -> bool:
    return any(block.language == "python" for block in blocks(page))


def missing_libraries(page: Path) -> set[str]:
    """Those that the page's programs import and that are not installed."""
    trees = (ast.parse(block.text) for block in blocks(page) if block.language == "python")
    names = {name.partition(".")[0] for tree in trees for name in _imports(tree)}
    return {name for name in names & LIBRARIES if importlib.util.find_spec(name) is None}


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module)):
                yield module


def run_page(page: Path, *, compare: bool = True) -> dict[str, Any]:
    """Run the page's programs; what they print is what the page says. Returns their names."""
    names: dict[str, Any] = {"__name__": page.name}
    output = ""
    for block in blocks(page):
        if block.language == "python":
            with contextlib.redirect_stdout(io.StringIO()) as stream:
                # As many lines down as it is on the page, so that an error names the page's line.
                exec(compile("\n" * (block.line - 1) + block.text, page.name, "exec"), names)
            output = stream.getvalue()
        elif block.mark == "prints" and compare:
            compare_output(output, block.text, f"{page.name}:{block.line}")
    return names


def compare_output(found: str, shown: str, where: str) -> None:
    """Everything that is shown, between its dots, is there in this order; without dots it is all there is."""
    place = 0
    lines = [line.strip() for line in found.splitlines()]
    text = "\n".join(line for line in lines if line)
    for piece in _pieces(shown):
        at = text.find(piece, place)
        assert at >= 0, f"{where}: '{piece}' is not printed after what was shown before, but:\n{text[place:]}"
        place = at + len(piece)
    if "..." not in shown:
        assert not text[place:].strip(), f"{where}: more is printed than shown:\n{text[place:]}"


def _pieces(shown: str) -> Iterator[str]:
    for line in shown.splitlines():
        yield from (part.strip() for part in line.split("...") if part.strip())
