"""Functions, scopes and files may be called anything: pages, terminals, kernels, folders take it as text."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import html5lib
import jax
import jax.numpy as jnp
import pydot
import pytest
from click.testing import CliRunner

import jstitch
from jstitch.__main__ import main
from jstitch.codegen.cpu.compile_kernel import load_text
from jstitch.codegen.kernel_source import KernelSource
from jstitch.codegen.memory_map import Area, LaneMap
from jstitch.frontend.dump import Dump
from jstitch.inspection.inspected import inspect_function
from jstitch.inspection.memory_picture import memory_svg
from jstitch.inspection.report.data import report_data
from jstitch.inspection.report.page import report_html
from jstitch.inspection.shown import Shown
from jstitch.ir.visible import LONGEST, visible

OPTIONS = jstitch.CompileOptions(target="cpu", tune="off")
NAMES = {
    "tags": "</script></pre><img src=x onerror=alert(1)><!--",
    "quotes": '" onload="alert(1)\' &quot;&#x3c;b&#x3e;&lt;',
    "markup": "[link=javascript:alert(1)]x[/link][bold red]y[/nope]:smile:",
    "line breaks": "f\n        pass\nimport os\r\u2028\u0085\x0cx = 1 #",
    "escapes": "\x1b]0;title\x07\x1b[31mred\x1b[2J\x9b1m\x7f\x08",
    "directions": "\u202eevil\u2066\u200f\u200b\ufeff",
    "a path": "../../../tmp/x/..\\..\\c:",
    "a template": "${title} {code} %(x)s {0} \\N \\G \\l",
    "a million": "n" * 1_000_000,
}
ROWS = jax.ShapeDtypeStruct((64, 96), jnp.float32)


def named(name: str) -> Callable[[Any], Any]:
    """Three ops of a function and a scope of that name."""

    def f(x: Any) -> Any:
        with jax.named_scope(name):
            x = jnp.exp(x)
        return x / x.sum(-1, keepdims=True)

    f.__name__ = f.__qualname__ = name
    return f


def module(*names: str) -> str:
    """StableHLO of one kernel, whose ops come from files and functions of these names."""
    lines, last = [], "%a"
    for n, name in enumerate(names):
        quoted = "".join(c if c.isascii() and c.isalnum() else _escaped(c) for c in name)
        place = f'loc("{quoted}"("{quoted}":3:1))'
        lines.append(f"%{n} = stablehlo.exponential {last} : tensor<512x256xf32> {place}")
        last = f"%{n}"
    body = "\n".join(lines)
    return f"""func.func public @main(%a: tensor<512x256xf32>) -> tensor<512x256xf32> {{
      {body}
      %z = stablehlo.constant dense<0.0> : tensor<f32>
      %r = stablehlo.reduce({last} init: %z) applies stablehlo.add across dimensions = [1]
        : (tensor<512x256xf32>, tensor<f32>) -> tensor<512xf32>
      %b = stablehlo.broadcast_in_dim %r, dims = [0] : (tensor<512xf32>) -> tensor<512x256xf32>
      %d = stablehlo.divide {last}, %b : tensor<512x256xf32>
      return %d : tensor<512x256xf32>
    }}"""


def _escaped(character: str) -> str:
    return "".join(f"\\{byte:02X}" for byte in character.encode())


def elements(page: str) -> list[tuple[str, tuple[str, ...]]]:
    """Its elements with their attributes. The parser raises for what is not HTML."""
    tree = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(page)
    return [(str(e.tag), tuple(sorted(e.keys()))) for e in tree.iter()]


def require_plain(text: str) -> None:
    assert all(c.isprintable() or c == "\n" for c in text)
    assert len(text) < 200_000


PLAIN = "plain"


@pytest.mark.parametrize("kind", NAMES)
def test_plans_and_explanations_are_text(kind: str) -> None:
    f = jstitch.jit(named(NAMES[kind]), options=OPTIONS)
    for made in (f.plan(ROWS), f.explain(ROWS)):
        require_plain(str(made))
        page = made._repr_html_()
        require_plain(Shown._repr_html_(made))
        found = elements(f"<!DOCTYPE html><html><head><title>t</title></head><body>{page}</body></html>")
        framed = {"details", "summary", "iframe"}
        assert {tag for tag, _ in found} <= {"html", "head", "title", "body", "pre", "span", *framed}
        for tag, names in found:
            own = {"onload", "sandbox", "srcdoc", "title"} if tag == "iframe" else set()
            assert set(names) <= {"style", *own}
        assert visible(NAMES[kind])[:20] in unescape(page)
        assert len(jstitch.last_report()[-1].name) < 2 * LONGEST


def page(name: str) -> str:
    return report_html(report_data(name, inspect_function(named(name), (ROWS,), {}, OPTIONS), lines=True))


@pytest.mark.parametrize("kind", NAMES)
def test_reports_have_no_element_that_is_not_ours(kind: str) -> None:
    hostile, plain = page(NAMES[kind]), page(PLAIN)
    assert elements(hostile) == elements(plain)
    assert len(hostile) < len(plain) + 200_000
    data = hostile.partition('id="data">')[2].partition("</script>")[0]
    assert data.isascii()
    assert not {"<", ">", "&"} & set(data)


def test_commands_print_text_and_kernels_are_the_same_code(tmp_path: Path) -> None:
    """Those that take a module, which anybody may have made."""
    names = tuple(NAMES.values())

    def run(given: tuple[str, ...], *arguments: str) -> str:
        (tmp_path / "m.mlir").write_text(module(*given))
        done = CliRunner().invoke(main, [*arguments[:1], str(tmp_path / "m.mlir"), *arguments[1:]])
        assert done.exit_code == 0, done.output
        require_plain(done.output)
        return str(done.stdout)

    run(names, "plan", "--tune", "off")
    run(names, "explain", "--tune", "off")
    run(names, "opt", "--emit", "kernels")
    of_report = CliRunner().invoke(main, ["report", str(tmp_path / "m.mlir"), "-o", "-"])
    assert len([tag for tag, _ in elements(of_report.stdout) if tag == "script"]) == 3
    plain = (PLAIN,) * len(names)
    source, expected = (
        ast.dump(ast.parse(run(given, "opt", "--emit", "source"))) for given in (names, plain)
    )
    assert source == expected
    (picture,) = pydot.graph_from_dot_data(run(names, "opt", "--emit", "dot"))
    drawn = [node.get_name() for g in (picture, *picture.get_subgraphs()) for node in g.get_nodes()]
    assert len([name for name in drawn if name != "node"]) == len(names) + 3
    assert len(picture.get_edges()) == len(names) + 3


@pytest.mark.parametrize("kind", NAMES)
def test_dumps_stay_in_their_folder(kind: str, tmp_path: Path) -> None:
    dump = tmp_path / "a" / "dump"
    options = OPTIONS.replace(dump_dir=str(dump))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        inspect_function(named(NAMES[kind]), (ROWS,), {}, options)
    (folder,) = dump.iterdir()
    assert len(list(folder.iterdir())) > 10
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
    assert [p.name for p in dump.parent.iterdir()] == ["dump"]
    assert "/" not in folder.name
    assert len(folder.name.encode()) < 255
    for path in folder.iterdir():
        if path.suffix == ".txt":
            require_plain(path.read_text(encoding="utf-8"))
    shown = CliRunner().invoke(main, ["inspect", str(dump)])
    assert shown.exit_code == 0, shown.output
    require_plain(shown.output)


def test_a_dump_goes_through_no_link(tmp_path: Path) -> None:
    """What somebody put into a shared folder before."""
    (tmp_path / "mine").write_text("precious")
    (tmp_path / "00_x.txt").symlink_to(tmp_path / "mine")
    dump = Dump(tmp_path, (), False)
    with pytest.warns(jstitch.JstitchWarning, match="cannot dump"):
        dump.text("x.txt", lambda: "dumped")
    assert (tmp_path / "mine").read_text() == "precious"


@pytest.mark.parametrize("kind", NAMES)
def test_pictures_of_memory_are_text(kind: str) -> None:
    """Of a kernel in a dump, which anybody may have made."""

    def tags(name: str) -> set[str]:
        area = Area(name, name, 0, 64, 0, 0)
        text = memory_svg(name, [LaneMap(0, 0, (name,), (area,), 64)])
        return {element.tag for element in ElementTree.fromstring(text).iter()}

    assert tags(NAMES[kind][:100]) == tags(PLAIN)


FUNCTION = "def phase0(bufs, arena, program):\n    pass\n"


@pytest.mark.parametrize(
    "text",
    [
        "import os\n",
        "from os import system\n",
        "from math import cos\n",
        "from math import inf as phase0\n",
        "print()\n",
        "class C:\n    pass\n",
        "def f(x=print()):\n    pass\n",
        "def f(*, x=print()):\n    pass\n",
        "def f(x: print()):\n    pass\n",
        "def f(*x: print()):\n    pass\n",
        "def f() -> print():\n    pass\n",
        "@print\ndef f():\n    pass\n",
        "x = 1\n",
    ],
)
def test_texts_of_kernels_run_nothing(text: str) -> None:
    """They come with exported programs, and from dumps."""
    with pytest.raises(SyntaxError, match="functions and no more"):
        load_text(KernelSource("k", text + FUNCTION, 0, 0, 0, 0, ()))
    assert "phase0" in load_text(KernelSource("k", f"from math import inf\n{FUNCTION}", 0, 0, 0, 0, ()))


def test_what_is_visible() -> None:
    assert visible("layer.py:12 (norm é 日本)") == "layer.py:12 (norm é 日本)"
    assert visible("a\x1b[0m\n\u202e\udc80\t") == "a\\x1b[0m\\n\\u202e\\udc80\\t"
    assert len(visible("x" * 10**6)) < LONGEST + 10
