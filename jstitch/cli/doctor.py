"""`jstitch doctor`: what is installed and set here, and what will work."""

from __future__ import annotations

import json

import click
from rich.console import Console
from rich.markup import escape

from jstitch.cli.checks import run_checks, sections
from jstitch.cli.finding import Finding
from jstitch.cli.progress import progress

_MARKS = {"ok": "[green]ok  [/]", "warn": "[yellow]warn[/]", "fail": "[red]FAIL[/]", "none": "[dim]-   [/]"}


@click.command()
@click.option(
    "--check", "self_check", is_flag=True, help="Also hold kernels of several programs against XLA's."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON array on standard output.")
def doctor(self_check: bool, as_json: bool) -> None:
    """Look at versions, devices, settings and caches, and try out what should work.

    Exits with status 1 when something that should work does not.

    --check runs softmax, norms, losses, gradients and an optimizer's update under jax.jit and stitched, says
    how many kernels each got, and compares their results by the rule of `jstitch run --compare`.
    """
    looked_at = sections(self_check)
    with progress(sum(map(len, looked_at.values()))) as begin:
        found = list(run_checks(looked_at, begin))
    if as_json:
        click.echo(json.dumps([{"section": section, **f.fields()} for section, f in found], indent=1))
    else:
        _print(found)
    if any(f.status == "fail" for _, f in found):
        raise SystemExit(1)


def _print(found: list[tuple[str, Finding]]) -> None:
    console = Console(soft_wrap=True, highlight=False)
    width = max(len(f.name) for _, f in found)
    last = ""
    for section, f in found:
        if section != last:
            console.print(f"[bold]{section}[/]")
        last = section
        console.print(f"  {_MARKS[f.status]}  {f.name.ljust(width)}  {escape(f.text)}")
        if f.hint:
            console.print(f"        {' ' * width}  [cyan]next: {escape(f.hint)}[/]")
