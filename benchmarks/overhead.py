"""`python -m benchmarks overhead`: what a call of a tiny stitched function costs above `jax.jit`'s."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import jax.numpy as jnp
from jax import Array
from rich.console import Console
from rich.table import Table

import jstitch
from benchmarks import timing
from benchmarks.check import require_equal
from benchmarks.sides import Side, jax_jit, subject_jit
from benchmarks.workload import Problem, normal
from jstitch.demo.hlo import program_cost


def tiny(x: Array, y: Array) -> Array:
    """An element-wise chain and a reduction over 1,024 elements, so that there is something to stitch."""
    z = jnp.tanh(x * y + 1.0)
    return z - jnp.mean(z)


@click.command("overhead")
@click.option("--seconds", default=4.0, help="Time to spend.")
@click.option("--side", type=click.Choice([s.value for s in Side]), default="jstitch")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write the result here.")
def overhead_command(seconds: float, side: str, json_path: Path | None) -> None:
    """Microseconds per call of a function of 1k elements, both sides."""
    problem = Problem(tiny, (normal((1024,)), normal((1024,), 1)))
    # stitched even if the cost model would leave so little work to XLA: the call is what is timed
    options = jstitch.CompileOptions(tune="off")
    reference: Any = jax_jit(problem)
    subject: Any = subject_jit(problem, Side(side), options)
    expected = reference(*problem.args)
    require_equal(subject(*problem.args), expected, problem.tolerance, side)
    steps = timing.JaxStep(reference, problem), timing.JaxStep(subject, problem)
    interleaved = timing.interleaved(*steps, seconds / 2)
    pairs = {
        "interleaved": (interleaved.first, interleaved.second),
        "alone": timing.alone(steps, seconds / 4),
    }
    stitched = len(program_cost(subject.lower(*problem.args).compile().as_text()).stitched)
    result = {way: [t.median * 1e6 for t in pair] for way, pair in pairs.items()}
    _show(result, side, stitched)
    if json_path:
        text = json.dumps({"microseconds": result, "stitched_kernels": stitched}, indent=1)
        json_path.write_text(text + "\n", encoding="utf-8")


def _show(result: dict[str, list[float]], side: str, stitched: int) -> None:
    table = Table(title=f"us per call, 1,024 elements, {stitched} stitched kernels")
    for name in ("", "jax.jit", f"{side}.jit", "difference"):
        table.add_column(name, justify="right")
    for way, (reference, subject) in result.items():
        table.add_row(way, f"{reference:.1f}", f"{subject:.1f}", f"{subject - reference:+.1f}")
    Console().print(table)
