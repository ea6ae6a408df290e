"""`python -m benchmarks kernels`: the kernels of drawn programs, each raced against XLA's code for its ops.

What is slower is printed, and how far the models are off: the gate's of both sides, and the
latency-evaluator's of ours. A whole program hides one slow kernel among others; here each stands alone.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import click
import jax
import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.stats import spearmanr

from benchmarks import machine
from benchmarks.grammar.draw import programs
from benchmarks.grammar.program import Program
from benchmarks.table import geometric_mean
from jstitch.codegen.cpu.backend import CpuBackend
from jstitch.frontend.custom_call import emit_kernel
from jstitch.frontend.dump import Dump
from jstitch.frontend.importer import import_module
from jstitch.frontend.measure import Measurer, Rivals
from jstitch.frontend.measured_gate import both_versions, turns_of
from jstitch.frontend.probe import make_program
from jstitch.frontend.probe_inputs import describe_arguments
from jstitch.frontend.rewrite import stitch_graph
from jstitch.frontend.target import cpu_profile
from jstitch.options import CompileOptions
from jstitch.passes.base.context import Context
from jstitch.passes.base.plan import FusionPattern, Reason
from jstitch.passes.fuse.gate import judge
from jstitch.passes.pipeline import run
from jstitch.passes.schedule.latency import kernel_latency
from jstitch.runtime.tuning_session import UnmeasuredError

MOST_BYTES = 1 << 28  # of arguments, results and temporaries


@dataclass(frozen=True)
class Raced:
    """Microseconds. gate, gate_xla: as the gate models both sides; latency: as the evaluator models ours."""

    number: int
    program: str
    kernel: str
    ops: int
    gate: float
    latency: float
    ours: float
    gate_xla: float
    xla: float

    @property
    def ratio(self) -> float:
        return self.xla / self.ours

    def __str__(self) -> str:
        models = f"gate: {self.gate_xla:.1f}, {self.gate:.1f}; evaluator: {self.latency:.1f}"
        times = f"{self.ratio:.2f}x  {self.xla:.1f} -> {self.ours:.1f} us ({models})"
        return f"{self.number}: {times}  {self.kernel}, {self.ops} ops of {self.program}"


class Racing:
    """A gate that keeps every kernel, and races it."""

    def __init__(self, number: int, program: Program, context: Context, seconds: float) -> None:
        self.number, self.program, self.context, self.seconds = number, program, context, seconds
        self.measurer = Measurer(jax.local_devices(backend="cpu")[0])
        self.found: list[Raced] = []

    def keeps(self, pattern: FusionPattern, attrs: Mapping[str, Any]) -> bool:
        model = judge(pattern, self.context.profile)
        turns = turns_of(model)
        plain, stitched, donated = both_versions(pattern, attrs)
        both = make_program(plain), make_program(stitched, emit_kernel)
        try:
            rivals = Rivals(both, describe_arguments(plain), donated, turns)
            race = self.measurer.race(rivals, self.seconds, MOST_BYTES)
        except UnmeasuredError:
            return True
        latency = kernel_latency(attrs["kernel"], self.context).seconds
        seconds = (
            model.ours_seconds,
            latency,
            race.seconds(1) / turns,
            model.xla_seconds,
            race.seconds(0) / turns,
        )
        about = self.number, str(self.program), str(attrs["name"]), len(pattern.ops)
        self.found.append(Raced(*about, *(1e6 * s for s in seconds)))
        return True

    @property
    def reason(self) -> Reason:
        """Nothing is refused."""
        raise NotImplementedError


def races(number: int, program: Program, seconds: float) -> list[Raced]:
    """Of the kernels that the program gets by default."""
    context = Context(CompileOptions(), cpu_profile(CompileOptions()))
    module = jax.jit(program).lower(*program.shapes).compiler_ir("stablehlo")
    gate = Racing(number, program, context, seconds)
    silent = Dump(None, (), context.options.verify)
    stitch_graph(run(import_module(module), context), context, "drawn", silent, CpuBackend(), {}, gate)
    return gate.found


@click.command("kernels")
@click.option("--minutes", default=5.0, show_default=True, help="How long to race.")
@click.option("--count", default=1000, show_default=True, help="Programs, at most.")
@click.option("--seed", default=0, show_default=True)
@click.option("--skip", default=0, show_default=True, help="Programs of the seed to leave out.")
@click.option("--below", default=0.95, show_default=True, help="What counts as slower.")
@click.option("--seconds", default=0.15, show_default=True, help="Time for each race.")
@click.option("--json", "path", type=click.Path(path_type=Path), help="Write all rows here.")
def kernels_command(
    minutes: float, count: int, seed: int, skip: int, below: float, seconds: float, path: Path | None
) -> None:
    """Race kernels of drawn programs against XLA's code for the same ops, on this CPU."""
    console, end = Console(soft_wrap=True), time.monotonic() + 60 * minutes
    found: list[Raced] = []
    for number, program in islice(enumerate(programs(seed)), skip, skip + count):
        if time.monotonic() > end:
            break
        new = races(number, program, seconds)
        for raced in (raced for raced in new if raced.ratio < below):
            console.print(str(raced), markup=False)
        found += new
        jax.clear_caches()  # type: ignore[no-untyped-call]
    if len(found) > 2:
        console.print(_summary(found, below))
    if path:
        about = {"machine": machine.describe(), "seed": seed, "rows": [asdict(raced) for raced in found]}
        path.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


def _summary(found: Sequence[Raced], below: float) -> Table:
    ratios = [raced.ratio for raced in found]
    table = Table(
        title=f"{len(found)} kernels: {geometric_mean(ratios):.2f}x in the geometric mean,"
        f" {sum(r < below for r in ratios)} below {below}"
    )
    for name in ("model", "Spearman", "modelled / measured", "within 2x", "within 4x"):
        table.add_column(name, justify="right")
    for name, modelled, measured in (
        ("gate, ours", [r.gate for r in found], [r.ours for r in found]),
        ("evaluator, ours", [r.latency for r in found], [r.ours for r in found]),
        ("gate, XLA's", [r.gate_xla for r in found], [r.xla for r in found]),
    ):
        off = np.log2(np.array(modelled) / np.array(measured))
        within = (f"{float((abs(off) < n).mean()):.2f}" for n in (1, 2))
        rank = float(spearmanr(modelled, measured).statistic)
        table.add_row(name, f"{rank:.3f}", f"{2 ** float(np.median(off)):.2f}", *within)
    return table
