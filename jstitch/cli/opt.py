"""`jstitch opt FILE.mlir`: run passes on a module and print what comes out, with mlir-opt's habits."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, TextIO

import click

from jstitch.cli.completion import complete_passes
from jstitch.cli.console import plain_console
from jstitch.cli.emit import EMIT, NEED_A_PLAN, NEED_KERNELS
from jstitch.cli.files import (
    FILE,
    OUTPUT,
    REPRODUCER,
    bad_input,
    make_options,
    planning_options,
    read_module,
    target_of,
)
from jstitch.cli.pass_job import Done, Job, run_job
from jstitch.cli.pass_times import Part, part_of, time_table
from jstitch.cli.pipeline_text import parse_pipeline
from jstitch.cli.progress import progress
from jstitch.cli.rerun import rerun
from jstitch.cli.run_passes import Watch
from jstitch.errors import ParseError
from jstitch.options import CompileOptions
from jstitch.passes.base.named_pass import NamedPass
from jstitch.passes.named_passes import NAMES, default_passes
from jstitch.passes.schedule.kernel_passes import kernel_passes

NAME = click.Choice(NAMES)


def _pipeline(_: click.Context, __: click.Parameter, text: str | None) -> tuple[NamedPass, ...] | None:
    if text is None:
        return None
    try:
        return parse_pipeline(text)
    except ParseError as error:
        raise click.BadParameter(" ".join(str(error).split())) from None


@click.command("opt")
@FILE
@OUTPUT
@click.option(
    "--passes",
    callback=_pipeline,
    shell_complete=complete_passes,
    help="a,b{option=1 other=2},c. Default: all that --emit needs.",
)
@click.option("--print-before", multiple=True, type=NAME, metavar="PASS", help="To stderr, before it runs.")
@click.option("--print-after", multiple=True, type=NAME, metavar="PASS", help="To stderr, after it ran.")
@click.option("--print-after-all", is_flag=True, help="To stderr, after every pass.")
@click.option("--verify-each", is_flag=True, help="Check the graph, plans or kernels after every pass.")
@click.option("--stop-after", type=NAME, metavar="PASS", help="Run no pass after this one.")
@click.option("--time-passes", is_flag=True, help="Print where the time goes to stderr, as a tree.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object: the passes with times, and the text.")
@click.option(
    "--emit",
    type=click.Choice([*EMIT]),
    help="What to print; default: plan after a planner, else graph. mlir: the graph as StableHLO; stitched:"
    " with kernels as custom calls.",
)
@click.option("--templates", type=click.IntRange(1), default=1, help="Schedules tried per kernel.")
@click.option("--template", type=click.File(), help="A file with schedules that kernels must have.")
@REPRODUCER
@click.option("--run-reproducer", is_flag=True, help="FILE is such a file: run again what failed.")
@planning_options
def opt(
    file: Path,
    output: TextIO,
    passes: tuple[NamedPass, ...] | None,
    print_before: tuple[str, ...],
    print_after: tuple[str, ...],
    print_after_all: bool,
    verify_each: bool,
    stop_after: str | None,
    time_passes: bool,
    as_json: bool,
    emit: str | None,
    templates: int,
    template: TextIO | None,
    reproducer: str | None,
    run_reproducer: bool,
    target: str,
    planner: str,
    tune: str,
) -> None:
    """Run passes on a StableHLO module (text or bytecode; '-' reads stdin) and print the result.

    `jstitch passes` lists them. Graph passes come first, then a planner, passes on its plan, and passes on
    the kernels that its patterns become.
    """
    if run_reproducer:
        rerun(file)
        return
    begun = time.perf_counter()
    given = None if template is None else template.read()
    options = make_options(target, planner, tune, reproducer=reproducer).replace(templates=templates)
    with bad_input("--template"):
        options = options.replace(template=given)
    options = options.replace(verify=verify_each or options.verify)
    chosen = _until(_default(options, emit) if passes is None else passes, stop_after)
    watch = Watch(print_before, NAMES if print_after_all else print_after, options.verify)
    with progress(len(chosen) + 2) as step:
        step(f"read {file}")
        module = read_module(file)
        read = Part("read", time.perf_counter() - begun)
        with bad_input(str(file)):
            done = run_job(module, Job(chosen, options, watch, emit), step)
    times = part_of("all", time.perf_counter() - begun, (read, *done.parts))
    if time_passes and not as_json:
        plain_console(stderr=True).print(time_table(times))
    click.echo(_json(done, times, emit) if as_json else done.text, file=output)


def _default(options: CompileOptions, emit: str | None) -> tuple[NamedPass, ...]:
    """All that is needed to print it."""
    planned = default_passes(options.planner if emit in NEED_A_PLAN else None)
    kernels = kernel_passes(target_of(options).profile.machine) if emit in NEED_KERNELS else ()
    return tuple(p for p in (*planned, *kernels) if p.name not in options.without)


def _until(passes: tuple[NamedPass, ...], last: str | None) -> tuple[NamedPass, ...]:
    places = [n for n, p in enumerate(passes, 1) if p.name == last]
    return passes[: places[0]] if places else passes


def _json(done: Done, times: Part, emit: str | None) -> str:
    passes: list[dict[str, Any]] = [
        {"name": t.name, "ms": t.seconds * 1e3, t.kind: t.left} for t in done.times
    ]
    found = {"passes": passes, "times": times.to_json(), "emit": emit, "text": done.text}
    return json.dumps(found, indent=1)
