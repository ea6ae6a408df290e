"""`jstitch opt FILE.mlir`: run passes on a module and print what comes out, with mlir-opt's habits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

import click
from rich.console import Console
from rich.table import Table

from jstitch.cli.files import FILE, OUTPUT, InputError, make_options, planning_options, read_graph, target_of
from jstitch.codegen.print_kernel import print_kernel
from jstitch.errors import VerifyError
from jstitch.frontend.custom_call import emit_kernel
from jstitch.frontend.dump import Dump
from jstitch.frontend.exporter import export_module
from jstitch.frontend.graph_picture import draw_graph
from jstitch.frontend.rewrite import stitch_graph
from jstitch.ir.graph import Graph, Op
from jstitch.ir.ops import KERNEL
from jstitch.ir.printer import print_graph
from jstitch.ir.verify import check
from jstitch.options import CompileOptions
from jstitch.passes.pipeline import PIPELINE, Pass, Step, StopPipeline, frames, run
from jstitch.passes.plan_frame import plan_frame
from jstitch.passes.print_plan import print_plan
from jstitch.passes.profile import using

NAMES = tuple(p.name for p in PIPELINE)


def _passes(_: click.Context, __: click.Parameter, text: str | None) -> tuple[Pass, ...]:
    if text is None:
        return PIPELINE
    known = {p.name: p for p in PIPELINE}
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise click.BadParameter(f"no pass is called {', '.join(unknown)}; `jstitch passes` lists them")
    return tuple(known[name] for name in names)


@click.command("opt")
@FILE
@OUTPUT
@click.option("--passes", callback=_passes, help="Names, separated by commas, in order. Default: all.")
@click.option("--print-before", multiple=True, type=click.Choice(NAMES), help="To stderr, before this pass.")
@click.option("--print-after", multiple=True, type=click.Choice(NAMES), help="To stderr, after this pass.")
@click.option("--print-after-all", is_flag=True, help="To stderr, after every pass.")
@click.option("--verify-each", is_flag=True, help="Check the graph after every pass.")
@click.option("--stop-after", type=click.Choice(NAMES), help="Run no pass after this one.")
@click.option("--time-passes", is_flag=True, help="Print each pass's time to stderr.")
@click.option(
    "--emit",
    type=click.Choice(["graph", "plan", "kernels", "source", "mlir", "stitched", "dot"]),
    default="graph",
    help="What to print; default: graph. mlir: the passes' result; stitched: with kernels as custom calls.",
)
@planning_options
def opt(
    file: Path,
    output: TextIO,
    passes: tuple[Pass, ...],
    print_before: tuple[str, ...],
    print_after: tuple[str, ...],
    print_after_all: bool,
    verify_each: bool,
    stop_after: str | None,
    time_passes: bool,
    emit: str,
    target: str,
    planner: str,
    tune: str,
) -> None:
    """Run passes on a StableHLO module (text or bytecode; '-' reads stdin) and print the result."""
    options = make_options(target, planner, tune)
    printed = NAMES if print_after_all else print_after
    watch = _Watch(read_graph(file), print_before, printed, verify_each, stop_after, time_passes)
    with using(target_of(options).profile):
        graph = run(watch.graph, _announced(passes, watch), watch.after)
        watch.finish()
        click.echo(EMIT[emit](graph, options), file=output)


class _Watch:
    """What happens between passes."""

    def __init__(
        self,
        graph: Graph,
        before: tuple[str, ...],
        after: tuple[str, ...],
        verify: bool,
        stop: str | None,
        time: bool,
    ) -> None:
        self.graph, self.stop, self.verify, self.time = graph, stop, verify, time
        self.printed_before, self.printed_after = before, after
        self.times: list[tuple[str, float, int]] = []

    def before(self, name: str, graph: Graph) -> None:
        if name in self.printed_before:
            click.echo(f"// -- before {name}\n{print_graph(graph)}", err=True)

    def after(self, step: Step) -> None:
        if self.verify:
            try:
                check(step.graph, step.name)
            except VerifyError as error:
                raise InputError(str(error)) from None
        if step.name in self.printed_after:
            click.echo(f"// -- after {step.name}\n{print_graph(step.graph)}", err=True)
        self.times.append((step.name, step.seconds, sum(1 for _ in step.graph.walk())))
        if step.name == self.stop:
            raise StopPipeline

    def finish(self) -> None:
        if self.time:
            Console(stderr=True).print(_time_table(self.times))


def _announced(passes: tuple[Pass, ...], watch: _Watch) -> tuple[Pass, ...]:
    """The passes, each of which shows the graph that it is given first."""

    def announced(p: Pass) -> Pass:
        def show_and_run(graph: Graph) -> Graph:
            watch.before(p.name, graph)
            return p.run(graph)

        return Pass(p.name, show_and_run)

    return tuple(map(announced, passes))


def _time_table(times: list[tuple[str, float, int]]) -> Table:
    table = Table(title="passes")
    for name in ("pass", "ms", "ops after"):
        table.add_column(name, justify="left" if name == "pass" else "right")
    for name, seconds, ops in times:
        table.add_row(name, f"{seconds * 1e3:.2f}", str(ops))
    table.add_row("all", f"{sum(s for _, s, _ in times) * 1e3:.2f}", "")
    return table


# -- what is printed --------------------------------------------------------------------------------------


def _plan(graph: Graph, options: CompileOptions) -> str:
    plans = (print_plan(plan_frame(frame, options)) for frame in frames(graph))
    return "\n".join(f"frame {n}\n{text}" for n, text in enumerate(plans))


def _stitched(graph: Graph, options: CompileOptions) -> Graph:
    backend = target_of(options).backend
    return stitch_graph(graph, options, "kernel", Dump(None, (), True), backend, {})


def _kernel_ops(graph: Graph, options: CompileOptions) -> Iterator[Op]:
    return (op for op in _stitched(graph, options).walk() if op.name == KERNEL)


def _kernels(graph: Graph, options: CompileOptions) -> str:
    return "\n".join(print_kernel(op.attrs["kernel"]) for op in _kernel_ops(graph, options))


def _source(graph: Graph, options: CompileOptions) -> str:
    return "\n".join(op.attrs["text"] for op in _kernel_ops(graph, options))


def _custom_calls(graph: Graph, options: CompileOptions) -> str:
    return str(export_module(_stitched(graph, options), emit_kernel=emit_kernel))


EMIT: dict[str, Callable[[Graph, CompileOptions], Any]] = {
    "graph": lambda graph, options: print_graph(graph),
    "plan": _plan,
    "kernels": _kernels,
    "source": _source,
    "mlir": lambda graph, options: export_module(graph),
    "stitched": _custom_calls,
    "dot": lambda graph, options: draw_graph(graph, [plan_frame(f, options) for f in frames(graph)]),
}
