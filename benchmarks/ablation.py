"""`python -m benchmarks ablation`: what each scheme, technique and planner brings (the papers' tables).

For each variant and workload: kernels, bytes and modelled time on an H200 that is not here, as XLA:GPU's own
compiler lists them (where the `analyze` extra is installed), and the measured time on this machine's CPU. At
the end the geometric means over the workloads, each against the default options.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

import jstitch
from benchmarks import machine, runner, timing
from benchmarks.sides import Side, jax_jit, subject_jit
from benchmarks.suite import SIZES
from benchmarks.table import geometric_mean
from benchmarks.workload import Problem, Size, Workload
from jstitch.analysis import AnalysisError, analyze_each
from jstitch.options import OPTIONAL_PASSES, PLANNERS, SCHEMES, TECHNIQUES, CompileOptions

Row = dict[str, Any]
DEFAULT = "default"
XLA = "XLA alone"


def variants(pattern: str = "") -> dict[str, CompileOptions]:
    """By name, the default first. pattern: of the others' names."""
    found = {DEFAULT: CompileOptions()}
    for scheme in SCHEMES:
        found[f"no {scheme}"] = CompileOptions(schemes=tuple(s for s in SCHEMES if s != scheme))
    found["no warp, no block"] = CompileOptions(schemes=("packing", "thread"))
    found |= {f"no {name}": CompileOptions(without=(name,)) for name in (*TECHNIQUES, *OPTIONAL_PASSES)}
    found["16 templates"] = CompileOptions(templates=16)
    found |= {f"planner {name}": CompileOptions(planner=name) for name in PLANNERS if name != "auto"}
    return {n: o for n, o in found.items() if n == DEFAULT or re.search(pattern, n)}


@click.command("ablation")
@click.option("--filter", "pattern", default="", help="Only workloads whose name matches this expression.")
@SIZES
@click.option("--variant", default="", help="Only variants whose name matches this expression.")
@click.option("--seconds", default=0.3, help="Time per variant of a workload.")
@click.option("--cpu/--no-cpu", default=True, help="Measure on this machine's CPU.")
@click.option("--gpu/--no-gpu", default=True, help="Count for an H200, without one.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write all rows here.")
def ablation_command(
    pattern: str,
    sizes: tuple[Size, ...],
    variant: str,
    seconds: float,
    cpu: bool,
    gpu: bool,
    json_path: Path | None,
) -> None:
    """Kernels, bytes, modelled and measured time with each scheme, technique and pass switched off."""
    console = Console()
    console.width = max(console.width, 120)
    workloads = [w for family in runner.select(pattern).values() for w in family]
    if not workloads:
        raise click.UsageError(f"no workload matches '{pattern}'; see `run --list`")
    rows: list[Row] = []
    for workload in workloads:
        for size in sizes:
            found = _rows(console, workload, size, variants(variant), seconds if cpu else 0.0, gpu)
            rows += found
            console.print(_table(f"{workload.name}, {size.value}", found))
    console.print(_table("geometric means against the default", _means(rows)))
    if json_path:
        result = {"machine": machine.describe(), "seconds": seconds, "rows": rows}
        json_path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def _rows(
    console: Console,
    workload: Workload,
    size: Size,
    options: Mapping[str, CompileOptions],
    seconds: float,
    gpu: bool,
) -> list[Row]:
    problem = workload.problem(size)
    found: dict[str, Row] = {name: {} for name in (XLA, *options)}
    if gpu:
        for name, row in _counted(console, problem, options).items():
            found[name] |= row
    if seconds:
        for name, row in _measured(problem, options, seconds).items():
            found[name] |= row
    return [{"workload": workload.name, "size": size.value, "variant": n, **row} for n, row in found.items()]


def _counted(console: Console, problem: Problem, options: Mapping[str, CompileOptions]) -> dict[str, Row]:
    """Memory-intensive launches, megabytes and modelled microseconds on an H200."""
    jitted = jax_jit(problem)
    try:
        found = analyze_each(jitted, tuple(options.values()), *problem.args, target="h200")
    except AnalysisError as error:
        console.print(f"not counted for an H200: {str(error).splitlines()[0]}")
        return {}
    analyses = dict(zip(options, found, strict=True))
    sides = {XLA: found[0].plain} | {name: analysis.stitched for name, analysis in analyses.items()}
    return {
        name: {
            "gpu_launches": side.memory_launches,
            "gpu_megabytes": side.bytes_moved / 1e6,
            "gpu_modelled_us": side.modelled_seconds * 1e6,
        }
        for name, side in sides.items()
    }


def _measured(problem: Problem, options: Mapping[str, CompileOptions], seconds: float) -> dict[str, Row]:
    """Kernels of ours and measured microseconds on the CPU, all variants in turn."""
    steps, kernels = {XLA: timing.JaxStep(jax_jit(problem), problem)}, {XLA: 0}
    for name, chosen in options.items():
        since = jstitch.record_count()
        steps[name] = timing.JaxStep(subject_jit(problem, Side.JSTITCH, chosen), problem)
        steps[name]()
        kernels[name] = jstitch.stitch_count(since)
    timings = dict(zip(steps, timing.alone(list(steps.values()), seconds), strict=True))
    return {n: {"cpu_kernels": kernels[n], "cpu_us": t.median * 1e6} for n, t in timings.items()}


COLUMNS = {
    "gpu_launches": "launches, H200",
    "gpu_megabytes": "MB, H200",
    "gpu_modelled_us": "modelled us, H200",
    "cpu_kernels": "our kernels, CPU",
    "cpu_us": "measured us, CPU",
}


def _means(rows: Sequence[Row]) -> list[Row]:
    """Each number over the default's of the same workload and size; of kernels, their mean number."""
    base = {(r["workload"], r["size"]): r for r in rows if r["variant"] == DEFAULT}
    found: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        against = base[row["workload"], row["size"]]
        for column in COLUMNS:
            if column in row:
                value = row[column] if column == "cpu_kernels" else row[column] / max(against[column], 1e-9)
                found.setdefault(row["variant"], {}).setdefault(column, []).append(value)
    mean = {c: statistics.fmean if c == "cpu_kernels" else geometric_mean for c in COLUMNS}
    return [
        {"variant": name, **{c: mean[c](values) for c, values in columns.items()}}
        for name, columns in found.items()
    ]


def _table(title: str, rows: Sequence[Row]) -> Table:
    table = Table(title=title)
    table.add_column("variant")
    shown = [column for column in COLUMNS if any(column in row for row in rows)]
    for column in shown:
        table.add_column(COLUMNS[column], justify="right")
    for row in rows:
        table.add_row(row["variant"], *(_number(row.get(column)) for column in shown))
    return table


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.2f}" if value < 100 else f"{value:.0f}"
