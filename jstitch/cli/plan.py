"""`jstitch plan FILE.mlir|module:function`: what would be stitched, and what that brings, in numbers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from itertools import pairwise

import click
from rich.console import Console

from jstitch.cli.files import REPRODUCER, make_options, planning_options
from jstitch.cli.pass_times import Part, part_of, parts_of, time_table
from jstitch.cli.progress import progress
from jstitch.cli.subjects import ARGS, SUBJECT, inspect_subject, read_subject
from jstitch.frontend.observe import Observed
from jstitch.inspection.program_plan import plan_program

WIDTH = 140


@click.command("plan")
@SUBJECT
@ARGS
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@click.option("--time-passes", is_flag=True, help="Print where the time goes to stderr, as a tree.")
@REPRODUCER
@planning_options
def plan(
    subject: str,
    args: str | None,
    as_json: bool,
    time_passes: bool,
    reproducer: str | None,
    target: str,
    planner: str,
    tune: str,
) -> None:
    """Kernels that a program would get: launches and bytes before and after, memory, occupancy, time.

    SUBJECT is a StableHLO module (text or bytecode; '-' reads stdin), or a function: MODULE:FUNCTION or
    path/to/file.py:FUNCTION, which returns (f, args) or is f itself with --args. Nothing is compiled or run.
    """
    options = make_options(target, planner, tune, reproducer)
    ends = [time.perf_counter()]
    with progress() as step:
        step(f"reading {subject}")
        found = read_subject(subject, args)
        ends.append(time.perf_counter())
        step("planning")
        seen = inspect_subject(found, options)
        ends.append(time.perf_counter())
        made = plan_program(found.name, seen.calls, seen.records, step)
        ends.append(time.perf_counter())
    if time_passes:
        Console(stderr=True).print(time_table(_times(ends, seen.calls)))
    if as_json:
        click.echo(json.dumps(made.to_json(), indent=1))
        return
    console = Console()
    console.width = max(console.width, WIDTH) if not console.is_terminal else console.width
    console.print(made)
    for line in made.notes():
        click.echo(line)


def _times(ends: list[float], calls: Iterable[Observed]) -> Part:
    """ends: of what comes before, reading, planning and counting."""
    read, planned, counted = (b - a for a, b in pairwise(ends))
    passes = parts_of(span for call in calls for span in call.spans)
    planning = part_of("trace, lower, plan", planned, passes)
    parts = Part("read", read), planning, Part("count launches, bytes, time", counted)
    return part_of("all", ends[-1] - ends[0], parts)
