"""`python -m benchmarks async`: a training loop under jax.jit, jstitch.jit, and jit(async_compile=True).

Each sample is a new process with an empty kernel cache. The first step is what a user waits for before
anything happens; the last ones show whether the swap gave the full speed.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import jax
from rich.console import Console
from rich.table import Table

import jstitch
from benchmarks.workload import Size
from benchmarks.workloads.transformer import SHAPES, training_step

CASES = ("jax.jit", "jstitch.jit", "async")
LAST = 20  # steps timed after the swap
LIMIT = 120.0  # seconds to wait for it


@dataclass(frozen=True)
class Loop:
    """Seconds: of the first step; the slowest step after it; until the swap; the median step after that."""

    first: float
    slowest: float
    swapped: float
    last: float


def run_loop(case: str) -> Loop:
    """Train in this process."""
    problem = training_step(*SHAPES[Size.L3])
    jax.jit(lambda x: x + 1)(problem.args[2]).block_until_ready()  # JAX's own start-up
    options = jstitch.CompileOptions(async_compile=case == "async")
    settings: dict[str, Any] = {"donate_argnums": problem.donate}
    if case == "jax.jit":
        step: Any = jax.jit(problem.function, **settings)
    else:
        step = jstitch.jit(problem.function, options=options, **settings)
    args, start = problem.fresh_args(), time.perf_counter()
    seconds: list[float] = []

    def advance() -> None:
        nonlocal args
        begin = time.perf_counter()
        args = problem.next_args(args, jax.block_until_ready(step(*args)))
        seconds.append(time.perf_counter() - begin)

    advance()
    while case == "async" and not step.wait(0) and time.perf_counter() - start < LIMIT:
        advance()
    swapped = time.perf_counter() - start
    for _ in range(LAST):
        advance()
    return Loop(seconds[0], max(seconds[1:]), swapped, statistics.median(seconds[-LAST + 1 :]))


def _in_child(case: str) -> Loop:
    command = [sys.executable, "-m", "benchmarks", "async", "--child", case]
    root = Path(__file__).resolve().parents[1]
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "JSTITCH_CACHE_DIR": cache}
        done = subprocess.run(
            command, env=environment, cwd=root, stdout=subprocess.PIPE, text=True, check=True
        )
    return Loop(**json.loads(done.stdout.splitlines()[-1]))


@click.command("async")
@click.option("--rounds", default=3, help="Processes per case.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write the result here.")
@click.option("--child", type=click.Choice(CASES), hidden=True)
def async_command(rounds: int, json_path: Path | None, child: str | None) -> None:
    """First step and later steps of a training loop that compiles in the background."""
    if child:
        click.echo(json.dumps(asdict(run_loop(child))))
        return
    samples: dict[str, list[Loop]] = {case: [] for case in CASES}
    for _ in range(rounds):
        for case in CASES:
            samples[case].append(_in_child(case))
    medians = {case: _median(loops) for case, loops in samples.items()}
    _show(medians)
    if json_path:
        rows = {case: [asdict(loop) for loop in loops] for case, loops in samples.items()}
        json_path.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def _median(loops: list[Loop]) -> Loop:
    columns = zip(*(asdict(loop).values() for loop in loops), strict=True)
    return Loop(*map(statistics.median, columns))


def _show(medians: dict[str, Loop]) -> None:
    table = Table(title="training loop of a transformer block, empty kernel cache (medians)")
    for name in (
        "",
        "first step s",
        "x jax.jit",
        "swap after s",
        "slowest later ms",
        "last steps ms",
        "speed-up",
    ):
        table.add_column(name, justify="right")
    base = medians["jax.jit"]
    for case, loop in medians.items():
        ratios = f"{loop.first / base.first:.2f}", f"{base.last / loop.last:.2f}"
        times = f"{loop.swapped:.1f}", f"{loop.slowest * 1e3:.1f}", f"{loop.last * 1e3:.2f}"
        table.add_row(case, f"{loop.first:.2f}", ratios[0], *times, ratios[1])
    Console().print(table)
