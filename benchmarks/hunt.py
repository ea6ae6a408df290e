"""`python -m benchmarks hunt`: programs drawn from a grammar, to find those that stitching makes slower.

On this CPU by the clock, each beside `jax.jit` with default options; with `--target h200` by launches and
bytes, without a device. What is slower is measured again, made as small as it stays slower, and printed with
its kernels. What gives other results than `jax.jit`, further from float64, is printed, too.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import click
import jax
from rich.console import Console

import jstitch
from benchmarks import machine, timing
from benchmarks.check import WrongResultError
from benchmarks.grammar.compare import require_right
from benchmarks.grammar.draw import programs
from benchmarks.grammar.program import Program
from benchmarks.sides import Side, jax_jit, subject_jit
from benchmarks.table import geometric_mean
from benchmarks.workload import Problem
from jstitch.frontend.measured_gate import OURS

Row = dict[str, Any]
LONGER = 4  # times, where a program looks slower
MOST_SECONDS = 1.0  # of a call, beyond which nobody waits for enough of them
Measure = Callable[[Program, float], Row]


class TooSlowError(Exception):
    """A program's calls take too long, in XLA's own version, for a comparison."""


@click.command("hunt")
@click.option("--minutes", default=10.0, show_default=True, help="How long to hunt.")
@click.option("--count", type=int, help="Programs, at most.")
@click.option("--seed", default=0, show_default=True)
@click.option("--skip", default=0, show_default=True, help="Programs of the seed to leave out.")
@click.option("--target", default="cpu", show_default=True, help="The CPU, or a GPU to count for.")
@click.option("--below", default=0.95, show_default=True, help="What counts as slower.")
@click.option("--seconds", default=0.2, show_default=True, help="Time for each program.")
@click.option("--raced", is_flag=True, help="As compiled again after races in the background.")
@click.option("--json", "path", type=click.Path(path_type=Path), help="Write all rows here.")
def hunt_command(
    minutes: float,
    count: int | None,
    seed: int,
    skip: int,
    target: str,
    below: float,
    seconds: float,
    raced: bool,
    path: Path | None,
) -> None:
    """Find programs that are slower stitched than not."""
    console, end = Console(soft_wrap=True), time.monotonic() + 60 * minutes
    clock = partial(timed, raced=raced)
    measure = clock if target == "cpu" else lambda p, _: counted(p, target)
    hunter = Hunter(measure, below, seconds, console, target)
    stop = None if count is None else skip + count
    for number, program in islice(enumerate(programs(seed)), skip, stop):
        if time.monotonic() > end:
            break
        hunter.look_at(number, program)
    console.print(hunter.summary())
    if path:
        about = {"machine": machine.describe(), "target": target, "seed": seed, "below": below}
        path.write_text(json.dumps({**about, "rows": hunter.rows}, indent=1) + "\n", encoding="utf-8")


def timed(program: Program, seconds: float, raced: bool = False) -> Row:
    """By the clock. raced: as it is compiled when races have nothing more to say.

    Raises WrongResultError, TooSlowError.
    """
    problem = Problem(program, program.args())
    reference: Any = jax_jit(problem)
    jax.block_until_ready(reference(*problem.args))  # type: ignore[no-untyped-call]
    if timing.sample(timing.JaxStep(reference, problem), 1) > MOST_SECONDS:
        raise TooSlowError
    options = jstitch.CompileOptions(**({"race_seconds": _default("race_seconds")} if raced else {}))
    subject: Any = subject_jit(problem, Side.JSTITCH, options)
    require_right(program, subject(*problem.args), reference(*problem.args))
    while any(decision.choice != OURS for decision in jstitch.race_now()):
        subject.clear_cache()
        require_right(program, subject(*problem.args), reference(*problem.args))
    found = timing.interleaved(timing.JaxStep(reference, problem), timing.JaxStep(subject, problem), seconds)
    return {"ratio": found.ratio, "jax": found.first.median * 1e6, "jstitch": found.second.median * 1e6}


def _default(option: str) -> Any:
    """Of users; benchmarks run without races."""
    return jstitch.CompileOptions.__dataclass_fields__[option].metadata["default"]


def counted(program: Program, target: str) -> Row:
    """By what a GPU launches and moves: the ratio is the worse one of launches and bytes."""
    found = jstitch.analyze(program, *program.shapes, target=target)
    theirs, ours = found.plain, found.stitched
    worst = min(theirs.launches / max(1, ours.launches), (theirs.all_bytes + 1) / (ours.all_bytes + 1), 1e9)
    return {"ratio": worst, "jax": theirs.launches, "jstitch": ours.launches}


@dataclass
class Hunter:
    """measure: what one program takes. below: ratios that are slower. seconds: for one."""

    measure: Measure
    below: float
    seconds: float
    console: Console
    target: str = "cpu"

    def __post_init__(self) -> None:
        self.rows: list[Row] = []

    def look_at(self, number: int, program: Program) -> None:
        """Measure it, and again what looks slower; print what is."""
        try:
            row = self._again(program, self.measure(program, self.seconds))
        except TooSlowError:
            return
        except WrongResultError as error:
            row = {"ratio": None, "error": str(error)}
            self.console.print(f"[bold]{number}[/] {program}\n    {error}", markup=True)
        self.rows.append({"number": number, "program": str(program), **row})
        if row["ratio"] is not None and row["ratio"] < self.below:
            self._report(number, program, row)
        jax.clear_caches()  # type: ignore[no-untyped-call]

    def _again(self, program: Program, row: Row) -> Row:
        return row if row["ratio"] >= self.below else self.measure(program, LONGER * self.seconds)

    def _report(self, number: int, program: Program, row: Row) -> None:
        self._print(f"{number}: {row['ratio']:.2f}x", program, row)
        small, found = self._smallest(program, row)
        if small is not program:
            self._print(f"    smaller: {found['ratio']:.2f}x", small, found)
        for line in kernels(small, self.target):
            self.console.print(f"    {line}", markup=False)

    def _print(self, what: str, program: Program, row: Row) -> None:
        self.console.print(f"{what}  {row['jax']:.0f} -> {row['jstitch']:.0f}  {program}", markup=False)

    def _smallest(self, program: Program, row: Row) -> tuple[Program, Row]:
        """The smallest that is still as slow, by leaving out one thing after another."""
        while True:
            for small in filter(Program.is_valid, program.smaller()):
                try:
                    found = self._again(small, self.measure(small, self.seconds))
                except (WrongResultError, TooSlowError):
                    continue
                if found["ratio"] < self.below:
                    program, row = small, found
                    break
            else:
                return program, row

    def summary(self) -> str:
        ratios = [row["ratio"] for row in self.rows if row["ratio"] is not None]
        if not ratios:
            return "no program"
        slower = sum(r < self.below for r in ratios)
        wrong = len(self.rows) - len(ratios)
        return (
            f"{len(self.rows)} programs: {geometric_mean(ratios):.2f}x in the geometric mean,"
            f" {min(ratios):.2f}x at least, {slower} below {self.below}, {wrong} with other results"
        )


def kernels(program: Program, target: str) -> Iterator[str]:
    """Each of its kernels, with what the model expects."""
    plan = jstitch.plan(program, jstitch.CompileOptions(target=target))(*program.shapes)
    for pattern in plan.patterns:
        ours, theirs = pattern.ours.seconds * 1e6, pattern.xla.seconds * 1e6
        if pattern.kernel:
            yield f"{pattern.name}: {ours:.0f} us modelled, XLA's {theirs:.0f}"
