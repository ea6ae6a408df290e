"""The command line: `python -m examples gpt`, `python -m examples --all --json FILE`."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from benchmarks import machine
from examples.common import NAMES, Row, measure


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(NAMES))
@click.option("--all", "everything", is_flag=True, help="All of them.")
@click.option("--steps", type=click.IntRange(min=1), default=40, show_default=True, help="Training steps.")
@click.option("--small", is_flag=True, help="Tiny sizes, for a quick look.")
@click.option("--floor", is_flag=True, help="Measure jax.jit against itself, too: what noise does.")
@click.option("--json", "path", type=click.Path(path_type=Path), help="Write all numbers here.")
def command(
    names: tuple[str, ...], everything: bool, steps: int, small: bool, floor: bool, path: Path | None
) -> None:
    """Train small programs under jax.jit and jstitch.jit in turn: equal losses? how long a step?

    Losses are equal by the rule of docs/numerics.md. Exits with status 1 where some are not.
    """
    if not names and not everything:
        raise click.UsageError(f"Expected --all or some of {', '.join(NAMES)}, found nothing.")
    console, rows = Console(), []
    for name in NAMES if everything else names:
        with console.status(name):
            rows.append(measure(name, steps, small, floor))
        _say(console, rows[-1])
    console.print(_table(rows))
    if path:
        about = {"machine": machine.describe(), "load": os.getloadavg(), "steps": steps, "small": small}
        path.write_text(json.dumps({**about, "programs": rows}, indent=1) + "\n", encoding="utf-8")
    if any(row["complaint"] for row in rows):
        raise SystemExit(1)


def _say(console: Console, row: Row) -> None:
    first, last = row["losses"]
    worst = row["largest difference"]
    console.print(f"{row['name']}: loss {first:.4f} -> {last:.4f}, largest relative difference {worst:.1e}")
    for note in (row["complaint"], *row["jstitch"]["left to XLA"]):
        if note:
            console.print(f"  {note}", highlight=False, markup=False)


def _table(rows: Sequence[Row]) -> Table:
    """One row per program."""
    shown = Table(title="jax.jit -> jstitch.jit, one step")
    for head in ("", "losses", "ms", "kernels", "stitched", "MB read and written", "x"):
        shown.add_column(head, justify="left" if not head else "right")
    for row in rows:
        ours = row["jstitch"]
        cells = (_change(row, "milliseconds", 1.0, 2), _change(row, "kernels"), str(ours["stitched"]))
        losses = "equal" if row["complaint"] is None else "DIFFER"
        shown.add_row(row["name"], losses, *cells, _change(row, "bytes", 1e6, 1), _ratio(row))
    return shown


def _change(row: Row, field: str, scale: float = 1.0, digits: int = 0) -> str:
    return " -> ".join(f"{row[side][field] / scale:,.{digits}f}" for side in ("xla", "jstitch"))


def _ratio(row: Row) -> str:
    floor = f" (jax.jit {row['floor']['value']:.2f})" if "floor" in row else ""
    return f"{row['ratio']['value']:.2f}{floor}" if "ratio" in row else "-"
