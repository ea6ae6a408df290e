"""What notebooks show: a page in a frame, tables where frames are taken out, `%%stitch`."""

from __future__ import annotations

import copy
import html
import pickle
from collections.abc import Iterator
from functools import cache
from typing import Any

import html5lib
import jax
import jax.numpy as jnp
import pytest

import jstitch
from jstitch.analysis.report import Analysis, Side
from jstitch.device_spec import find_spec
from jstitch.inspection import table
from jstitch.inspection.shown import framed
from jstitch.ir.visible import visible
from tests.inspection.notebooks import NOTEBOOK, executed
from tests.inspection.test_report import HOSTILE

EVERYTHING = jstitch.CompileOptions(target="cpu", tune="off")
SQUARE = jnp.ones((64, 64))


def standardize(x: jax.Array) -> jax.Array:
    return (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True)


@cache
def looked_at() -> list[Any]:
    return [look(standardize, EVERYTHING)(SQUARE) for look in (jstitch.plan, jstitch.explain)]


def elements(text: str) -> list[Any]:
    """Of a part of a page; the parser raises for what is not HTML."""
    parsed = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parseFragment(text)
    return [e for e in parsed.iter() if isinstance(e.tag, str)]


# -- HTML --------------------------------------------------------------------------------------------------


def test_a_notebook_sees_the_page_and_a_table_where_frames_are_taken_out() -> None:
    for made in looked_at():
        text = made._repr_html_()
        shown = elements(text)
        (frame,) = (e for e in shown if e.tag == "iframe")
        assert frame.get("sandbox") == "allow-scripts"  # not allow-same-origin: it is to reach nothing
        assert frame.get("srcdoc") == made.to_html()
        assert "jstitch report: standardize</title>" in frame.get("srcdoc")
        assert not [e for e in shown if e.tag == "script"]
        (told,) = (e for e in shown if e.tag == "details")
        assert "".join(told.itertext()).splitlines()[0].startswith(made.title)
        assert all(line in "".join(told.itertext()) for note in made.notes() for line in note.splitlines())


def test_what_is_printed_is_the_table() -> None:
    for made in looked_at():
        assert repr(made) == str(made)
        assert made.title in repr(made)
        assert "page" not in made.to_json()


def test_an_analysis_is_a_table_in_a_notebook() -> None:
    side = Side((), unknown_loops=("body[0]",))
    made = Analysis("[red]f", find_spec("h200"), side, side, reasons=("<b>none</b>",))
    (shown,) = [e for e in elements(made._repr_html_()) if e.tag == "pre"]
    said = "".join(shown.itertext())
    assert made.title in said
    assert "not stitched: <b>none</b>" in said
    assert "loop body[0]" in repr(made)


@pytest.mark.parametrize("again", [copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made))])
def test_copies_are_tables_without_a_page(again: Any) -> None:
    for made in looked_at():
        other = again(made)
        assert other == made
        assert other._repr_html_().startswith("<pre")
        with pytest.raises(ValueError, match="make it again"):
            other.to_html()


def test_names_that_look_like_markup_stay_names() -> None:
    made = table.build("[bold]t[/bold]", ("name",), [(HOSTILE,), ("[link=javascript:alert(1)]x[/link]",)])
    assert "[bold]t[/bold]" in str(made)
    text = framed(HOSTILE, table.html(made, [HOSTILE, "[/nothing]"]), HOSTILE)
    found = elements(text)
    assert {e.tag for e in found} <= {"DOCUMENT_FRAGMENT", "details", "summary", "pre", "span", "iframe"}
    assert next(e for e in found if e.tag == "iframe").get("srcdoc") == HOSTILE
    assert next(e for e in found if e.tag == "summary").text == HOSTILE
    assert "[link=javascript:alert(1)]x[/link]" in "".join(
        next(e for e in found if e.tag == "pre").itertext()
    )


def test_a_function_with_a_hostile_name_is_shown_by_that_name() -> None:
    def f(x: jax.Array) -> jax.Array:
        return standardize(x)

    f.__name__ = HOSTILE.replace("\u2028", "")
    found = elements(jstitch.plan(f, EVERYTHING)(SQUARE)._repr_html_())
    assert {e.tag for e in found} & {"script", "a", "img"} == set()
    (frame,) = (e for e in found if e.tag == "iframe")
    shown = visible(f.__name__)
    assert f"jstitch report: {html.escape(shown)}</title>" in frame.get("srcdoc")
    assert next(e for e in found if e.tag == "summary").text.startswith(shown)


# -- IPython -----------------------------------------------------------------------------------------------


@pytest.fixture
def shell() -> Iterator[Any]:
    found = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell()
    found.run_line_magic("load_ext", "jstitch")
    found.user_ns.update(jstitch=jstitch, f=standardize, x=SQUARE)
    yield found
    found.history_manager.end_session()


def test_the_magic_plans_the_last_call_of_a_cell_and_does_not_make_it(shell: Any) -> None:
    shell.user_ns["f"] = jstitch.jit(lambda x, y: standardize(x) + y, options=EVERYTHING)
    before = jstitch.record_count()
    made = shell.run_cell_magic("stitch", "", "y = x * 2\nf(x, y=y)")
    assert len(made.patterns) == 1
    assert shell.user_ns["y"].sum() == 2 * 64 * 64
    assert not [r for r in jstitch.last_report(before) if "observed" not in r.details]
    made = shell.run_cell_magic("stitch", "--explain --target h200 --tune off", "f(x, y)")
    assert made.open_edges == ()
    assert made.target == "h200"


@pytest.mark.parametrize(
    ("line", "cell", "said"),
    [
        ("", "x + 1", "last line is a call"),
        ("", "y = f(x)", "last line is a call"),
        ("", "# nothing", "last line is a call"),
        ("--target h9000", "f(x)", "h9000"),
        ("--planner none", "f(x)", "invalid choice"),
    ],
)
def test_a_cell_that_cannot_be_planned_is_a_line(shell: Any, line: str, cell: str, said: str) -> None:
    error = pytest.importorskip("IPython.core.error").UsageError
    with pytest.raises(error, match=said):
        shell.run_cell_magic("stitch", line, cell)


# -- the notebook of the documentation -----------------------------------------------------------------------


def test_the_notebook_is_kept_without_outputs() -> None:
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code
    assert not [cell for cell in code if cell.outputs or cell.execution_count]


def test_the_notebook_runs() -> None:
    found = {cell.id: cell.outputs for cell in executed().cells if cell.get("outputs")}
    shown = {name: outputs[0].data for name, outputs in found.items() if "data" in outputs[0]}
    pages = {name: data for name, data in shown.items() if "text/html" in data}
    assert set(pages) == {"planned", "explained", "stitched"}
    assert not {name: outputs for name, outputs in found.items() if len(outputs) != 1}  # no warnings
    assert all("<iframe" in data["text/html"] for data in pages.values())
    assert "1 kernels of 11 of 12 ops" in pages["planned"]["text/plain"]
    assert "1 edges not in one kernel" in pages["explained"]["text/plain"]
    assert "softmax for h200" in pages["stitched"]["text/plain"]
    assert "remedy" in found["edge"][0].text
