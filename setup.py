"""What pyproject.toml cannot say: README.md as package indexes show it, with whole addresses for links."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).resolve().parent
LINK = re.compile(r"(!?\[[^]]*\])\((?!https?:|#)([^)]+)\)")


def absolute(text: str, repository: str, version: str) -> str:
    """The text with relative links to this version's files in the repository."""

    def link(found: re.Match[str]) -> str:
        kind = "raw" if found[1].startswith("!") else "blob"
        return f"{found[1]}({repository}/{kind}/v{version}/{found[2]})"

    return LINK.sub(link, text)


def readme() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (version,) = re.findall(
        r'^__version__ = "(.+)"$', (ROOT / "jstitch/__init__.py").read_text(), re.MULTILINE
    )
    return absolute((ROOT / "README.md").read_text(encoding="utf-8"), project["urls"]["Repository"], version)


if __name__ == "__main__":
    setup(long_description=readme(), long_description_content_type="text/markdown")
