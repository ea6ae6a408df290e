"""`python -m benchmarks compile`: seconds to compile the suite and the papers' programs, and to plan.

Each side is a process of its own, which compiles all programs in turn: `jax.jit`, `jstitch.jit` with an empty
cache folder, and `jstitch.jit` with what the cold one left there.
"""

from __future__ import annotations

import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import jax
from rich.console import Console
from rich.table import Table

from benchmarks import planner_time
from benchmarks.sides import Side, jax_jit, subject_jit
from benchmarks.workload import Problem, Size
from benchmarks.workloads import SUITE
from benchmarks.workloads.papers import PAPERS

Seconds = dict[str, float]
"""Of each program, by its name."""

COLD, WARM = "cold", "warm"


def problems(pattern: str) -> Iterator[tuple[str, Problem]]:
    """The programs whose names match, the suite's and the papers', in small sizes."""
    wanted = re.compile(pattern)
    for workload in (w for group in SUITE.values() for w in group):
        if wanted.search(workload.name):
            yield workload.name, workload.problem(Size.L2)
    for paper in PAPERS:
        if wanted.search(f"papers/{paper.name}"):
            yield f"papers/{paper.name}", paper.small()


def compile_seconds(problem: Problem, side: Side) -> float:
    """Seconds to trace, lower and compile the problem once."""
    jitted: Any = jax_jit(problem) if side is Side.JAX else subject_jit(problem, side)
    start = time.perf_counter()
    jitted.lower(*problem.args).compile()
    return time.perf_counter() - start


def _all_seconds(pattern: str, side: Side) -> Seconds:
    # JAX's own start-up (backend, first tiny compile) belongs to neither side
    jax.jit(lambda x: x + 1)(1.0).block_until_ready()
    return {name: compile_seconds(problem, side) for name, problem in problems(pattern)}


def _in_child(side: Side, pattern: str, cache: str) -> Seconds:
    command = [sys.executable, "-m", "benchmarks", "compile", "--child", side.value, "--filter", pattern]
    environment = {**os.environ, "JSTITCH_CACHE_DIR": cache}
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run(command, env=environment, cwd=root, stdout=subprocess.PIPE, text=True, check=True)
    found: Seconds = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(rounds: int, pattern: str, side: Side) -> dict[str, list[Seconds]]:
    """Of the three ways, one after the other in every round."""
    samples: dict[str, list[Seconds]] = {"jax": [], COLD: [], WARM: []}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as cache:
            samples["jax"].append(_in_child(Side.JAX, pattern, cache))
            samples[COLD].append(_in_child(side, pattern, cache))
            samples[WARM].append(_in_child(side, pattern, cache))
    return samples


@click.command("compile")
@click.option("--rounds", default=3, help="Processes per side.")
@click.option("--filter", "pattern", default="", help="Only programs whose name matches this expression.")
@click.option("--side", type=click.Choice([s.value for s in Side]), default="jstitch")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write the result here.")
@click.option("--planner/--no-planner", default=True, help="Time the planner on synthetic graphs.")
@click.option("--child", type=click.Choice([s.value for s in Side]), hidden=True)
def compile_command(
    rounds: int, pattern: str, side: str, json_path: Path | None, planner: bool, child: str | None
) -> None:
    """Compile time, cold and warm, and the planner's time against graph size."""
    if child:
        click.echo(json.dumps(_all_seconds(pattern, Side(child))))
        return
    medians = {way: _medians(found) for way, found in measure(rounds, pattern, Side(side)).items()}
    _show(medians, side)
    result: dict[str, Any] = {"jax": jax.__version__, "cpus": os.cpu_count(), "seconds": medians}
    if planner:
        result["planner"] = planner_time.report()
    if json_path:
        json_path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def _medians(rounds: Sequence[Seconds]) -> Seconds:
    return {name: statistics.median(found[name] for found in rounds) for name in rounds[0]}


def _show(medians: dict[str, Seconds], side: str) -> None:
    table = Table(title="compile time")
    for name in ("", "jax.jit, s", f"{side}.jit, empty cache", "filled"):
        table.add_column(name, justify="left" if not name else "right")
    base = medians["jax"]
    ratios = {way: {name: medians[way][name] / base[name] for name in base} for way in (COLD, WARM)}
    for name, seconds in base.items():
        table.add_row(name, f"{seconds:.3f}", *(f"{ratios[way][name]:.2f}" for way in ratios))
    table.add_section()
    means = (math.exp(statistics.fmean(map(math.log, found.values()))) for found in ratios.values())
    table.add_row("geometric mean", "", *(f"{mean:.2f}" for mean in means))
    table.add_row("worst", "", *(f"{max(found.values()):.2f}" for found in ratios.values()))
    sums = [sum(found.values()) for found in medians.values()]
    table.add_row("all", f"{sums[0]:.3f}", *(f"{total / sums[0]:.2f}" for total in sums[1:]))
    Console().print(table)
