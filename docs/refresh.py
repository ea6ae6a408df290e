"""Make the generated parts of README.md and docs/ anew; `--check` only says whether they are up to date.

    <!-- generated: op table -->
    ... replaced by what PARTS["op table"] returns ...
    <!-- end -->

The dumps shown are those of README's own example, so run it with the jax release that README names.
"""

from __future__ import annotations

import dataclasses
import html
import inspect
import json
import re
import sys
import tempfile
import types
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import jax
import numpy as np

import jstitch
from jstitch.ir.ops import OPS, OpClass
from jstitch.ir.ops.support import where_it_runs
from jstitch.runtime.telemetry import AREAS, EVENTS
from jstitch.runtime.telemetry import ROOT as ROOT_LOGGER

ROOT = Path(__file__).resolve().parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
EXAMPLES = ROOT / "benchmarks" / "results" / "2026-11-27-examples-cpu.json"
_PART = re.compile(r"(<!-- generated: (.*?) -->\n).*?(<!-- end -->)", re.DOTALL)


def op_table() -> str:
    """One row per class of ops, from the op table."""
    return "\n".join(["| ops | kind | where they run |", "| --- | --- | --- |", *_op_rows()])


def _op_rows() -> Iterator[str]:
    named = [d for d in OPS.values() if d.name.startswith(("stablehlo.", "chlo."))]
    named.sort(key=lambda d: (d.name.startswith("chlo."), d.name))
    for kind in OpClass:
        rows: dict[str, list[str]] = {}
        for definition in named:
            if definition.op_class is kind:
                name = definition.name.removeprefix("stablehlo.")
                rows.setdefault(where_it_runs(definition), []).append(f"`{name}`")
        for where, names in sorted(rows.items()):
            yield f"| {', '.join(names)} | {kind.value} | {where} |"
    yield "| everything else | opaque | left to XLA |"


def option_table() -> str:
    """One row per field of CompileOptions, its meaning taken from the class's docstring."""
    fields = [field.name for field in dataclasses.fields(jstitch.CompileOptions)]
    text = " ".join((jstitch.CompileOptions.__doc__ or "").split())
    rows = ["| option | variable | meaning |", "| --- | --- | --- |"]
    for name in fields:
        found = re.search(rf"\b{name}: (.*?)\.(?= (?:{'|'.join(fields)}): | Raises )", text)
        if found is None:
            raise LookupError(f"Expected '{name}: ...' in the docstring of CompileOptions, found nothing.")
        rows.append(f"| `{name}` | `JSTITCH_{name.upper()}` | {found[1]} |")
    return "\n".join(rows)


def name_table() -> str:
    """One row per public name, with the first line of its docstring."""
    names = [name for name in jstitch.__all__ if name != "__version__"]
    lines = {name: (inspect.getdoc(getattr(jstitch, name)) or "").partition("\n")[0] for name in names}
    rows = [f"| `{name}` | {html.escape(line, quote=False)} |" for name, line in lines.items()]
    return "\n".join(["| name | what it is |", "| --- | --- |", *rows])


def event_table() -> str:
    """One row per event of jax.monitoring."""
    labels = {event: ", ".join(f"`{label}`" for label in event.labels) for event in EVENTS}
    rows = (f"| `{e.name}` | {e.kind} | {labels[e]} | {e.when} |" for e in EVENTS)
    return "\n".join(["| event | kind | labels | when |", "| --- | --- | --- | --- |", *rows])


def log_table() -> str:
    """One row per logger."""
    rows = (f"| `{area}` | `{ROOT_LOGGER}.{area}` | {what} |" for area, what in AREAS.items())
    return "\n".join(["| name | logger | what |", "| --- | --- | --- |", *rows])


def example_table() -> str:
    """One row per program of examples/, as measured."""
    heads = ("program", "losses", "kernels", "x", "noise")
    rows = [f"| {' | '.join(heads)} |", "| --- | --- | --- | --- | --- |"]
    for row in json.loads(EXAMPLES.read_text())["programs"]:
        losses = "equal" if row["complaint"] is None else "differ"
        kernels = f"{row['xla']['kernels']}, {row['jstitch']['kernels']}"
        ratios = (f"{row[name]['value']:.2f}" for name in ("ratio", "floor"))
        rows.append(f"| `{row['name']}` | {losses} | {kernels} | {' | '.join(ratios)} |")
    return "\n".join(rows)


def example_ratios() -> str:
    """The same in one line: only the ratios."""
    measured = json.loads(EXAMPLES.read_text())["programs"]
    rows = [[row["name"] for row in measured], ["---" for _ in measured]]
    rows.append([f"{row['ratio']['value']:.2f}" for row in measured])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in rows)


@cache
def dump() -> dict[str, str]:
    """The dump of README's example: stage name -> text."""
    block = re.search(r"^```python\n(.*?)^```", PAGES[0].read_text(), re.MULTILINE | re.DOTALL)
    assert block is not None, "README.md has no example"
    example = types.ModuleType("example")
    exec(compile(block[1], "example.py", "exec"), example.__dict__)
    folder = tempfile.mkdtemp()
    options = jstitch.CompileOptions(dump_dir=folder)
    function = jstitch.stitch(example.masked_softmax.__wrapped__, options)
    shape = (8, 128, 512)
    jax.jit(function).lower(
        jax.ShapeDtypeStruct(shape, jax.numpy.bfloat16), jax.ShapeDtypeStruct(shape, np.bool_)
    )
    files = sorted(Path(folder).glob("*/*"))
    return {path.name.partition("_")[2]: path.read_text().strip() for path in files} | {
        "names": "\n".join(path.name for path in files)
    }


def fenced(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```"


def _dumped(name: str, language: str = "text") -> Callable[[], str]:
    return lambda: fenced(language, dump()[name])


def source_body() -> str:
    """The generated kernel without its imports."""
    return fenced("py", dump()["masked_softmax_row_0.py"].partition("\n\n\n")[2])


PARTS: dict[str, Callable[[], str]] = {
    "op table": op_table,
    "option table": option_table,
    "name table": name_table,
    "event table": event_table,
    "log table": log_table,
    "example table": example_table,
    "example ratios": example_ratios,
    "dump names": _dumped("names"),
    "dump input": _dumped("input.mlir", "mlir"),
    "dump graph": _dumped("clone_broadcasts.txt"),
    "dump plan": _dumped("plan.txt"),
    "dump kernel": _dumped("masked_softmax_row_0.kernel.txt"),
    "dump source": _dumped("masked_softmax_row_0.py", "py"),
    "kernel": source_body,
}


def refreshed(text: str) -> str:
    """The page with every generated part made anew."""
    return _PART.sub(lambda m: f"{m[1]}{PARTS[m[2]]()}\n{m[3]}", text)


def main() -> int:
    stale = [page for page in PAGES if refreshed(page.read_text()) != page.read_text()]
    for page in stale:
        print(f"{page.relative_to(ROOT)} is {'out of date' if '--check' in sys.argv else 'rewritten'}")
        if "--check" not in sys.argv:
            page.write_text(refreshed(page.read_text()))
    return int(bool(stale) and "--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())
