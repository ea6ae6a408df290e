"""`jstitch report SUBJECT -o report.html`: graph, kernels, reasons and generated source in one HTML file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click

from jstitch.cli.explorer import check_folder, write_explorer
from jstitch.cli.files import PINNED, InputError, make_options, planning_options, read_saved
from jstitch.cli.progress import progress
from jstitch.cli.subjects import ARGS, SUBJECT, FunctionSubject, observe, read_subject
from jstitch.codegen.cuda.build import can_compile
from jstitch.inspection.inspected import Inspected
from jstitch.inspection.report.data import report_data
from jstitch.inspection.report.page import report_html
from jstitch.inspection.subject import platform_of
from jstitch.runtime.report import last_report, record_count
from jstitch.runtime.whole_file import write_text

EXPLORER = "model-explorer"
NOT_BUILT = "no source is shown: kernels for GPUs need numba-cuda (pip install 'jstitch[cuda]')"


@click.command("report")
@SUBJECT
@ARGS
@click.option(
    "-o",
    "--output",
    type=click.Path(allow_dash=True, path_type=Path),
    help="Default: report.html; with --json, stdout; a folder of its format's name.",
)
@planning_options
@PINNED
@click.option("--json", "as_json", is_flag=True, help="What the page shows, as JSON.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["html", EXPLORER]),
    default="html",
    help="model-explorer: a folder with graphs and node data for Google's Model Explorer.",
)
def report(
    subject: str,
    args: str | None,
    output: Path | None,
    target: str,
    planner: str,
    tune: str,
    pinned: str | None,
    as_json: bool,
    form: str,
) -> None:
    """Write a page that shows what becomes of a program: one HTML file that loads nothing.

    Shown are the graph by span layers with its kernels, every op's StableHLO and source line, why edges are
    not fused and what would lift that, launches, bytes and modelled time before and after, memory maps, and
    generated source. Of a function's source files the lines that ops come from are in it, too. With --pinned,
    it says what differs from the saved plan.
    """
    explore = form == EXPLORER and not as_json
    path = output or Path("-" if as_json else EXPLORER if explore else "report.html")
    (check_folder if explore else _check)(path)
    asked, options = read_subject(subject, args), make_options(target, planner, tune, pinned)
    saved = None if pinned is None else read_saved(Path(pinned))
    kernels = not explore and (can_compile() or platform_of(options) != "cuda")
    with progress() as step:
        step("planning")
        before = record_count()
        calls = observe(asked, options, kernels=kernels)
        records = last_report(before) if isinstance(asked, FunctionSubject) else ()
        seen = Inspected(calls, records)
        shown = isinstance(asked, FunctionSubject)
        data = report_data(subject, seen, lines=shown, saved=saved, step=step)
        step("writing")
        if explore:
            write_explorer(path, data)
            return
        text = json.dumps(data, allow_nan=False) + "\n" if as_json else report_html(data)
    _write(path, text, data)
    if not kernels:
        click.echo(NOT_BUILT, err=True)


def _check(path: Path) -> None:
    """Before the planning, which may take a while. Raises InputError for what cannot be written to."""
    if str(path) == "-":
        return
    if path.is_dir():
        raise InputError(
            f"{path}: Expected a file to write, found a folder; name a file in it: {path / 'report.html'}"
        )
    if not path.parent.is_dir():
        raise InputError(f"{path}: Expected a folder to write to, found none at {path.parent}; make it first")
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"{path}: The folder {path.parent} cannot be written to; choose another with -o")


def _write(path: Path, text: str, data: dict[str, Any]) -> None:
    if str(path) == "-":
        click.echo(text, nl=False)
        return
    try:
        write_text(path, text)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    totals = data["totals"]
    click.echo(f"{path}: {totals['kernels']} kernels of {totals['inside']} of {totals['ops']} ops", err=True)
