"""`python -m benchmarks run`: the whole suite, or a part of it."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import machine, measure, runner, table, twins
from benchmarks.device import Device, NoGpuError, describe_gpu, use
from benchmarks.measure import Settings
from benchmarks.runner import Job, Malloc
from benchmarks.sides import Side
from benchmarks.workload import Size
from benchmarks.workloads import SUITE
from jstitch.options import TUNES

Row = dict[str, Any]
WAYS = ("interleaved", "alone")
TABLE_WIDTH = 132


def parse_sizes(context: click.Context, parameter: click.Parameter, text: str) -> tuple[Size, ...]:
    try:
        return tuple(Size(name.strip()) for name in text.split(","))
    except ValueError as error:
        raise click.BadParameter(f"expected a list of l2, l3, dram: {error}") from None


SIZES = click.option("--sizes", default="l2,l3,dram", callback=parse_sizes, help="Working-set sizes.")
SECONDS = click.option("--seconds", default=2.0, help="Time per workload and size.")
SIDE = click.option(
    "--side", type=click.Choice([s.value for s in Side]), default="jstitch",
    help="What to compare with jax.jit; 'jax' compares it with itself: the noise of this machine.",
)  # fmt: skip


@click.command("run")
@click.option("--filter", "pattern", default="", help="Only workloads whose name matches this expression.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write all results here.")
@SIZES
@SECONDS
@SIDE
@click.option("--device", type=click.Choice([d.value for d in Device]), default="cpu", help="Where to run.")
@click.option("--malloc", type=click.Choice(["default", "tuned", "both"]), default="both")
@click.option("--alone/--interleaved", "alone", default=None, help="Only this way of timing; default: both.")
@click.option("--torch/--no-torch", default=True, help="Time the torch.compile twins, if torch is there.")
@click.option(
    "--tune", type=click.Choice(TUNES), help="CompileOptions.tune; default: JSTITCH_TUNE, else model."
)
@click.option("--fail-below", default=0.0, help="Exit with status 1 when any ratio is lower.")
@click.option("--list", "only_list", is_flag=True, help="Print the workloads and their shapes.")
def run_command(
    pattern: str,
    json_path: Path | None,
    sizes: tuple[Size, ...],
    seconds: float,
    side: str,
    device: str,
    malloc: str,
    alone: bool | None,
    torch: bool,
    tune: str | None,
    fail_below: float,
    only_list: bool,
) -> None:
    """Time every workload under jax.jit and jstitch.jit, results checked first."""
    console = Console()
    console.width = max(console.width, TABLE_WIDTH)
    families = runner.select(pattern)
    if tune is not None:
        os.environ["JSTITCH_TUNE"] = tune  # of the child processes
    if only_list:
        _list(console, families)
        return
    if not families:
        raise click.UsageError(f"no workload matches '{pattern}'; see --list")
    settings = Settings(Side(side), sizes, seconds, interleaved=alone is not True, alone=alone is not False)
    gpu = _gpu() if Device(device) is Device.CUDA else {}
    if gpu:
        malloc = Malloc.DEFAULT.value
    mallocs = tuple(Malloc) if malloc == "both" else (Malloc(malloc),)
    no_torch = twins.why_unavailable(cuda=bool(gpu))
    if torch and no_torch:
        console.print(f"torch.compile twins skipped: {no_torch}")
    result = _measure(console, runner.jobs(families, mallocs, torch and not no_torch), settings, gpu)
    table.show(console, result["rows"], result["copy_bytes_per_second"])
    if json_path:
        json_path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    compares = settings.side is Side.JSTITCH
    raise SystemExit(verdict(console, result["rows"], fail_below, compares))


def _gpu() -> Row:
    """What the GPU is, with all children told to use it; an error where there is none."""
    try:
        found = describe_gpu()
    except NoGpuError as error:
        raise click.ClickException(str(error)) from None
    use(Device.CUDA)
    return found


def _measure(console: Console, jobs: Sequence[Job], settings: Settings, gpu: Row) -> Row:
    described = machine.describe() | gpu
    copy = gpu.get("copy") or {size.value: machine.copy_bandwidth(size) for size in settings.sizes}
    console.print(
        f"{described.get('gpu', described['cpu'])}, {described['cores']} cores, {described['packages']}"
    )
    console.print("copy bandwidth: " + ", ".join(f"{size} {b / 1e9:.0f} GB/s" for size, b in copy.items()))
    rows, twin_rows = collect(console, jobs, settings)
    summary = {
        way: {"all": mean(rows, way), **{s.value: mean(rows, way, size=s.value) for s in settings.sizes}}
        for way in WAYS
    }
    return {
        "machine": described,
        "seconds": settings.seconds,
        "side": settings.side.value,
        "copy_bytes_per_second": copy,
        "geometric_means": summary,
        "rows": runner.merge(rows, twin_rows),
    }


def collect(console: Console, jobs: Sequence[Job], settings: Settings) -> tuple[list[Row], list[Row]]:
    """Rows of the jobs, and of their twins."""
    rows: list[Row] = []
    twin_rows: list[Row] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        total = sum(len(job.workloads) * len(settings.sizes) for job in jobs)
        task = progress.add_task("", total=total)
        for job in jobs:
            progress.update(task, description=str(job))
            for row in runner.run_job(job, settings):
                (twin_rows if job.twins else rows).append(row)
                progress.advance(task)
    return rows, twin_rows


def mean(rows: Sequence[Row], way: str, **where: str) -> dict[str, float | None]:
    mallocs = dict.fromkeys(row["malloc"] for row in rows)
    means = {m: table.geometric_mean(table.ratios(rows, way, malloc=m, **where)) for m in mallocs}
    return {malloc: None if math.isnan(mean) else mean for malloc, mean in means.items()}


def verdict(console: Console, rows: Sequence[Row], fail_below: float, compares: bool = True) -> int:
    """Exit status: 1 after a failed workload, or a ratio, timed either way, under `fail_below`.

    Also when nothing at all was stitched, unless jax.jit was compared with itself (not `compares`).
    """
    slow = [
        (row, way) for row in rows for way in WAYS if way in row and row[way]["ratio"] < fail_below
    ]  # fmt: skip
    for row, way in slow:
        what = f"{row['workload']} {row['size']}, {row['malloc']} malloc, {way}"
        console.print(f"[red]{what}: {row[way]['ratio']:.2f} < {fail_below}[/]")
    nothing = compares and _nothing_stitched(rows)
    if nothing:
        console.print(
            f"[red]no kernel was stitched in any of {len(rows)} measurements: both sides are XLA's own[/]\n"
            "  next: set JSTITCH_STRICT=1 for a traceback, JSTITCH_DUMP_DIR=<folder> for the reasons"
        )
    return int(bool(slow) or nothing or any("error" in row for row in rows))


def _nothing_stitched(rows: Sequence[Row]) -> bool:
    """Whether jstitch.jit was measured and left every workload to XLA."""
    counts = [row["stitched_kernels"] for row in rows if "stitched_kernels" in row]
    return bool(counts) and not any(counts)


def _list(console: Console, families: dict[str, tuple[Any, ...]]) -> None:
    for family, workloads in families.items():
        for workload in workloads:
            shapes = ", ".join(f"{size.value} {shape}" for size, shape in workload.shapes.items())
            console.print(
                f"{family}: [bold]{workload.name}[/]: {shapes}{', torch' if workload.torch else ''}"
            )


@click.command("child", hidden=True)
@click.argument("family")
@click.option("--workload", "names", multiple=True)
@SIZES
@SECONDS
@SIDE
@click.option("--only", type=click.Choice(WAYS))
@click.option("--twins", "torch", is_flag=True)
def child_command(
    family: str,
    names: tuple[str, ...],
    sizes: tuple[Size, ...],
    seconds: float,
    side: str,
    only: str | None,
    torch: bool,
) -> None:
    """Measure part of a family in this process (what `run` starts)."""
    workloads = tuple(w for w in SUITE[family] if not names or w.name in names)
    settings = Settings(Side(side), sizes, seconds, only != "alone", only != "interleaved")
    measure.emit((measure.torch_twins if torch else measure.compare)(workloads, settings))
