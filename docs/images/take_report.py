"""Make report.png anew: the report of a transformer block and its gradients, in headless Chromium.

    pip install -e '.[browser,analyze]' && python -m docs.images.take_report

Needs Chromium (`chromium`, `chromium-browser` or `google-chrome` on the path), and no GPU: the plan is for an
H200, its times are modelled.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path

import jax
from playwright.sync_api import Browser, Playwright, sync_playwright

from jstitch.demo.example import block
from jstitch.inspection.inspected import Inspected
from jstitch.inspection.report.data import report_data
from jstitch.inspection.report.page import report_html
from jstitch.inspection.subject import observe_function
from jstitch.options import CompileOptions
from jstitch.runtime.report import last_report, record_count

PICTURE = Path(__file__).with_name("report.png")
ROOT = Path(__file__).resolve().parents[2]
SIZE = {"width": 1600, "height": 1000}


def main() -> None:
    jax.config.update("jax_hlo_source_file_canonicalization_regex", re.escape(f"{ROOT}/"))
    function, args = block()
    options, before = CompileOptions(target="h200", tune="off"), record_count()
    calls = observe_function(function, args, {}, options)
    data = report_data("block_gradients", Inspected(calls, last_report(before)), lines=True)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        page.write_text(report_html(data), encoding="utf-8")
        take(page)
    print(f"{PICTURE}: {PICTURE.stat().st_size / 1e3:.0f} kB")


def take(page: Path) -> None:
    with sync_playwright() as p:
        browser = chromium(p)
        shown = browser.new_page(viewport=SIZE, color_scheme="light")
        shown.goto(page.as_uri())
        shown.keyboard.press("/")
        shown.keyboard.type("exponential")
        shown.keyboard.press("Enter")
        shown.wait_for_timeout(500)
        shown.screenshot(path=PICTURE)
        browser.close()


def chromium(playwright: Playwright) -> Browser:
    """The installed one; Playwright's own where none is."""
    found = [shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome")]
    return playwright.chromium.launch(executable_path=next(filter(None, found), None), args=["--no-sandbox"])


if __name__ == "__main__":
    main()
