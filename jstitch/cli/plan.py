"""`jstitch plan FILE.mlir|module:function`: what would be stitched, what that brings; saved, compared."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import click

from jstitch.cli.console import plain_console
from jstitch.cli.files import PINNED, REPRODUCER, InputError, make_options, planning_options, read_saved
from jstitch.cli.pass_times import Part, part_of, parts_of, time_table
from jstitch.cli.progress import progress
from jstitch.cli.subjects import ARGS, SUBJECT, inspect_subject, read_subject
from jstitch.errors import ParseError
from jstitch.frontend.observe import Observed
from jstitch.inspection.plan_diff import plan_diff
from jstitch.inspection.program_plan import ProgramPlan, plan_program
from jstitch.options import CompileOptions
from jstitch.plan_file import PlanFile, read_plan

WIDTH = 140
FILE = click.Path(dir_okay=False, path_type=Path)


@click.command("plan")
@SUBJECT
@ARGS
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@click.option("--time-passes", is_flag=True, help="Print where the time goes to stderr, as a tree.")
@REPRODUCER
@planning_options
@PINNED
@click.option("--save", type=FILE, help="Write the plan to this file, for `CompileOptions(plan=...)`.")
@click.option("--diff", type=FILE, help="Say what is not as in this saved plan; SUBJECT may be one, too.")
def plan(
    subject: str,
    args: str | None,
    as_json: bool,
    time_passes: bool,
    reproducer: str | None,
    target: str,
    planner: str,
    tune: str,
    pinned: str | None,
    save: Path | None,
    diff: Path | None,
) -> None:
    """Kernels that a program would get: launches and bytes before and after, memory, occupancy, time.

    SUBJECT is a StableHLO module (text or bytecode; '-' reads stdin), or a function: MODULE:FUNCTION or
    path/to/file.py:FUNCTION, which returns (f, args) or is f itself with --args. Nothing is compiled or run.
    With --diff, the status is 1 where anything differs.
    """
    before = None if diff is None else read_saved(diff)
    after = _saved(subject) if diff is not None and save is None else None
    if before is not None and after is not None:
        sys.exit(_show_diff(before, after, as_json))
    made = _planned(subject, args, make_options(target, planner, tune, pinned, reproducer), time_passes)
    if save is not None:
        _save(made, save)
    if before is not None:
        sys.exit(_show_diff(before, made.pins(), as_json))
    if save is None:
        _show(made, as_json)


def _planned(subject: str, args: str | None, options: CompileOptions, time_passes: bool) -> ProgramPlan:
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
        plain_console(stderr=True).print(time_table(_times(ends, seen.calls)))
    return made


def _saved(subject: str) -> PlanFile | None:
    """The plan that a file holds; None for another file, or none."""
    try:
        return read_plan(subject) if Path(subject).is_file() else None
    except (ParseError, OSError):
        return None


def _save(made: ProgramPlan, path: Path) -> None:
    try:
        made.save(path)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    click.echo(f"{path}: {len(made.patterns)} kernels", err=True)


def _show_diff(before: PlanFile, after: PlanFile, as_json: bool) -> int:
    """The command's status."""
    lines = plan_diff(before, after)
    text = "\n".join(lines) or "the plans are the same"
    click.echo(json.dumps({"same": not lines, "lines": lines}, indent=1) if as_json else text)
    return 1 if lines else 0


def _show(made: ProgramPlan, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(made.to_json(), indent=1))
        return
    plain_console(WIDTH).print(made)
    for line in made.notes():
        click.echo(line)


def _times(ends: list[float], calls: Iterable[Observed]) -> Part:
    """ends: of what comes before, reading, planning and counting."""
    read, planned, counted = (b - a for a, b in pairwise(ends))
    passes = parts_of(span for call in calls for span in call.spans)
    planning = part_of("trace, lower, plan", planned, passes)
    parts = Part("read", read), planning, Part("count launches, bytes, time", counted)
    return part_of("all", ends[-1] - ends[0], parts)
