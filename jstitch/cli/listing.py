"""`jstitch passes` and `jstitch ops`: what there is."""

from __future__ import annotations

import json

import click
from rich.table import Table

from jstitch.cli.console import plain_console
from jstitch.ir.ops import OPS
from jstitch.ir.ops.support import where_it_runs
from jstitch.passes.base.named_pass import NamedPass
from jstitch.passes.named_passes import PASSES

JSON = click.option("--json", "as_json", is_flag=True, help="One JSON array on standard output.")
WIDTH = 120


@click.command("passes")
@JSON
def passes(as_json: bool) -> None:
    """What `opt --passes` takes, in order: passes on graphs, planners, passes on plans, and on kernels."""
    _show([_row(p) for p in PASSES], as_json)


def _row(p: NamedPass) -> dict[str, object]:
    return {
        "name": p.name,
        "takes": p.takes.value,
        "gives": p.gives.value,
        "options": {name: "as compiled" if v is None else v for name, v in p.defaults.items()},
        "what": p.what,
    }


@click.command("ops")
@JSON
def ops(as_json: bool) -> None:
    """The ops that the table knows; all others are left to XLA."""
    rows: list[dict[str, object]] = [
        {"name": d.name, "class": d.op_class.value, "where": where_it_runs(d)}
        for d in OPS.values()
        if d.name.startswith(("stablehlo.", "chlo."))
    ]
    _show(rows, as_json)


def _show(rows: list[dict[str, object]], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(rows, indent=1))
        return
    table = Table(*rows[0])
    for row in rows:
        table.add_row(*map(_cell, row.values()))
    plain_console(WIDTH).print(table)


def _cell(value: object) -> str:
    return "\n".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else str(value)
