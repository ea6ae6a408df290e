"""`python -m benchmarks latency`: how well the cost models know what is fast.

measure   times of the zoo's kernels, each alone; appended to a file, as many as a number of seconds allows
report    Spearman's correlation of the latency-evaluator with them, and what the quick evaluator's choices
          among plans of the suite lose
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.stats import spearmanr

from benchmarks import choices, machine
from benchmarks.lone_kernels import build, kernels_of, nbytes, seconds_per_call
from benchmarks.runner import Malloc
from benchmarks.zoo import cases
from jstitch.codegen.kernel_ir import Kernel
from jstitch.frontend.target import cpu_profile
from jstitch.options import CompileOptions
from jstitch.passes.base.context import Context
from jstitch.passes.base.profile import CPU
from jstitch.passes.schedule.latency import kernel_latency

BAR = 0.85
CLASSES = {"< 1 MiB": (0, 1 << 20), "1-16 MiB": (1 << 20, 1 << 24), "> 16 MiB": (1 << 24, 1 << 62)}
FEWEST = 200


@click.command("latency")
@click.option("--json", "json_path", type=click.Path(path_type=Path), required=True, help="Times go here.")
@click.option(
    "--seconds", default=40.0, show_default=True, help="Measure for at most so long; 0: report only."
)
@click.option("--choices/--no-choices", "judge", default=True, help="Compare choices among plans, too.")
def latency_command(json_path: Path, seconds: float, judge: bool) -> None:
    """Measure kernels that the file lacks, then report on all that it has."""
    if seconds > 0 and not Malloc.TUNED.environment.items() <= os.environ.items():
        raise SystemExit(subprocess.call([sys.executable, "-m", *_again()], env=_tuned()))
    console = Console()
    found = json.loads(json_path.read_text(encoding="utf-8")) if json_path.exists() else {}
    times: dict[str, float] = found.get("seconds", {})
    done: set[str] = set(found.get("cases", ()))
    kernels = _measure(times, done, seconds)
    text = json.dumps({"machine": machine.describe(), "cases": sorted(done), "seconds": times}, indent=1)
    json_path.write_text(text + "\n", encoding="utf-8")
    console.print(f"{len(times)} kernels measured, {len(cases()) - len(done)} cases to go")
    low = _report(console, times, kernels)
    costly = choices.report(console) if judge else False
    raise SystemExit(int((low and len(times) >= FEWEST) or costly))


def _again() -> list[str]:
    return ["benchmarks", "latency", *sys.argv[2:]]


def _tuned() -> dict[str, str]:
    """No page faults: the C library never gives memory back. It reads this when a process starts."""
    return {**os.environ, **Malloc.TUNED.environment}


def _measure(times: dict[str, float], done: set[str], seconds: float) -> dict[str, Kernel]:
    """Times of kernels of cases that are not done, until the time is up; the kernels of all done ones."""
    kernels: dict[str, Kernel] = {}
    end = time.perf_counter() + seconds
    for case in cases():
        if case.name not in done and time.perf_counter() >= end:
            continue
        made = kernels_of(case, CPU)
        if case.name not in done:
            times |= {name: seconds_per_call(build(kernel)) for name, kernel in made.items()}
            done.add(case.name)
        kernels |= made
    return kernels


def modelled(kernels: Mapping[str, Kernel]) -> dict[str, float]:
    """Seconds by the latency-evaluator, on this machine as it was calibrated, or on the shipped one."""
    context = Context(CompileOptions(), cpu_profile(CompileOptions()))
    return {name: kernel_latency(kernel, context).seconds for name, kernel in kernels.items()}


def spearman(times: Mapping[str, float], model: Mapping[str, float], names: Sequence[str]) -> float:
    """Of measured and modelled times of these kernels."""
    return float(spearmanr([times[n] for n in names], [model[n] for n in names]).statistic)


def _report(console: Console, times: Mapping[str, float], kernels: Mapping[str, Kernel]) -> bool:
    """Print the table; whether the correlation over all is below the bar."""
    model = modelled(kernels)
    table = Table(title="latency-evaluator against measured times of single kernels")
    for name in ("kernels", "count", "Spearman", "typical factor"):
        table.add_column(name, justify="right")
    for label, names in _groups(times, kernels):
        if len(names) > 2:
            off = np.exp(np.std([np.log(model[n] / times[n]) for n in names]))
            row = (f"{spearman(times, model, names):.3f}", f"{off:.2f}")
            table.add_row(label, str(len(names)), *row)
    console.print(table)
    names = [n for n in times if n in model]
    return len(names) > 2 and spearman(times, model, names) < BAR


def _groups(times: Mapping[str, float], kernels: Mapping[str, Kernel]) -> Iterator[tuple[str, list[str]]]:
    names = [n for n in times if n in kernels]
    yield "all", names
    yield "every second one", names[1::2]
    for label, (low, high) in CLASSES.items():
        yield label, [n for n in names if low <= nbytes(kernels[n]) < high]
