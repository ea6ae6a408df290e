"""`python -m benchmarks ablation`: what each scheme, technique and pass brings: it alone is switched off.

For each planner and target, over the suite and the papers' workloads: on how many programs other kernels come
out, and launches, bytes, modelled time and the time to plan, each against the same planner with everything
on. Plans are made and lowered, not compiled; `--xla` also has XLA:GPU compile, without a device, and count
what differs, `--seconds` also measures the suite on this machine's CPU.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import jax
from rich.console import Console
from rich.table import Table

from benchmarks import machine, runner, timing
from benchmarks.planned import plan
from benchmarks.sides import Side, jax_jit, subject_jit
from benchmarks.suite import SIZES
from benchmarks.table import geometric_mean
from benchmarks.workload import Problem, Size
from benchmarks.workloads.papers import PAPERS
from jstitch.analysis import AnalysisError, analyze_each
from jstitch.errors import OptionError
from jstitch.options import OPTIONAL_PASSES, SCHEMES, CompileOptions

Row = dict[str, Any]
Programs = Mapping[str, Problem]
DEFAULT = "everything"
TARGETS = "cpu,h200"
MEMORY = ("sharing", "shrinking")
PARTS: Mapping[str, tuple[str, ...]] = {
    "auto": (
        "remote",
        "columns",
        "blocks",
        "tf32",
        "memory_order",
        "unroll_and_jam",
        "components",
        "chains",
        "recurrences",
        "sorts",
        *MEMORY,
        *(p for p in OPTIONAL_PASSES if p != "choose_schedules"),
    ),
    "fs2018": ("roofs", "footprints", "choose_schedules", *MEMORY),
    "fs2019": ("substitution", "seeds", "templates", *MEMORY),
    "fs2021": ("remote", "templates", "beams", "evaluator", *MEMORY),
}
"""What can be switched off in each planner, composition schemes apart."""


def variants(planner: str, pattern: str = "") -> dict[str, CompileOptions]:
    """By name, the one with everything first. pattern: of the others' names."""
    whole = CompileOptions(planner=planner, ask_seconds=0)
    found = {f"no {name}": whole.replace(without=(name,)) for name in PARTS[planner]}
    if planner in ("auto", "fs2021"):
        rest = {name: tuple(s for s in SCHEMES if s != name) for name in SCHEMES}
        found |= {f"no {name} composition": whole.replace(schemes=left) for name, left in rest.items()}
    return {DEFAULT: whole} | {n: o for n, o in found.items() if re.search(pattern, n)}


def _planners(_: click.Context, __: click.Parameter, text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names or not set(names) <= set(PARTS):
        raise click.BadParameter(f"expected some of {', '.join(PARTS)}, separated by commas, found {text!r}")
    return names


def _targets(_: click.Context, __: click.Parameter, text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        try:
            CompileOptions(target=name)
        except OptionError as error:
            raise click.BadParameter(str(error)) from None
    return names


@click.command("ablation")
@click.option("--filter", "pattern", default="", help="Only workloads whose name matches this expression.")
@SIZES
@click.option("--suite/--no-suite", default=True, help="The suite's workloads.")
@click.option("--papers/--no-papers", default=True, help="The papers' workloads, at their sizes.")
@click.option("--planner", "planners", default=",".join(PARTS), callback=_planners, show_default=True)
@click.option("--target", "targets", default=TARGETS, callback=_targets, show_default=True)
@click.option("--variant", default="", help="Only variants whose name matches this expression.")
@click.option("--xla", is_flag=True, help="Have XLA:GPU count what differs on a GPU.")
@click.option("--seconds", default=0.0, help="Measure on this machine's CPU: time per variant.")
@click.option("--json", "path", type=click.Path(path_type=Path), help="Write all rows here.")
def ablation_command(
    pattern: str,
    sizes: tuple[Size, ...],
    suite: bool,
    papers: bool,
    planners: tuple[str, ...],
    targets: tuple[str, ...],
    variant: str,
    xla: bool,
    seconds: float,
    path: Path | None,
) -> None:
    """What each scheme, technique and pass brings: kernels, launches, bytes, modelled time, planning time."""
    console = Console()
    console.width = max(console.width, 120)
    programs = _programs(pattern, sizes if suite else (), papers)
    if not programs:
        raise click.UsageError(f"no workload matches '{pattern}'; see `run --list`")
    rows: list[Row] = []
    for planner in planners:
        chosen = variants(planner, variant)
        for target in targets:
            found = _rows(console, programs, chosen, planner, target, xla, seconds)
            console.print(_table(f"{planner}, {target}: {len(programs)} programs", summary(found)))
            rows += found
        idle = without_effect([row for row in rows if row["planner"] == planner])
        console.print(f"{planner}: changes nothing anywhere: {', '.join(idle) or 'none of them'}")
    if path:
        result = {"machine": machine.describe(), "rows": rows}
        path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def _programs(pattern: str, sizes: Sequence[Size], papers: bool) -> dict[str, Problem]:
    """Workloads of the suite, and of the papers, by name."""
    workloads = [w for family in runner.select(pattern).values() for w in family]
    found = {f"{w.name}, {size.value}": w.problem(size) for w in workloads for size in sizes}
    chosen = [paper for paper in PAPERS if papers and re.search(pattern, paper.name)]
    return found | {paper.name: paper.shapes() for paper in chosen}


def _rows(
    console: Console,
    programs: Programs,
    options: Mapping[str, CompileOptions],
    planner: str,
    target: str,
    xla: bool,
    seconds: float,
) -> list[Row]:
    rows: list[Row] = []
    plan(
        next(iter(programs.values())), options[DEFAULT].replace(target=target)
    )  # imports what planning needs
    for name, problem in programs.items():
        planned = {v: plan(problem, chosen.replace(target=target)) for v, chosen in options.items()}
        whole = planned[DEFAULT]
        changed = {v: (p.digest, p.launches) != (whole.digest, whole.launches) for v, p in planned.items()}
        more: dict[str, Row] = {v: {} for v in options}
        differ = {v: options[v] for v in options if v == DEFAULT or changed[v]}
        if xla and target != "cpu":
            more |= _counted(console, problem, differ, target)
        if seconds and target == "cpu" and not _is_shape(problem):
            more |= _measured(problem, differ, seconds)
        about = {"program": name, "planner": planner, "target": target}
        for v, numbers in planned.items():
            rows.append({**about, "variant": v, "changed": changed[v], **asdict(numbers), **more[v]})
    return rows


def _is_shape(problem: Problem) -> bool:
    return any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(problem.args))


def _counted(
    console: Console, problem: Problem, options: Mapping[str, CompileOptions], target: str
) -> dict[str, Row]:
    """Memory-intensive launches and bytes, as XLA:GPU's own compiler lists them."""
    try:
        found = analyze_each(jax_jit(problem), tuple(options.values()), *problem.args, target=target)
    except AnalysisError as error:
        console.print(f"not counted for {target}: {str(error).splitlines()[0]}")
        return {}
    sides = {name: analysis.stitched for name, analysis in zip(options, found, strict=True)}
    return {n: {"xla_launches": s.memory_launches, "xla_nbytes": s.bytes_moved} for n, s in sides.items()}


def _measured(problem: Problem, options: Mapping[str, CompileOptions], seconds: float) -> dict[str, Row]:
    """Measured seconds on the CPU, all variants in turn."""
    steps = {n: timing.JaxStep(subject_jit(problem, Side.JSTITCH, o), problem) for n, o in options.items()}
    for step in steps.values():
        step()
    timings = dict(zip(steps, timing.alone(list(steps.values()), seconds), strict=True))
    return {n: {"measured": t.median} for n, t in timings.items()}


COLUMNS = {
    "launches": "launches",
    "nbytes": "bytes",
    "seconds": "modelled time",
    "on_chip": "on-chip bytes",
    "planning": "time to plan",
    "xla_launches": "launches (XLA:GPU)",
    "xla_nbytes": "bytes (XLA:GPU)",
    "measured": "measured time",
}


def summary(rows: Sequence[Row]) -> list[Row]:
    """One row a variant: programs that change, kernels, and each number over that with everything on.

    The means are geometric, over all programs; those of counts and measurements over those that changed.
    """
    base = {row["program"]: row for row in rows if row["variant"] == DEFAULT}
    found = []
    for variant in dict.fromkeys(row["variant"] for row in rows):
        mine = [row for row in rows if row["variant"] == variant]
        ratios = {
            column: [
                row[column] / base[row["program"]][column]
                for row in mine
                if column in row and base[row["program"]].get(column)
            ]
            for column in COLUMNS
        }
        means = {c: geometric_mean(r for r in values if r > 0) for c, values in ratios.items() if values}
        worst = max(ratios["seconds"], default=1.0)
        counts = {"changed": sum(r["changed"] for r in mine), "kernels": sum(r["kernels"] for r in mine)}
        found.append({"variant": variant, **counts, **means, "worst": worst})
    return found


def without_effect(rows: Sequence[Row]) -> list[str]:
    """Variants with which the same kernels come out of every program, on every target."""
    changed = {row["variant"] for row in rows if row["changed"]}
    return [v for v in dict.fromkeys(row["variant"] for row in rows) if v not in changed and v != DEFAULT]


def _table(title: str, rows: Sequence[Row]) -> Table:
    table = Table(title=title)
    table.add_column("variant", no_wrap=True)
    heads = {"changed": "programs that change", "kernels": "kernels", **COLUMNS, "worst": "modelled, at most"}
    shown = [column for column in heads if any(column in row for row in rows)]
    for column in shown:
        table.add_column(heads[column], justify="right")
    for row in rows:
        table.add_row(row["variant"], *(_number(row.get(column)) for column in shown))
    return table


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.3f}"
