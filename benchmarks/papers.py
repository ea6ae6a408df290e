"""`python -m benchmarks papers`: kernels and bytes of the papers' workloads on an H200 that is not here.

For each workload, from XLA:GPU's own lists of launches, loop bodies as often as they turn: the launches that
are memory-intensive (kernels, copies, memsets) and the bytes that they move, as XLA compiles the program
alone and stitched by each planner. `least` is what one kernel for each computation would move
(jstitch/analysis/least.py).

FS-2021 (Table 2) has 38% of XLA's memory-intensive kernels left, 27.8% to 48.4%.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import jax
from rich.console import Console
from rich.table import Table

from benchmarks.machine import describe
from benchmarks.table import geometric_mean
from benchmarks.workloads.papers import PAPERS
from benchmarks.workloads.papers.paper import Paper
from jstitch.analysis import Analysis, AnalysisError, Side, analyze_each
from jstitch.options import PLANNERS, CompileOptions

Row = dict[str, Any]
LAUNCHES_MEAN = 0.45  # of XLA's
BYTES_MEAN = 1.2  # of the least
NAMES = tuple(name for name in PLANNERS if name != "auto")


def _names(_: click.Context, __: click.Parameter, text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names or not set(names) <= set(NAMES):
        raise click.BadParameter(f"expected some of {', '.join(NAMES)}, separated by commas, found {text!r}")
    return names


@click.command("papers")
@click.option("--filter", "pattern", default="", help="Only workloads whose name matches this expression.")
@click.option("--planner", "planners", default=",".join(NAMES), callback=_names, show_default=True)
@click.option("--target", default="h200", show_default=True, help="The GPU to compile for.")
@click.option(
    "--json", "path", type=click.Path(path_type=Path), help="Put the rows in this file, next to others."
)
def papers_command(pattern: str, planners: tuple[str, ...], target: str, path: Path | None) -> None:
    """Launches and bytes of the papers' workloads, by XLA:GPU on a machine without a GPU."""
    console = Console()
    console.width = max(console.width, 60 + 36 * len(planners))
    chosen = [paper for paper in PAPERS if re.search(pattern, paper.name)]
    if not chosen:
        raise click.UsageError(
            f"no workload matches {pattern!r}; there are {', '.join(p.name for p in PAPERS)}"
        )
    rows = []
    for paper in chosen:
        try:
            rows.append(measure(paper, planners, target))
        except AnalysisError as error:
            raise click.ClickException(f"{paper.name}: {error}") from None
        console.print(f"{paper.name}: {rows[-1]['seconds']:.0f} s")
        if path is not None:
            keep(path, rows[-1])
    show(console, rows, planners)
    raise SystemExit(int(any([not verdict(console, rows, planner) for planner in planners])))


def measure(paper: Paper, planners: Sequence[str], target: str = "h200") -> Row:
    """One row: the counts of XLA's program and of each planner's. Raises AnalysisError."""
    start, problem = time.perf_counter(), paper.shapes()
    jitted = jax.jit(problem.function, donate_argnums=problem.donate)
    options = [CompileOptions(planner=planner) for planner in planners]
    found = analyze_each(jitted, options, *problem.args, target=target)
    plain = found[0].plain
    return {
        "workload": paper.name,
        "source": paper.source,
        "target": target,
        "machine": describe(),
        "plain": counts(plain),
        "least": plain.least.total,
        "planners": {name: stitched(one) for name, one in zip(planners, found, strict=True)},
        "seconds": time.perf_counter() - start,
    }


def counts(side: Side) -> Row:
    """What one program launches and moves."""
    return {
        "launches": side.memory_launches,
        "bytes": side.bytes_moved,
        "all_bytes": side.all_bytes,
        "products": side.gemm_launches,
        "modelled_seconds": side.modelled_seconds,
        "unknown_loops": len(side.unknown_loops),
    }


def stitched(found: Analysis) -> Row:
    return counts(found.stitched) | {"reasons": list(found.reasons)}


def keep(path: Path, row: Row) -> None:
    """Put the row in the file, in place of an older one of its workload, whose other planners it takes on."""
    rows = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    older = next((r for r in rows if r["workload"] == row["workload"]), row)
    merged = row | {"planners": older["planners"] | row["planners"]}
    others = [r for r in rows if r["workload"] != row["workload"]]
    path.write_text(json.dumps([*others, merged], indent=1) + "\n", encoding="utf-8")


def show(console: Console, rows: Sequence[Row], planners: Sequence[str]) -> None:
    table = Table(
        title="memory-intensive launches and bytes; of XLA's: x, of the least: least", padding=(0, 0)
    )
    table.add_column("workload", no_wrap=True)
    heads = ["XLA", "MB", "least"]
    for planner in planners:
        heads += [planner, "x", "MB", "x", "least"]
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*_cells(row, planners))
    table.add_section()
    table.add_row(*_means(rows, planners))
    console.print(table)


def _cells(row: Row, planners: Sequence[str]) -> Iterator[str]:
    plain, least = row["plain"], row["least"]
    yield row["workload"]
    yield f"{plain['launches']:,}"
    yield f"{plain['bytes'] / 1e6:,.1f}"
    yield f"{plain['bytes'] / least:.2f}"
    for planner in planners:
        found = row["planners"][planner]
        yield f"{found['launches']:,}{'?' if found['unknown_loops'] else ''}"
        yield f"{launch_ratio(row, planner):.2f}"
        yield f"{found['bytes'] / 1e6:,.1f}"
        yield f"{byte_ratio(row, planner):.2f}"
        yield f"{excess(row, planner):.2f}"


def _means(rows: Sequence[Row], planners: Sequence[str]) -> Iterator[str]:
    mean = geometric_mean(row["plain"]["bytes"] / row["least"] for row in rows)
    yield from ("geometric mean", "", "", f"{mean:.2f}")
    for planner in planners:
        yield from ("", f"{geometric_mean(launch_ratio(row, planner) for row in rows):.2f}", "")
        yield f"{geometric_mean(byte_ratio(row, planner) for row in rows):.2f}"
        yield f"{geometric_mean(excess(row, planner) for row in rows):.2f}"


def launch_ratio(row: Row, planner: str) -> float:
    return float(row["planners"][planner]["launches"] / row["plain"]["launches"])


def byte_ratio(row: Row, planner: str) -> float:
    return float(row["planners"][planner]["bytes"] / row["plain"]["bytes"])


def moved_ratio(row: Row, planner: str) -> float:
    """Of bytes; of all bytes where kernels took products in, whose operands are counted on no side else."""
    own, theirs = row["planners"][planner], row["plain"]
    if own.get("products", 0) >= theirs.get("products", 0):
        return byte_ratio(row, planner)
    return float(own["all_bytes"] / theirs["all_bytes"])


def excess(row: Row, planner: str) -> float:
    """Bytes over the least."""
    return float(row["planners"][planner]["bytes"] / row["least"])


def verdict(console: Console, rows: Sequence[Row], planner: str) -> bool:
    """Print what the planner misses; whether it misses nothing."""
    missed = list(misses(rows, planner))
    for line in missed:
        console.print(f"[red]{planner}[/]: {line}")
    if not missed:
        console.print(f"{planner}: all bars held over {len(rows)} workloads")
    return not missed


def misses(rows: Sequence[Row], planner: str) -> Iterator[str]:
    """Every bar that is not held, with the number."""
    launches = geometric_mean(launch_ratio(row, planner) for row in rows)
    if not launches <= LAUNCHES_MEAN:
        yield f"launches are {launches:.2f} of XLA's in the mean, expected at most {LAUNCHES_MEAN}"
    moved = geometric_mean(excess(row, planner) for row in rows)
    if not moved <= BYTES_MEAN:
        yield f"bytes are {moved:.2f} of the least in the mean, expected at most {BYTES_MEAN}"
    for row in rows:
        if launch_ratio(row, planner) > 1:
            yield f"{row['workload']}: {launch_ratio(row, planner):.2f} of XLA's launches, expected at most 1"
        if moved_ratio(row, planner) > 1:
            yield f"{row['workload']}: {moved_ratio(row, planner):.3f} of XLA's bytes, expected at most 1"
        if row["planners"][planner]["unknown_loops"] != row["plain"]["unknown_loops"]:
            yield f"{row['workload']}: loops whose turns XLA knows without us, and not with us"
        for reason in row["planners"][planner]["reasons"]:
            yield f"{row['workload']}: not stitched: {reason}"
