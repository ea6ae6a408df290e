"""Reports in headless Chromium, where it and playwright are installed (`pip install -e '.[browser]'`)."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from jstitch.inspection.report.data import report_data
from jstitch.inspection.report.page import report_html
from jstitch.ir.visible import visible
from tests.inspection.report_subjects import data_of, gradients, inspected, network, scanned
from tests.inspection.test_report import HOSTILE, MODULE, NO_KERNELS, NO_OPS, module_data

playwright = pytest.importorskip("playwright.sync_api", reason="pip install -e '.[browser]'")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")

FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as p:
        found = p.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield found
        found.close()


@pytest.fixture
def open_report(browser: Any, tmp_path: Path) -> Iterator[Open]:
    """Opens a page of the data; at the end nothing was complained of, and nothing else was asked for."""
    problems: list[str] = []
    context = browser.new_context(viewport={"width": 1500, "height": 950}, offline=True)

    def open_it(data: dict[str, Any]) -> Any:
        path = tmp_path / "report.html"
        path.write_text(report_html(data), encoding="utf-8")
        page = context.new_page()
        page.on("console", lambda m: problems.append(f"{m.type}: {m.text}"))
        page.on("pageerror", lambda e: problems.append(f"error: {e}"))
        page.on("request", lambda r: None if r.url == path.as_uri() else problems.append(f"asks for {r.url}"))
        page.goto(path.as_uri())
        return page

    yield open_it
    context.close()
    assert not problems


def details(page: Any) -> str:
    return str(page.inner_text("#details"))


def click_op(page: Any, op: int) -> None:
    """Where it is drawn."""
    page.evaluate(f"page.graph.cy.zoom(1); page.graph.center({op})")
    box = page.locator("#graph").bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)


def find_op(data: dict[str, Any], name: str) -> int:
    ops = data["calls"][-1]["frames"][-1]["ops"]
    return next(n for n, number in enumerate(ops["name"]) if data["strings"][number] == name)


def test_a_click_shows_the_op(open_report: Open) -> None:
    data = data_of(network)
    page = open_report(data)
    op = find_op(data, "stablehlo.tanh")
    click_op(page, op)
    ops = data["calls"][0]["frames"][0]["ops"]
    said = details(page)
    assert ops["line"][op] in said
    assert data["strings"][ops["loc"][op]] in said
    assert "jnp.tanh(_norm(x) @ w)" in said
    assert data["strings"][ops["schedule"][op]] in said
    assert data["kernels"][ops["kernel"][op]]["name"] in said
    assert "in one kernel" in said
    assert page.inner_text("#said").endswith(f"kernel {ops['kernel'][op]}")


def test_an_edge_that_is_not_fused_says_why(open_report: Open) -> None:
    data = data_of(network)
    op, why = next((a, why) for a, _, why in data["calls"][0]["frames"][0]["edges"] if why >= 0)
    page = open_report(data)
    click_op(page, op)
    assert f"not fused: {data['reasons'][why]['rule']}" in details(page)
    assert data["reasons"][why]["remedy"] in details(page)


@pytest.mark.parametrize(
    "query", ["tanh", "STABLEHLO.TANH", "report_subjects.py tanh", "%{value}", "#{kernel} tanh"]
)
def test_search_finds_ops(open_report: Open, query: str) -> None:
    data = data_of(network)
    ops = data["calls"][0]["frames"][0]["ops"]
    op = find_op(data, "stablehlo.tanh")
    page = open_report(data)
    page.keyboard.press("/")
    page.keyboard.type(query.format(value=ops["value"][op].strip("%"), kernel=ops["kernel"][op]))
    assert "found" in page.inner_text("#hits")
    assert page.inner_text("#hits") != "0 found"
    page.keyboard.press("Enter")
    assert page.inner_text("#hits").startswith("1 of")
    assert ops["line"][op] in details(page)
    page.keyboard.press("Escape")
    assert page.input_value("#query") == ""
    assert details(page).startswith("Overview")


def test_arrow_keys_go_along_edges_and_layers(open_report: Open) -> None:
    data = data_of(network)
    frame = data["calls"][0]["frames"][0]
    op = find_op(data, "stablehlo.tanh")
    page = open_report(data)
    click_op(page, op)
    page.keyboard.press("ArrowUp")
    reads = {a for a, b, _ in frame["edges"] if b == op}
    assert page.evaluate("page.op") in reads
    page.keyboard.press("ArrowDown")
    above = page.evaluate("page.op")
    assert frame["ops"]["span"][above] < max(frame["ops"]["span"])
    page.evaluate(f"page.showOp({op})")
    page.locator("#graph").focus()
    page.keyboard.press("Enter")
    assert details(page).startswith(data["kernels"][frame["ops"]["kernel"][op]]["name"])


def test_tab_reaches_everything(open_report: Open) -> None:
    page = open_report(data_of(network))
    reached = set()
    for _ in range(80):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("(document.activeElement.id || document.activeElement.textContent)"))
    names = {kernel["name"] for kernel in data_of(network)["kernels"]}
    assert {
        "frame",
        "query",
        "overview",
        "in",
        "out",
        "fit",
        "graph",
        "kernels",
        "details",
    } | names <= reached


@pytest.mark.skipif(find_spec("numba_cuda") is None, reason="numba-cuda is not installed")
def test_the_table_shows_kernels_and_sorts(open_report: Open) -> None:
    data = data_of(network, "h200")
    page = open_report(data)
    page.get_by_role("button", name="ops", exact=True).click()
    first = page.inner_text("#kernels tbody tr:first-child .link")
    largest = max(data["kernels"], key=lambda k: sum(k["ops"].values()))
    assert first == largest["name"]
    page.locator("#kernels .link").first.click()
    said = details(page)
    assert "Occupancy" in said
    assert "def phase0" in said
    assert largest["template"].splitlines()[0] in said
    assert page.locator("#details svg rect").count() > 0
    assert page.locator("#kernels tr[aria-current=true]").count() == 1


def test_frames_can_be_chosen(open_report: Open) -> None:
    data = data_of(scanned)
    frames = data["calls"][0]["frames"]
    page = open_report(data)
    for number, frame in enumerate(frames):
        page.select_option("#frame", str(number))
        assert page.evaluate("page.graph.size") == len(frame["ops"]["name"])
    page.evaluate("page.showKernel(0)")
    assert details(page).startswith(data["kernels"][0]["name"])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_both_schemes(open_report: Open, scheme: str) -> None:
    """Contrast of the colours that text has, by WCAG 2.2: 4.5 at least."""
    page = open_report(data_of(network))
    page.emulate_media(color_scheme=scheme)
    read = "n => getComputedStyle(document.documentElement).getPropertyValue(n).trim()"
    colours = {
        n: page.evaluate(read, f"--{n}") for n in ("card", "tint", "ink", "soft", "accent", "good", "bad")
    }
    for ground in ("card", "tint"):
        for ink in ("ink", "soft", "accent", "good", "bad"):
            assert contrast(colours[ink], colours[ground]) >= 4.5, (ink, ground)


def contrast(a: str, b: str) -> float:
    light, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    digits = colour.strip("#")
    digits = "".join(d * 2 for d in digits) if len(digits) == 3 else digits
    parts = (int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4))
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_all_that_can_be_used_has_a_name_and_a_visible_focus(open_report: Open) -> None:
    page = open_report(data_of(network))
    unnamed = """[...document.querySelectorAll("button, input, select, [tabindex], [role=img], section")]
        .filter((e) => !(e.getAttribute("aria-label") || e.labels?.length || e.textContent.trim()))
        .map((e) => e.outerHTML)"""
    assert page.evaluate(unnamed) == []
    for _ in range(8):
        page.keyboard.press("Tab")
        outline = page.evaluate("getComputedStyle(document.activeElement).outline")
        assert "solid" in outline
        assert "2px" in outline


@pytest.mark.parametrize(
    ("text", "said"), [(NO_OPS, "returns what it is given"), (NO_KERNELS, ""), ("", "right side says why")]
)
def test_a_report_without_kernels_says_so(open_report: Open, text: str, said: str) -> None:
    data = module_data(text or NO_OPS)
    page = open_report(data if text else {**data, "calls": [{**data["calls"][0], "frames": []}]})
    assert "No kernels" in page.inner_text("#kernels")
    assert said in page.inner_text("#none")
    assert page.is_visible("#none") == bool(said)
    page.keyboard.press("/")
    page.keyboard.type("dot")
    for name in ("in", "out", "fit", "overview"):
        page.click(f"#{name}")


def test_hostile_names_are_shown_as_text(open_report: Open) -> None:
    page = open_report(module_data(MODULE.replace("HOSTILE", HOSTILE.replace("\\", "\\\\")), HOSTILE))
    assert page.text_content("h1") == visible(HOSTILE)
    page.keyboard.press("/")
    page.keyboard.type("exponential")
    page.keyboard.press("Enter")
    assert visible(HOSTILE) in page.text_content("#details")


def test_kernels_are_told_apart_without_colours(open_report: Open) -> None:
    """By numbers: in boxes, and over boxes that are too small to read."""
    page = open_report(data_of(network))
    kernel = data_of(network)["calls"][0]["frames"][0]["ops"]["kernel"]
    labels = page.evaluate("page.graph.cy.nodes().map((node) => node.data('label'))")
    assert all((f"#{k} " if k >= 0 else "XLA") in said for k, said in zip(kernel, labels, strict=True))
    drawn = """(zoom) => {
        const seen = [], badge = Marks.prototype.badge;
        Marks.prototype.badge = (kernel) => seen.push(kernel);
        page.graph.cy.zoom(zoom); page.graph.center(0); page.marks.draw();
        Marks.prototype.badge = badge;
        return seen;
    }"""
    assert page.evaluate(drawn, 1) == []
    assert {0, 1} <= set(page.evaluate(drawn, 0.1)) <= set(kernel)
    page.evaluate("page.showKernel(1)")
    assert set(page.evaluate(drawn, 0.1)) >= {1}
    assert page.evaluate("[...page.graph.kept].length") < len(kernel)


def test_five_thousand_ops(open_report: Open, record_property: Callable[[str, object], None]) -> None:
    """A network of many layers and its gradients, planned only. `pytest -s` shows how fast it loads."""
    data = report_data("gradients", inspected(gradients(100), kernels=False))
    ops = data["calls"][-1]["frames"][-1]["ops"]
    assert len(ops["name"]) >= 5000
    page = open_report(data)
    wall = page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd") / 1000
    begun = time.perf_counter()
    assert page.evaluate("page.graph.cy.nodes().length") == len(ops["name"])
    op = len(ops["name"]) // 2
    click_op(page, op)
    record_property("seconds to load", wall)
    record_property("seconds to click", time.perf_counter() - begun)
    print(f"{len(ops['name'])} ops, {len(report_html(data)) / 1e6:.2f} MB: loads in {wall:.2f} s", end="; ")
    print(f"a click takes {time.perf_counter() - begun:.2f} s")
    assert ops["line"][op] in details(page)
    page.keyboard.press("/")
    page.keyboard.type("dot_general")
    hits = sum(data["strings"][n] == "stablehlo.dot_general" for n in ops["name"])
    assert page.inner_text("#hits") == f"{hits} found"
    page.keyboard.press("Enter")
    assert "stablehlo.dot_general" in details(page)
