"""What `jstitch run` prints."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import click
from rich.table import Table

from jstitch.cli.console import plain_console
from jstitch.inspection.bisect import Culprit, KernelEvidence
from jstitch.inspection.compare import SHARES, Comparison, OutputComparison
from jstitch.inspection.evidence import Range

WIDTH = 180
MOST_OPS = 40  # of a kernel, that are listed


@dataclass(frozen=True)
class Again:
    """A reproducer. shows: whether the command finds the difference again."""

    folder: str
    command: str
    shows: bool


@dataclass(frozen=True)
class Report:
    """One run. ranges: of the results that were asked for. kernels: in the stitched program, None where it
    did not run. dump: the command that shows what the culprit did."""

    subject: str
    platform: str
    ranges: tuple[Range, ...]
    kernels: int | None = None
    comparison: Comparison | None = None
    culprit: Culprit | None = None
    dump: str | None = None
    reproducer: Again | None = None


def as_json(report: Report) -> dict[str, Any]:
    """Numbers that JSON has no name for are null."""
    culprit = report.culprit
    found = {
        "subject": report.subject,
        "platform": report.platform,
        "kernels": report.kernels,
        "outputs": [asdict(r) for r in report.ranges],
        "comparison": report.comparison and report.comparison.as_dict(),
        "culprit": culprit
        and {
            "kind": culprit.kind,
            "name": culprit.name,
            "frame": culprit.frame or (culprit.kernel.frame if culprit.kernel else ""),
            "complaint": culprit.comparison.complaint,
            "kernel": culprit.kernel and asdict(culprit.kernel),
            "dump": report.dump,
        },
        "reproducer": report.reproducer and asdict(report.reproducer),
    }
    return {key: _plain(value) for key, value in found.items()}


def _plain(value: Any) -> Any:
    match value:
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case float() if not math.isfinite(value):
            return None
    return value


def show(report: Report) -> None:
    """To standard output."""
    kernels = "" if report.kernels is None else f", {report.kernels} kernels"
    click.echo(f"{report.subject} on {report.platform}{kernels}")
    if report.kernels == 0:
        click.echo("nothing is stitched: no pattern is expected to pay (--tune off stitches all that can be)")
    if report.comparison is None:
        for number, range_ in enumerate(report.ranges):
            click.echo(f"output {number}: {range_}")
        return
    _show_comparison(report.comparison)
    if report.culprit is not None:
        _show_culprit(report.culprit)
        click.echo(f"look at it: {report.dump}")
    if report.reproducer is not None:
        _show_again(report.reproducer)


def _show_comparison(comparison: Comparison) -> None:
    if comparison.failure is not None:
        click.echo(f"DIFFERENT: the stitched program does not run: {comparison.failure}")
        return
    plain_console(WIDTH).print(_table(comparison))
    for output in comparison.outputs:
        if output.wrong is not None:
            click.echo(f"output {output.number}: {output.wrong}")
    verdict = "same" if comparison.same else "DIFFERENT"
    click.echo(f"{verdict}, by the numerics rule; errors are against {comparison.reference}")


def _table(comparison: Comparison) -> Table:
    table = Table()
    shares = (f">{n}" for n in SHARES)
    names = (
        "output",
        "type",
        "differ",
        "max abs",
        "max rel",
        "max ulp",
        "median",
        *shares,
        "NaN/inf",
        "first at",
    )
    for name in (*names, "XLA's error", "our error", ""):
        table.add_column(name, justify="right", no_wrap=True)
    for output in comparison.outputs:
        table.add_row(*_row(output))
    return table


def _row(output: OutputComparison) -> list[str]:
    ulps = output.ulps
    steps = ["", "", *("" for _ in SHARES)]
    if ulps is not None:
        steps = [_number(ulps.most), _number(ulps.median), *(f"{ulps.above[n]:.2%}" for n in SHARES)]
    return [
        str(output.number),
        output.type,
        str(output.differing),
        _number(output.max_abs),
        _number(output.max_rel),
        *steps,
        str(output.nans + output.infs),
        "" if output.first is None else str(list(output.first.index)),
        _number(output.xla_error),
        _number(output.our_error),
        "same" if output.wrong is None else "DIFFERENT",
    ]


def _number(x: float | None) -> str:
    return "" if x is None else f"{x:.3g}"


_WHAT = {
    "import": "reading the module into the Graph and writing it again",
    "pass": "the pass",
    "planning": "the planner's step",
    "kernel": "the kernel",
}


def _show_culprit(culprit: Culprit) -> None:
    name = "" if culprit.kind == "import" else f" {culprit.name}"
    where = f", on the kernels of {culprit.frame}" if culprit.frame else ""
    click.echo(f"\n{_WHAT[culprit.kind]}{name} makes the difference{where}")
    click.echo(f"with it: {culprit.comparison.complaint}")
    _show_who_is_right(culprit.comparison)
    if culprit.kernel is not None:
        _show_kernel(culprit.kernel)


def _show_who_is_right(comparison: Comparison) -> None:
    wrong = next((o for o in comparison.outputs if o.wrong is not None and o.nearer is not None), None)
    if wrong is None:
        return
    who = "XLA" if wrong.nearer == "xla" else "ours"
    errors = f"XLA's error is {_number(wrong.xla_error)}, ours {_number(wrong.our_error)}"
    click.echo(f"nearer to {comparison.reference}: {who} (output {wrong.number}: {errors})")


def _show_kernel(kernel: KernelEvidence) -> None:
    click.echo(f"in {kernel.frame}")
    if kernel.together:
        click.echo("alone it does no harm: it takes the kernels before it, too")
    if kernel.in_place:
        click.echo("only where it writes its results in the memory of its arguments (alias_donated)")
    for name, loc in kernel.ops[:MOST_OPS]:
        click.echo(f"  {name}  {loc}")
    if len(kernel.ops) > MOST_OPS:
        click.echo(f"  ... {len(kernel.ops) - MOST_OPS} more ops")
    if kernel.inputs is None:
        click.echo("what it was given cannot be had: it is part of a loop's condition")
    for number, range_ in enumerate(kernel.inputs or ()):
        click.echo(f"  input {number}: {range_}")


def _show_again(again: Again) -> None:
    click.echo(f"reproducer in {again.folder}: {again.command}")
    if not again.shows:
        click.echo("the small program alone does not differ: the fault needs the program around it")
