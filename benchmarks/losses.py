"""`python -m benchmarks losses`: a linear layer and the cross-entropy of its logits, value and gradient.

Times and temporary memory on this machine's CPU, side by side with jax.jit; with `--target h200` launches,
bytes and temporary memory there, by XLA:GPU's compiler: no time, for there is no device.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from rich.console import Console
from rich.table import Table

import jstitch
from benchmarks import machine, timing
from benchmarks.check import require_equal
from benchmarks.sides import Side, jax_jit, subject_jit
from benchmarks.workload import Problem, normal

Row = dict[str, Any]
Each = Callable[[Array, Array], Array]
"""The loss of each row: logits [rows, classes], labels [rows] -> [rows]."""
TOLERANCES: Mapping[str, float] = {"float32": 1e-4, "bfloat16": 0.02}


def by_axis(z: Array, y: Array) -> Array:
    return jax.nn.logsumexp(z, -1) - jnp.take_along_axis(z, y[:, None], 1)[:, 0]


def one_hot(z: Array, y: Array) -> Array:
    return -jnp.sum(jax.nn.one_hot(y, z.shape[1]) * jax.nn.log_softmax(z), -1)


def indexed(z: Array, y: Array) -> Array:
    return -jax.nn.log_softmax(z)[jnp.arange(z.shape[0]), y]


def smoothed(z: Array, y: Array) -> Array:
    """With a soft cap, label smoothing and z-loss."""
    z = 30 * jnp.tanh(z / 30)
    total = jax.nn.logsumexp(z, -1)
    chosen = jnp.take_along_axis(z, y[:, None], 1)[:, 0]
    return total - 0.9 * chosen - 0.1 * z.mean(-1) + 1e-4 * total**2


LOSSES: Mapping[str, Each] = {f.__name__: f for f in (by_axis, one_hot, indexed, smoothed)}


def step(each: Each) -> Callable[..., Any]:
    """(x [rows, width], w [width, classes], y [rows]) -> the loss, and its gradients by x and w."""

    def loss(x: Array, w: Array, y: Array) -> Array:
        return each((x @ w).astype(jnp.float32), y).mean()

    return jax.value_and_grad(loss, (0, 1))


@click.command("losses")
@click.option("--rows", default=4096, show_default=True)
@click.option("--width", default=512, show_default=True)
@click.option("--classes", default=32000, show_default=True)
@click.option("--dtype", default="float32", show_default=True, type=click.Choice(tuple(TOLERANCES)))
@click.option("--target", default="cpu", show_default=True, help="The CPU, or a GPU to count for.")
@click.option("--seconds", default=1.5, show_default=True, help="Time for each case.")
@click.option("--json", "path", type=click.Path(path_type=Path), help="Write all rows here.")
def losses_command(
    rows: int, width: int, classes: int, dtype: str, target: str, seconds: float, path: Path | None
) -> None:
    """Losses over many classes: times and memory on this CPU, or launches, bytes and memory on a GPU."""
    found: list[Row] = []
    for name, each in LOSSES.items():
        if target == "cpu":
            found.append(_measured(name, problem(each, rows, width, classes, dtype), seconds))
        else:
            found.append(_counted(name, each, rows, width, classes, dtype, target))
        Console(stderr=True).print(f"{name}: done")
    title = f"Losses of [{rows}, {width}] x [{width}, {classes}], {dtype}, {target}"
    Console().print(_table(found, title))
    if path:
        about = {"machine": machine.describe(), "target": target, "dtype": dtype, "seconds": seconds}
        result = {**about, "rows": rows, "width": width, "classes": classes, "cases": found}
        path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def problem(each: Each, rows: int, width: int, classes: int, dtype: str) -> Problem:
    x, w = normal((rows, width)), normal((width, classes), 1, width**-0.5)
    y = np.random.default_rng(2).integers(0, classes, rows, np.int32)
    args = x.astype(dtype), w.astype(dtype), jnp.asarray(y)
    return Problem(step(each), args, tolerance=TOLERANCES[dtype])


def _measured(name: str, problem: Problem, seconds: float) -> Row:
    reference: Any = jax_jit(problem)
    subject: Any = subject_jit(problem, Side.JSTITCH, jstitch.CompileOptions())
    require_equal(subject(*problem.args), reference(*problem.args), problem.tolerance, name)
    found = timing.interleaved(timing.JaxStep(reference, problem), timing.JaxStep(subject, problem), seconds)
    sides = {
        side: {"milliseconds": time.median * 1e3, "temporaries": _temporaries(jitted, problem)}
        for side, time, jitted in (("xla", found.first, reference), ("jstitch", found.second, subject))
    }
    return {"name": name, "ratio": found.ratio, **sides}


def _temporaries(jitted: Any, problem: Problem) -> int:
    """Bytes besides arguments and results, by XLA's own count."""
    return int(jitted.lower(*problem.args).compile().memory_analysis().temp_size_in_bytes)


def _counted(
    name: str,
    each: Each,
    rows: int,
    width: int,
    classes: int,
    dtype: str,
    target: str,
) -> Row:
    shapes = ((rows, width), dtype), ((width, classes), dtype), ((rows,), "int32")
    found = jstitch.analyze(step(each), *(jax.ShapeDtypeStruct(*s) for s in shapes), target=target)
    sides = {
        side: {
            "launches": x.launches,
            "bytes": x.bytes_moved,
            "all bytes": x.all_bytes,
            "temporaries": x.temporaries,
        }
        for side, x in (("xla", found.plain), ("jstitch", found.stitched))
    }
    return {"name": name, **sides}


def _table(rows: list[Row], title: str) -> Table:
    """What XLA's program has, and ours."""
    table = Table(title=title)
    fields = list(rows[0]["xla"])
    for head in ("case", *fields, "x"):
        table.add_column(head, justify="left" if head == "case" else "right")
    for row in rows:
        pairs = (f"{_number(field, row['xla'])} -> {_number(field, row['jstitch'])}" for field in fields)
        table.add_row(row["name"], *pairs, f"{row['ratio']:.2f}" if "ratio" in row else "-")
    return table


def _number(field: str, side: Mapping[str, float]) -> str:
    large = field.endswith("bytes") or field == "temporaries"
    return f"{side[field] / 1e6:,.0f} MB" if large else f"{side[field]:,.0f}"
