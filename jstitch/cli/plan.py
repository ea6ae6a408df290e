"""`jstitch plan FILE.mlir|module:function`: what would be stitched, and what that brings, in numbers."""

from __future__ import annotations

import json

import click

from jstitch.cli.console import plain_console
from jstitch.cli.files import make_options, planning_options
from jstitch.cli.progress import progress
from jstitch.cli.subjects import ARGS, SUBJECT, inspect_subject, read_subject
from jstitch.inspection.program_plan import plan_program

WIDTH = 140


@click.command("plan")
@SUBJECT
@ARGS
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@planning_options
def plan(subject: str, args: str | None, as_json: bool, target: str, planner: str, tune: str) -> None:
    """Kernels that a program would get: launches and bytes before and after, memory, occupancy, time.

    SUBJECT is a StableHLO module (text or bytecode; '-' reads stdin), or a function: MODULE:FUNCTION or
    path/to/file.py:FUNCTION, which returns (f, args) or is f itself with --args. Nothing is compiled or run.
    """
    options = make_options(target, planner, tune)
    with progress() as step:
        step(f"reading {subject}")
        found = read_subject(subject, args)
        step("planning")
        seen = inspect_subject(found, options)
        made = plan_program(found.name, seen.calls, seen.records, step)
    if as_json:
        click.echo(json.dumps(made.to_json(), indent=1))
        return
    plain_console(WIDTH).print(made)
    for line in made.notes():
        click.echo(line)
