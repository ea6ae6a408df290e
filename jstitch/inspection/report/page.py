"""A report's data as one HTML file that holds all it needs and loads nothing."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping
from importlib.resources import files
from string import Template
from typing import Any

_STATIC = files(__package__) / "static"
_SCRIPTS = ("common.js", "graph.js", "marks.js", "panes.js", "page.js")
LIBRARY = "cytoscape.min.js"


def report_html(data: Mapping[str, Any]) -> str:
    """The page for what `report_data` gives."""
    return Template(_text("report.html")).substitute(
        title=html.escape(_plain(f"jstitch report: {data['name']}")),
        style=_text("report.css"),
        library=_text(LIBRARY),
        script='"use strict";\n'
        + "\n".join(_text(name).removeprefix('"use strict";\n') for name in _SCRIPTS),
        data=embedded(data),
    )


def embedded(data: Mapping[str, Any]) -> str:
    """JSON that HTML cannot mistake for markup, whatever the names in it are."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _plain(text: str) -> str:
    """Without what UTF-8 cannot say."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _text(name: str) -> str:
    return (_STATIC / name).read_text(encoding="utf-8")
