"""Reports without a browser: what is in the file, that it loads nothing, and what hostile names do to it."""

from __future__ import annotations

import errno
import itertools
import json
import os
import re
import tomllib
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import html5lib
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from jstitch.__main__ import main
from jstitch.frontend.mlir import parse_module
from jstitch.inspection.inspected import inspect_module
from jstitch.inspection.report.data import finite, report_data
from jstitch.inspection.report.layout import BAND, columns
from jstitch.inspection.report.page import LIBRARY, embedded, report_html
from jstitch.inspection.report.texts import coloured
from jstitch.ir.visible import visible
from jstitch.options import CompileOptions
from jstitch.runtime.whole_file import write_text
from tests.inspection.report_subjects import data_of, inspected, network, scanned

gpu_compiler = pytest.mark.skipif(find_spec("numba_cuda") is None, reason="numba-cuda is not installed")
HOSTILE = """</script><script>alert(1)</script><!--&amp;\\22'`${title} \u202eé\u2028日本"""
MODULE = """
module @m {
  func.func public @main(%a: tensor<512x256xf32>) -> tensor<512x256xf32> {
    %0 = stablehlo.exponential %a : tensor<512x256xf32> loc(#here)
    %1 = stablehlo.add %0, %a : tensor<512x256xf32> loc(#there)
    %2 = stablehlo.tanh %1 : tensor<512x256xf32>
    return %2 : tensor<512x256xf32>
  }
}
#here = loc("HOSTILE":3:1)
#there = loc("THERE":1:1)
"""
NO_OPS = "func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> { return %a : tensor<4xf32> }"
NO_KERNELS = """
func.func @main(%a: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %0 = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0]
    : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}
"""


def tree(page: str) -> Any:
    """Its elements; the parser raises for what is not HTML."""
    return html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(page)


def data_in(page: str) -> Any:
    (script,) = (e for e in tree(page).iter("script") if e.get("type") == "application/json")
    return json.loads(script.text)


def module_data(text: str, name: str = "m") -> dict[str, Any]:
    module = parse_module(text.encode())
    return report_data(name, inspect_module(module, CompileOptions(target="cpu", tune="off")))


# -- the file ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [network, scanned])
def test_the_page_is_html_that_holds_the_data(make: Any) -> None:
    page = report_html(data_of(make))
    assert data_in(page) == json.loads(json.dumps(data_of(make)))
    ids = [e.get("id") for e in tree(page).iter() if e.get("id")]
    assert len(ids) == len(set(ids))


def test_the_page_loads_nothing() -> None:
    page = report_html(data_of(network))
    elements = list(tree(page).iter())
    loading = {"src", "srcset", "href", "data", "action", "formaction", "poster", "background", "ping"}
    assert not [e for e in elements if loading & set(e.keys())]
    assert not {e.tag for e in elements} & {"link", "iframe", "object", "embed", "base", "img"}
    styles = "".join(e.text or "" for e in elements if e.tag == "style")
    assert "url(" not in styles
    assert "@import" not in styles
    (policy,) = (e for e in elements if e.get("http-equiv") == "Content-Security-Policy")
    assert policy.get("content").startswith("default-src 'none'")
    library = (Path(report_html.__code__.co_filename).parent / "static" / LIBRARY).read_text()
    rest = page.replace(library, "").replace("http://www.w3.org/2000/svg", "")  # SVG's name, not a place
    assert not re.findall(r"https?:", rest)


def test_licences_are_beside_what_they_are_of() -> None:
    static = Path(report_html.__code__.co_filename).parent / "static"
    assert "Permission is hereby granted" in (static / "cytoscape.LICENSE").read_text()
    assert LIBRARY in (static / "THIRD_PARTY.md").read_text()
    assert "Permission is hereby granted" in report_html(data_of(network))


def test_packages_have_all_files_of_a_page_and_their_licence() -> None:
    root = Path(__file__).parents[2]
    settings = tomllib.loads((root / "pyproject.toml").read_text())
    assert settings["tool"]["setuptools"]["package-data"]["jstitch.inspection.report"] == ["static/*"]
    assert any((root / name).name == "cytoscape.LICENSE" for name in settings["project"]["license-files"])
    assert all((root / name).is_file() for name in settings["project"]["license-files"])


def test_reports_of_one_program_are_the_same() -> None:
    pages = {report_html(report_data("again", inspected(network()))) for _ in range(2)}
    assert len(pages) == 1


def test_names_that_look_like_markup_stay_names(tmp_path: Path) -> None:
    name = HOSTILE.replace("\\", "\\\\")
    data = module_data(MODULE.replace("HOSTILE", name), HOSTILE)
    assert any(visible(HOSTILE) in text for text in data["strings"])
    page = report_html(data)
    assert data_in(page) == json.loads(json.dumps(data))
    assert page.count("<script") == 3
    assert tree(page).find("head/title").text == f"jstitch report: {visible(HOSTILE)}"


@given(st.dictionaries(st.text(), st.text() | st.floats() | st.lists(st.integers())))
def test_data_is_read_back_as_it_was_written(data: dict[str, Any]) -> None:
    text = embedded(finite(data))
    assert not set("<>&") & set(text)
    assert text.isascii()
    assert json.loads(text) == finite(data)


def test_a_module_names_no_file_that_the_report_reads(tmp_path: Path) -> None:
    secret = tmp_path / "secret.py"
    secret.write_text("PASSWORD = 'hunter2'\n")
    data = module_data(MODULE.replace("THERE", str(secret)).replace("HOSTILE", "a"))
    assert any(str(secret) in text for text in data["strings"])
    assert "hunter2" not in report_html(data)


# -- what it says ------------------------------------------------------------------------------------------


def test_every_op_says_where_it_is_from_and_why_it_is_alone() -> None:
    data = data_of(network)
    ((frame,),) = ([f for f in call["frames"]] for call in data["calls"])
    ops, strings = frame["ops"], data["strings"]
    assert len({len(column) for column in ops.values()}) == 1
    assert all("stablehlo" in line for line in ops["line"])
    here = {strings[n] for n in ops["loc"]}
    assert any("report_subjects.py:" in loc and "(_norm)" in loc for loc in here)
    shown = {line for lines in data["lines"].values() for _, line in lines}
    assert any("centred = x - x.mean" in line for line in shown)
    for a, b, why in frame["edges"]:
        assert ops["span"][a] > ops["span"][b]
        together = ops["kernel"][a] == ops["kernel"][b] >= 0
        assert together == (why < 0), (ops["line"][a], ops["line"][b])
    rules = {data["reasons"][why]["rule"] for *_, why in frame["edges"] if why >= 0}
    assert "chain" in rules
    assert all(reason["remedy"] for reason in data["reasons"])


def test_kernels_have_their_numbers_source_and_memory() -> None:
    data = data_of(network)
    assert data["totals"]["kernels"] == len(data["kernels"]) > 1
    for kernel in data["kernels"]:
        assert "def phase0" in "".join(piece[1:] for piece in kernel["source"])
        assert kernel["ours"]["launches"] == 1 <= kernel["xla"]["launches"]
        assert kernel["template"]
        assert kernel["why"]
    softmax = data["kernels"][-1]
    assert "block" in softmax["schemes"]
    ends = [a["offset"] + a["nbytes"] for lane in softmax["memory"] for a in lane["areas"]]
    assert 0 < max(ends) <= softmax["arena"]
    ((ops,),) = ([frame["ops"] for frame in call["frames"]] for call in data["calls"])
    said = {
        data["strings"][n] for n, kernel in zip(ops["schedule"], ops["kernel"], strict=True) if kernel >= 0
    }
    assert any("[GRID" in schedule for schedule in said)


@pytest.mark.parametrize("text", [NO_OPS, NO_KERNELS])
def test_a_module_without_kernels_has_a_report(text: str) -> None:
    data = module_data(text)
    assert data["kernels"] == []
    assert data["totals"]["ratio"] is None
    assert data_in(report_html(data)) == json.loads(json.dumps(data))


@gpu_compiler
def test_a_gpu_has_occupancy_and_shared_memory() -> None:
    kernels = data_of(network, "h200")["kernels"]
    assert all(0 < kernel["occupancy"] <= 1 for kernel in kernels)
    assert any(area["offset"] is None for k in kernels for lane in k["memory"] for area in lane["areas"])


def test_a_loop_body_is_a_frame_of_its_own() -> None:
    (call,) = data_of(scanned)["calls"]
    titles = [frame["title"] for frame in call["frames"]]
    assert titles[-1] == "the call"
    assert any("while" in title for title in titles[:-1])
    owned = [{k for k in frame["ops"]["kernel"] if k >= 0} for frame in call["frames"]]
    assert sum(map(bool, owned)) >= 2
    assert all(not a & b for a, b in itertools.combinations(owned, 2))


def test_colours_change_no_character_of_a_source() -> None:
    source = "def f(x):\n    # why\n    for i in range(3):\n        x = x + 1.5  # 'one'\n    return x\n"
    pieces = coloured(source)
    assert "".join(piece[1:] for piece in pieces) == source
    assert {"kdef", "ff", "c# why", "kfor", "brange", "n1.5"} <= set(pieces)


# -- places ------------------------------------------------------------------------------------------------


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[int], list[tuple[int, int]]]:
    """Spans as the pass works them out, and edges."""
    size = draw(st.integers(1, 40))
    pair = st.tuples(st.integers(0, size - 1), st.integers(0, size - 1))
    edges = sorted({(a, b) for a, b in draw(st.lists(pair, max_size=80)) if a < b})
    spans = [0] * size
    for a, b in sorted(edges, reverse=True):
        spans[a] = max(spans[a], spans[b] + 1)
    return spans, edges


@settings(max_examples=60)
@given(graphs())
def test_ops_of_a_layer_do_not_overlap(graph: tuple[list[int], list[tuple[int, int]]]) -> None:
    spans, edges = graph
    found = columns(spans, edges)
    layers = defaultdict(list)
    for span, x in zip(spans, found, strict=True):
        layers[span].append(x)
    gaps = [b - a for xs in layers.values() for a, b in itertools.pairwise(sorted(xs))]
    assert all(gap >= 0.98 for gap in gaps)
    assert min(found) == 0
    assert columns(spans, edges) == found


def test_many_ops_are_placed_in_bands() -> None:
    """Chains side by side, more of them than are placed at once, and long ones."""
    size = 3 * BAND
    spans = [(size - 1 - n) // 4 for n in range(size)]
    edges = [(n, n + 4) for n in range(size - 4)]
    found = columns(spans, edges)
    assert all(len({found[4 * row + k] for k in range(4)}) == 4 for row in range(size // 4))
    assert max(found) < 16


# -- the command -------------------------------------------------------------------------------------------


def invoke(*args: str, stdin: bytes | None = None) -> Any:
    return CliRunner().invoke(main, ["report", *args], input=stdin)


def test_the_command_writes_a_report_of_a_module(tmp_path: Path) -> None:
    module, page = tmp_path / "m.mlir", tmp_path / "m.html"
    module.write_text(MODULE)
    done = invoke(str(module), "-o", str(page))
    assert done.exit_code == 0, done.output
    assert data_in(page.read_text())["name"] == str(module)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.html", "m.mlir"]


def test_the_command_writes_a_report_of_a_function_to_standard_output() -> None:
    done = invoke(f"{__package__}.report_subjects:network", "-o", "-", "--planner", "dp")
    assert done.exit_code == 0, done.output
    data = data_in(done.stdout)
    assert data["planner"] == "dp"
    assert data["lines"]


def test_without_a_compiler_for_gpus_the_plan_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jstitch.cli.report.can_compile", lambda: False)
    done = invoke("jstitch.demo.example:block", "--target", "h200", "--json")
    assert done.exit_code == 0, done.output
    kernels = json.loads(done.stdout)["kernels"]
    assert len(kernels) > 5
    assert "numba-cuda" in done.stderr


def test_the_command_writes_json() -> None:
    done = invoke("-", "--json", stdin=MODULE.encode())
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["schema"] == 1


@pytest.mark.parametrize("text", ["", "module {", "module {}", "func.func @f(%a: !weird.type)"])
def test_bad_input_is_one_line_and_leaves_nothing(tmp_path: Path, text: str) -> None:
    page = tmp_path / "r.html"
    done = invoke("-", "-o", str(page), stdin=text.encode())
    assert done.exit_code == 2
    assert len(done.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (".", "found a folder; name a file in it"),
        ("none/r.html", "found none at"),
        ("file.txt/r.html", "found none at"),
        ("closed/r.html", "cannot be written to"),
    ],
)
def test_a_place_that_cannot_be_written_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, said: str
) -> None:
    """Before the planning: the module is not even read. A closed folder is open to root, so it is acted."""
    (tmp_path / "file.txt").touch()
    (tmp_path / "closed").mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "closed")
    done = invoke(str(tmp_path / "missing.mlir"), "-o", str(tmp_path / place))
    assert done.exit_code == 2
    assert len(done.stderr.splitlines()) == 1
    assert said in " ".join(done.stderr.split())
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["closed", "file.txt"]


def test_a_disk_that_is_full_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", full)
    done = invoke("-", "-o", str(tmp_path / "r.html"), stdin=MODULE.encode())
    assert done.exit_code == 2
    assert "No space left" in done.stderr
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_written_whole_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "r.html"
    write_text(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "new \udc80")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
