"""`python -m benchmarks compile`: seconds to compile a transformer block's training step, and to plan.

Each sample is a new process: `jax.jit`, `jstitch.jit` with an empty kernel cache, `jstitch.jit` with the
cache that the cold run left.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click
import jax
from rich.console import Console
from rich.table import Table

from benchmarks import planner_time
from benchmarks.sides import Side, jax_jit, subject_jit
from benchmarks.workload import Size
from benchmarks.workloads.transformer import SHAPES, training_step

Seconds = dict[str, list[float]]


def compile_seconds(side: Side) -> float:
    """Seconds to trace, lower and compile the step once, in this process."""
    problem = training_step(*SHAPES[Size.L3])
    # JAX's own start-up (backend, first tiny compile) belongs to neither side
    warm_up = jax.jit(lambda x: x + 1)(problem.args[2])
    warm_up.block_until_ready()
    jitted: Any = jax_jit(problem) if side is Side.JAX else subject_jit(problem, side)
    start = time.perf_counter()
    jitted.lower(*problem.args).compile()
    return time.perf_counter() - start


def _in_child(side: Side, cache: str) -> float:
    command = [sys.executable, "-m", "benchmarks", "compile", "--child", side.value]
    environment = {**os.environ, "JSTITCH_CACHE_DIR": cache}
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run(command, env=environment, cwd=root, stdout=subprocess.PIPE, text=True, check=True)
    return float(json.loads(done.stdout.splitlines()[-1]))


def measure(rounds: int, side: Side) -> Seconds:
    """Samples of all three cases, in turn."""
    samples: Seconds = {"jax": [], "cold": [], "warm": []}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as cache:
            samples["jax"].append(_in_child(Side.JAX, cache))
            samples["cold"].append(_in_child(side, cache))
            samples["warm"].append(_in_child(side, cache))
    return samples


@click.command("compile")
@click.option("--rounds", default=3, help="Processes per case.")
@click.option("--side", type=click.Choice([s.value for s in Side]), default="jstitch")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write the result here.")
@click.option("--planner/--no-planner", default=True, help="Time the planner on synthetic graphs.")
@click.option("--child", type=click.Choice([s.value for s in Side]), hidden=True)
def compile_command(rounds: int, side: str, json_path: Path | None, planner: bool, child: str | None) -> None:
    """Compile time, cold and warm, and the planner's time against graph size."""
    if child:
        click.echo(json.dumps(compile_seconds(Side(child))))
        return
    samples = measure(rounds, Side(side))
    _show(samples, side)
    result: dict[str, Any] = {"seconds": samples}
    if planner:
        result["planner"] = planner_time.report()
    if json_path:
        json_path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def _show(samples: Seconds, side: str) -> None:
    table = Table(title="compile time of a transformer block training step")
    for name in ("", "median s", "min s", "x jax.jit"):
        table.add_column(name, justify="right")
    base = statistics.median(samples["jax"])
    names = {"jax": "jax.jit", "cold": f"{side}.jit, no cache", "warm": f"{side}.jit, warm cache"}
    for case, name in names.items():
        median = statistics.median(samples[case])
        table.add_row(name, f"{median:.2f}", f"{min(samples[case]):.2f}", f"{median / base:.2f}")
    Console().print(table)
