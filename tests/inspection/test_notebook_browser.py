"""The documentation's notebook in headless Chromium, as nbconvert exports it in JupyterLab's own styles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.inspection.notebooks import executed
from tests.inspection.test_report_browser import browser, pytestmark  # noqa: F401

nbconvert = pytest.importorskip("nbconvert", reason="pip install -e '.[notebook]'")


def frames_of(page: Any) -> list[Any]:
    """Of the three outputs that have one, once they are drawn."""
    page.wait_for_function("document.querySelectorAll('iframe').length === 3")
    found = [frame for frame in page.frames if frame != page.main_frame]
    for frame in found:
        frame.wait_for_function("page.graph.size > 0")
    return found


@pytest.mark.parametrize(
    ("theme", "system", "width"), [("light", "dark", 1200), ("dark", "light", 850), ("dark", "dark", 1600)]
)
def test_a_notebook_shows_the_graph_in_its_own_colours(
    browser: Any,  # noqa: F811
    tmp_path: Path,
    theme: str,
    system: str,
    width: int,
) -> None:
    path, problems = tmp_path / "notebook.html", []
    path.write_text(nbconvert.HTMLExporter(theme=theme).from_notebook_node(executed())[0], encoding="utf-8")
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=system)
    # nbconvert's template asks for MathJax and RequireJS; nothing of ours asks for anything
    context.route("http*://**", lambda route: route.abort())
    page = context.new_page()
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(path.as_uri(), wait_until="load")
    for frame in frames_of(page):
        frame.wait_for_function(f"document.documentElement.style.colorScheme === '{theme}'")
        card = frame.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--card')")
        assert card.strip() == {"light": "#fff", "dark": "#1b2025"}[theme]
        assert frame.evaluate("origin") == "null"  # it reaches nothing of the notebook
        frame.locator("#kernels .link").first.click()
        assert "In one kernel" in frame.inner_text("#details") or "kernel 0" in frame.inner_text("#details")
        assert frame.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert frame.evaluate("at('kernels').clientHeight") > 50
        assert frame.locator("#graph canvas").count() >= 3
    context.close()
    assert not problems
