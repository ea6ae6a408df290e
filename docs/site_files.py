"""Files of the repository that the site shows: README.md as its home, and whatever else a page links to.

    docs/loops.md links to      ../benchmarks/results/x.json      as on any page of a repository
    the site has a copy at      repository/benchmarks/results/x.json, and the page's link leads there

A hook of MkDocs (`hooks:` in mkdocs.yml), so that a link is written once and works in both places.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
HOME = "index.md"
COPIES = "repository"
# the path in ](path#anchor), but not in code
_LINK = re.compile(r"^```.*?^```|`[^`\n]*`|(?<=\]\()(?!\w+:|#|/)([^)#\s]+)", re.DOTALL | re.MULTILINE)


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """With the home page, and a copy of each file outside of docs/ that a page links to."""
    home = File.generated(config, HOME, abs_src_path=str(ROOT / "README.md"))
    files.append(home)
    pages = [file for file in files if file.is_documentation_page()]
    linked = {path for page in pages for path in _outside(page)}
    for path in sorted(linked):
        source = str(ROOT / path)
        copied = File.generated(config, f"{COPIES}/{path}", abs_src_path=source)
        copied.inclusion = InclusionLevel.NOT_IN_NAV
        files.append(copied)
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page with its links as they are on the site."""
    return _LINK.sub(lambda link: _on_site(link[1], page.file) if link[1] else link[0], markdown)


def _outside(page: File) -> set[str]:
    found = (_in_repository(link, page) for link in _LINK.findall(page.content_string) if link)
    return {path for path in found if _place(path) == f"{COPIES}/{path}" and (ROOT / path).is_file()}


def _in_repository(link: str, page: File) -> str:
    """The path from the repository's root of what a page links to."""
    source = os.path.relpath(str(page.abs_src_path), ROOT)
    return os.path.normpath(os.path.join(os.path.dirname(source), link))


def _place(path: str) -> str:
    """Where a file of the repository is on the site, from the site's root."""
    if path == "README.md":
        return HOME
    return path.removeprefix("docs/") if path.startswith("docs/") else f"{COPIES}/{path}"


def _on_site(link: str, page: File) -> str:
    place = _place(_in_repository(link, page))
    return os.path.relpath(place, os.path.dirname(page.src_uri) or ".")
