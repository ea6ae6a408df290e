"""`jstitch opt FILE.mlir`: run passes on a module and print what comes out, with mlir-opt's habits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

import click
from rich.console import Console
from rich.table import Table

from jstitch.cli.completion import complete_passes
from jstitch.cli.files import (
    FILE,
    OUTPUT,
    bad_input,
    make_options,
    planning_options,
    read_module,
    target_of,
)
from jstitch.cli.pipeline_text import parse_pipeline
from jstitch.cli.progress import progress
from jstitch.cli.run_passes import State, Timed, Watch
from jstitch.codegen.print_kernel import print_kernel
from jstitch.errors import ParseError
from jstitch.frontend.custom_call import emit_kernel
from jstitch.frontend.dump import Dump
from jstitch.frontend.exporter import export_module
from jstitch.frontend.graph_picture import draw_graph
from jstitch.frontend.importer import entry_function, import_module
from jstitch.frontend.lowering import donation_map
from jstitch.frontend.mlir import ir
from jstitch.frontend.rewrite import given_memory, stitch_graph
from jstitch.frontend.target import Target
from jstitch.ir.graph import Graph, Op
from jstitch.ir.ops import KERNEL
from jstitch.ir.printer import print_graph
from jstitch.passes.base.context import Context, Returned
from jstitch.passes.base.named_pass import NamedPass
from jstitch.passes.named_passes import NAMES, default_passes
from jstitch.passes.schedule.kernel_passes import kernel_passes

NAME = click.Choice(NAMES)


@dataclass(frozen=True)
class Subject:
    """What is printed: the state that the passes left, and where it stands."""

    state: State
    context: Context
    target: Target
    returned: Returned


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
@click.option("--time-passes", is_flag=True, help="Print each pass's time to stderr.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object: the passes with times, and the text.")
@click.option(
    "--emit",
    type=click.Choice(["graph", "plan", "kernels", "source", "mlir", "stitched", "dot"]),
    help="What to print; default: plan after a planner, else graph. mlir: the graph as StableHLO; stitched:"
    " with kernels as custom calls.",
)
@click.option("--templates", type=click.IntRange(1), default=1, help="Schedules tried per kernel.")
@click.option("--template", type=click.File(), help="A file with schedules that kernels must have.")
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
    target: str,
    planner: str,
    tune: str,
) -> None:
    """Run passes on a StableHLO module (text or bytecode; '-' reads stdin) and print the result.

    `jstitch passes` lists them. Graph passes come first, then a planner, passes on its plan, and passes on
    the kernels that its patterns become.
    """
    given = None if template is None else template.read()
    options = make_options(target, planner, tune).replace(templates=templates)
    with bad_input("--template"):
        options = options.replace(template=given)
    target_ = target_of(options)
    if passes is None:
        planned = default_passes(options.planner if emit in _NEED_A_PLAN else None)
        kernels = kernel_passes(target_.profile.machine) if emit in _NEED_KERNELS else ()
        passes = tuple(p for p in (*planned, *kernels) if p.name not in options.without)
    passes = _until(passes, stop_after)
    watch = Watch(print_before, NAMES if print_after_all else print_after, verify_each)
    with progress(len(passes) + 2) as step:
        step(f"read {file}")
        module = read_module(file)
        with bad_input(str(file)):
            returned = _returned(module)
            context = Context(options, target_.profile, returned)
            state = State(import_module(module))
            for p in passes:
                step(p.name)
                state = watch.run(p, state, context)
            step(f"print {emit or ''}")
            text = _text(Subject(state, context, target_, returned), emit)
    if time_passes and not as_json:
        Console(stderr=True).print(_time_table(watch.times))
    click.echo(_json(watch.times, emit, text) if as_json else text, file=output)


def _returned(module: ir.Module) -> Returned:
    """Whose memory the arguments and results of a whole program are."""
    arguments = list(entry_function(module).regions[0].blocks[0].arguments)
    return Returned(range(len(arguments)), donation_map(arguments))


def _until(passes: tuple[NamedPass, ...], last: str | None) -> tuple[NamedPass, ...]:
    places = [n for n, p in enumerate(passes, 1) if p.name == last]
    return passes[: places[0]] if places else passes


# -- what is printed --------------------------------------------------------------------------------------


def _text(subject: Subject, emit: str | None) -> str:
    emit = emit or ("plan" if subject.state.planning else "graph")
    if emit in _NEED_A_PLAN:
        subject = _planned(subject)
    return EMIT[emit](subject)


def _planned(subject: Subject) -> Subject:
    """With plans, of the planner that the options name where no pass has made any."""
    state = subject.state
    if state.planning:
        return subject
    planning = default_passes(subject.context.options.planner)[len(default_passes(None)) :]
    for p in (*planning, *kernel_passes(subject.context.machine)):
        state = state.after(p, subject.context)
    return replace(subject, state=state)


def _stitched(subject: Subject) -> Graph:
    state, context = subject.state, subject.context
    return stitch_graph(
        *(state.graph, context, "kernel", Dump(None, (), True), subject.target.backend),
        given_memory(state.graph, subject.returned.homes),
        planner=lambda frame, _: state.plan(frame, context),
        scheduling=state.scheduling,
    )


def _kernel_ops(subject: Subject) -> Iterator[Op]:
    return (op for op in _stitched(subject).walk() if op.name == KERNEL)


def _kernels(subject: Subject) -> str:
    return "\n".join(print_kernel(op.attrs["kernel"]) for op in _kernel_ops(subject))


def _source(subject: Subject) -> str:
    return "\n".join(op.attrs["text"] for op in _kernel_ops(subject))


EMIT: dict[str, Callable[[Subject], str]] = {
    "graph": lambda subject: print_graph(subject.state.graph),
    "plan": lambda subject: str(subject.state),
    "kernels": _kernels,
    "source": _source,
    "mlir": lambda subject: str(export_module(subject.state.graph)),
    "stitched": lambda subject: str(export_module(_stitched(subject), emit_kernel=emit_kernel)),
    "dot": lambda subject: draw_graph(subject.state.graph, subject.state.plans),
}
_NEED_KERNELS = ("kernels", "source", "stitched")
_NEED_A_PLAN = ("plan", "dot", *_NEED_KERNELS)


def _time_table(times: Sequence[Timed]) -> Table:
    table = Table("pass", title="passes")
    for name in ("ms", "left"):
        table.add_column(name, justify="right")
    for t in times:
        table.add_row(t.name, f"{t.seconds * 1e3:.2f}", f"{t.left} {t.kind}")
    table.add_row("all", f"{sum(t.seconds for t in times) * 1e3:.2f}", "")
    return table


def _json(times: Sequence[Timed], emit: str | None, text: str) -> str:
    passes: list[dict[str, Any]] = [{"name": t.name, "ms": t.seconds * 1e3, t.kind: t.left} for t in times]
    return json.dumps({"passes": passes, "emit": emit, "text": text}, indent=1)
