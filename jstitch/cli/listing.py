"""`jstitch passes` and `jstitch ops`: what there is."""

from __future__ import annotations

import inspect
import json

import click
from rich.console import Console
from rich.table import Table

from jstitch.ir.ops import OPS
from jstitch.ir.ops.support import where_it_runs
from jstitch.passes.pipeline import PIPELINE

JSON = click.option("--json", "as_json", is_flag=True, help="One JSON array on standard output.")
WIDTH = 120


@click.command("passes")
@JSON
def passes(as_json: bool) -> None:
    """The graph passes, in the order in which they run."""
    rows = [{"name": p.name, "what": _first_line(inspect.getmodule(p.run))} for p in PIPELINE]
    _show(rows, as_json)


@click.command("ops")
@JSON
def ops(as_json: bool) -> None:
    """The ops that the table knows; all others are left to XLA."""
    rows = [
        {"name": d.name, "class": d.op_class.value, "where": where_it_runs(d)}
        for d in OPS.values()
        if d.name.startswith(("stablehlo.", "chlo."))
    ]
    _show(rows, as_json)


def _first_line(module: object) -> str:
    return (inspect.getdoc(module) or "").partition("\n")[0]


def _show(rows: list[dict[str, str]], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(rows, indent=1))
        return
    console = Console()
    console.width = max(console.width, WIDTH) if not console.is_terminal else console.width
    table = Table(*rows[0])
    for row in rows:
        table.add_row(*row.values())
    console.print(table)
