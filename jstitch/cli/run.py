"""`jstitch run FILE.mlir --inputs in.npz --output out.npz --compare --bisect`: XLA's version against ours."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from jstitch.cli import differences
from jstitch.cli.differences import Report
from jstitch.cli.files import InputError, bad_input
from jstitch.cli.progress import progress
from jstitch.cli.subjects import ARGS, SUBJECT, FunctionSubject, ModuleSubject, read_subject, their_code
from jstitch.frontend.mlir import ir
from jstitch.inspection.arrays import read_arrays, write_arrays
from jstitch.inspection.bisect import Culprit, bisect
from jstitch.inspection.evidence import range_of
from jstitch.inspection.execute import Arrays, ExecutionError, program_of_graph, random_arguments
from jstitch.inspection.experiment import Experiment, Source, device_of
from jstitch.inspection.lowered import lower_function
from jstitch.inspection.reproducer import INPUTS, MODULE, Reproducer, write_reproducer
from jstitch.inspection.subject import platform_of
from jstitch.ir.graph import Graph
from jstitch.options import PLANNERS, TUNES, CompileOptions

FILE = click.Path(path_type=Path)


@dataclass(frozen=True)
class _Asked:
    """The command line."""

    subject: str
    args: str | None
    inputs: Path | None
    random: int | None
    output: Path | None
    by: str
    compare: bool
    bisect: bool
    reproducer: Path | None
    planner: str
    tune: str

    @property
    def options(self) -> CompileOptions:
        return CompileOptions(planner=self.planner, tune=self.tune)

    @property
    def command(self) -> list[str]:
        """The same program on the same arguments again."""
        words = ["jstitch", "run", self.subject]
        words += ["--args", self.args] if self.args is not None else []
        words += ["--inputs", str(self.inputs)] if self.inputs is not None else []
        words += ["--random", str(self.random)] if self.random is not None else []
        words += ["--planner", self.planner] if self.planner != "auto" else []
        return [*words, "--tune", self.tune] if self.tune != "model" else words


@click.command("run")
@SUBJECT
@ARGS
@click.option("--inputs", type=FILE, help=".npz file: arr_0, arr_1, ... (as numpy.savez) or arg0, arg1, ...")
@click.option(
    "--random",
    type=click.IntRange(min=0),
    metavar="SEED",
    help="Random arguments: floats normally distributed, or in [0.1, 1) where that gives NaN.",
)
@click.option("--output", type=FILE, help="Write the results to this .npz file, as arr_0, arr_1, ...")
@click.option(
    "--by", type=click.Choice(["ours", "xla"]), default="ours", help="Whose results; default: ours."
)
@click.option("--compare", is_flag=True, help="Compare ours with XLA's; exit status 1 if they differ.")
@click.option("--bisect", "bisecting", is_flag=True, help="Find the pass or kernel that makes them differ.")
@click.option("--reproducer", type=FILE, metavar="DIR", help="With --bisect: write a small program there.")
@click.option("--planner", type=click.Choice(PLANNERS), default="auto")
@click.option("--tune", type=click.Choice([t for t in TUNES if t != "measure"]), default="model")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def run(as_json: bool, compare: bool, bisecting: bool, **given: Any) -> None:
    """Run a program on this machine, as XLA's own and stitched as `jstitch.jit` would, and compare them.

    Results are the same when integers and bools are equal and the error of every float, against the program
    in float64, is at most twice XLA's own plus one ulp; NaN and infinities stand where XLA's stand.

    In .npz files bfloat16, float8 and 4-bit arrays are raw bytes, as NumPy writes them.
    """
    asked = _Asked(compare=compare or bisecting, bisect=bisecting, **given)
    if asked.reproducer is not None and not bisecting:
        raise click.UsageError("--reproducer needs --bisect")
    if asked.inputs is not None and asked.random is not None:
        raise click.UsageError("--inputs and --random are two things: give one of them")
    report = _run(asked)
    click.echo(json.dumps(differences.as_json(report), indent=1)) if as_json else differences.show(report)
    if report.comparison is not None and not report.comparison.same:
        raise click.exceptions.Exit(1)


def _run(asked: _Asked) -> Report:
    with progress() as advance:
        advance(f"reading {asked.subject}")
        experiment = _experiment(asked, advance)
        if asked.by == "xla" and not asked.compare:
            return _report(asked, experiment, experiment.expected)
        advance("stitching")
        with _stitching(asked.subject):
            ours = experiment.ours
        comparison = culprit = reproducer = None
        if asked.compare:
            advance("the program in float64")
            comparison = experiment.judge(ours)
        if asked.bisect and comparison is not None and not comparison.same:
            with _stitching(asked.subject):
                culprit = bisect(experiment, advance)
        if culprit is not None and asked.reproducer is not None:
            advance(f"writing {asked.reproducer}")
            with bad_input(str(asked.reproducer)), _stitching(str(asked.reproducer)):
                reproducer = write_reproducer(culprit, experiment, asked.reproducer)
        results = experiment.expected if asked.by == "xla" else ours
        report = _report(asked, experiment, results)
    kernels = len(experiment.kernels)
    return replace(
        report,
        kernels=kernels,
        comparison=comparison,
        culprit=culprit,
        dump=None if culprit is None else _dump_command(asked, culprit),
        reproducer=None if reproducer is None else _again(asked, reproducer),
    )


def _report(asked: _Asked, experiment: Experiment, results: list[np.ndarray] | str) -> Report:
    """Of a run alone; its results are written where they are asked for."""
    if isinstance(results, str):
        if not asked.compare:
            raise click.ClickException(f"{asked.subject}: the stitched program does not run: {results}")
        return Report(asked.subject, experiment.device.platform, ())
    if asked.output is not None:
        with bad_input(str(asked.output)):
            write_arrays(asked.output, results)
    return Report(asked.subject, experiment.device.platform, tuple(map(range_of, results)))


@contextmanager
def _stitching(subject: str) -> Iterator[None]:
    """What the pipeline raises, in one line: `jit` would warn and leave the program to XLA."""
    try:
        yield
    except (InputError, OSError, ExecutionError):
        raise
    except Exception as error:
        said = " ".join(str(error).split())
        raise click.ClickException(
            f"{subject}: stitching raised {type(error).__name__}: {said}; JSTITCH_DUMP_DIR=<folder> keeps the"
            " stages before"
        ) from error


# -- what is run --------------------------------------------------------------------------------------------


def _experiment(asked: _Asked, advance: Callable[[str], None]) -> Experiment:
    """The program with its arguments, after XLA's own version ran on them."""
    module, given = _module(asked)
    with bad_input(asked.subject):
        graph, device = Source.of(module).graph, device_of(asked.options)
        program_of_graph(graph)
    if asked.inputs is not None:
        with bad_input(str(asked.inputs)):
            given = read_arrays(asked.inputs, [v.tensor for v in graph.inputs])
    advance("XLA's own version")
    if given is None and asked.random is not None:
        return _on_random_arguments(asked, module, graph, device)
    if given is None and graph.inputs:
        raise InputError(
            f"{asked.subject}: it takes {len(graph.inputs)} arguments: --inputs or --random SEED"
        )
    return _tried(asked, module, given or [])


def _module(asked: _Asked) -> tuple[ir.Module, Arrays | None]:
    match read_subject(asked.subject, asked.args):
        case ModuleSubject(_, module):
            return module, None
        case FunctionSubject(name, f, args, kwargs):
            with bad_input(name), their_code(name):
                module, given = lower_function(f, args, kwargs, platform_of(asked.options))
            return module, None if asked.random is not None else given


def _tried(asked: _Asked, module: ir.Module, args: Arrays) -> Experiment:
    experiment = Experiment(module, args, asked.options)
    with bad_input(asked.subject):
        _ = experiment.expected
    return experiment


def _on_random_arguments(asked: _Asked, module: ir.Module, graph: Graph, device: Any) -> Experiment:
    assert asked.random is not None
    experiment = _tried(asked, module, random_arguments(graph, asked.random, device))
    if not any(range_of(result).nans for result in experiment.expected):
        return experiment
    return _tried(asked, module, random_arguments(graph, asked.random, device, positive=True))


# -- what to type next --------------------------------------------------------------------------------------


def _dump_command(asked: _Asked, culprit: Culprit) -> str:
    """Shows what the culprit did."""
    if culprit.kind == "pass" and Path(asked.subject).is_file():
        name = culprit.name
        return shlex.join(
            [
                "jstitch",
                "opt",
                asked.subject,
                "--print-before",
                name,
                "--print-after",
                name,
                "--stop-after",
                name,
            ]
        )
    return f"JSTITCH_DUMP_DIR=dump {shlex.join(asked.command)}"


def _again(asked: _Asked, reproducer: Reproducer) -> differences.Again:
    module, inputs = (str(reproducer.folder / name) for name in (MODULE, INPUTS))
    shown = replace(asked, subject=module, inputs=Path(inputs), random=None, args=None)
    shown = replace(shown, tune=reproducer.tune or asked.tune)
    command = shlex.join([*shown.command, "--compare"])
    return differences.Again(str(reproducer.folder), command, reproducer.tune is not None)
