"""`python -m benchmarks recurrences`: loops that become one kernel, side by side with jax.jit.

Times on this machine's CPU; with `--target h200` launches and bytes there, by XLA:GPU's compiler: no time,
for there is no device.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import jax
import jax.numpy as jnp
from jax import Array, lax
from rich.console import Console
from rich.table import Table

import jstitch
from benchmarks import machine, timing
from benchmarks.cells import CELLS, Case
from benchmarks.check import require_equal
from benchmarks.sides import Side, jax_jit, subject_jit
from benchmarks.workload import Problem, normal

Row = dict[str, Any]


def advantages(rewards: Array, values: Array, done: Array, last: Array) -> tuple[Array, Array]:
    """Generalised advantage estimation [steps, environments], and returns."""

    def turn(carry: tuple[Array, Array], now: Any) -> tuple[tuple[Array, Array], Array]:
        advantage, following = carry
        reward, value, ends = now
        gain = reward + 0.99 * following * (1 - ends) - value
        advantage = gain + 0.95 * 0.99 * (1 - ends) * advantage
        return (advantage, value), advantage

    found = lax.scan(turn, (jnp.zeros_like(last), last), (rewards, values, done), reverse=True)[1]
    return found, found + values


def linear(a: Array, x: Array) -> Array:
    """c = a * c + x, along the first dimension."""

    def turn(carry: Array, now: Any) -> tuple[Array, Array]:
        carry = now[0] * carry + now[1]
        return carry, carry

    return lax.scan(turn, jnp.zeros_like(x[0]), (a, x))[1]


def linear_gradient(a: Array, x: Array) -> Any:
    return jax.grad(lambda a, x: linear(a, x).sum(), (0, 1))(a, x)


def linear_minor(a: Array, x: Array) -> Array:
    """Along the last dimension."""
    return linear(a.T, x.T).T


def gated(x: Array, weights: Array) -> Array:
    """A minimal gated unit without products, of a batch of sequences [batch, steps, features]."""

    def turn(carry: Array, now: Array) -> tuple[Array, Array]:
        gate = jax.nn.sigmoid(now * weights)
        carry = (1 - gate) * carry + gate * jnp.tanh(now)
        return carry, carry

    return jnp.moveaxis(lax.scan(turn, jnp.zeros_like(x[:, 0]), jnp.moveaxis(x, 1, 0))[1], 0, 1)


def gated_gradient(x: Array, weights: Array) -> Any:
    return jax.grad(lambda x, w: gated(x, w).sum(), (0, 1))(x, weights)


def smoothed(x: Array) -> Array:
    """An exponential moving average, of one long sequence."""
    return lax.scan(lambda c, now: (0.9 * c + 0.1 * now,) * 2, x[0], x)[1]


def lorenz(x: Array, y: Array, z: Array) -> Any:
    """1000 steps of Euler's method."""

    def step(_: Array, s: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        x, y, z = s
        return x + 0.01 * 10 * (y - x), y + 0.01 * (x * (28 - z) - y), z + 0.01 * (x * y - 8 / 3 * z)

    return lax.fori_loop(0, 1000, step, (x, y, z))


def along(op: Callable[..., Array], axis: int) -> Callable[[Array], Array]:
    return lambda x: op(x, axis=axis)


def _steps(steps: int, width: int, arrays: int, *more: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    return (*(((steps, width),) * arrays), *more)


CUMULATIVE = (lax.cumsum, lax.cumprod, lax.cummax, lax.cumlogsumexp)
CASES: Mapping[str, Case] = {
    **{
        f"advantages {t}x{n}": (advantages, _steps(t, n, 3, (n,)))
        for t, n in ((128, 64), (128, 1024), (2048, 64), (1024, 4096))
    },
    **{f"linear {t}x{n}": (linear, _steps(t, n, 2)) for t, n in ((512, 1024), (1024, 8192))},
    **{
        f"linear {t}x{n}, gradient": (linear_gradient, _steps(t, n, 2))
        for t, n in ((512, 1024), (1024, 8192))
    },
    "linear 1024x4096, minor": (linear_minor, _steps(1024, 4096, 2)),
    **{
        f"{op.__name__} 1024x4096, axis {axis}": (along(op, axis), _steps(1024, 4096, 1))
        for op in CUMULATIVE
        for axis in (0, 1)
    },
    "gated 32x256x128": (gated, ((32, 256, 128), (128,))),
    "gated 32x256x128, gradient": (gated_gradient, ((32, 256, 128), (128,))),
    "smoothed 1000000": (smoothed, ((1_000_000,),)),
    "lorenz 1": (lorenz, ((), (), ())),
    "lorenz 1000": (lorenz, ((1000,), (1000,), (1000,))),
    **CELLS,
}


@click.command("recurrences")
@click.option("--filter", "pattern", default="", help="Only cases whose name has this in it.")
@click.option("--target", default="cpu", show_default=True, help="The CPU, or a GPU to count for.")
@click.option("--seconds", default=1.0, show_default=True, help="Time for each case.")
@click.option("--json", "path", type=click.Path(path_type=Path), help="Write all rows here.")
def recurrences_command(pattern: str, target: str, seconds: float, path: Path | None) -> None:
    """Loops that become one kernel: times on this CPU, or launches and bytes on a GPU."""
    found: list[Row] = []
    for name, (function, shapes) in CASES.items():
        if pattern in name:
            found.append(
                _measured(name, function, shapes, seconds) if target == "cpu" else _counted(name, target)
            )
    Console().print(_table(found, target))
    if path:
        result = {"machine": machine.describe(), "target": target, "seconds": seconds, "cases": found}
        path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def _measured(name: str, function: Callable[..., Any], shapes: Any, seconds: float) -> Row:
    # With weights as large as those of few units, rounding errors of large cells would grow in each turn.
    scales = (shape[0] ** -0.5 if name in CELLS else 0.3 for shape in shapes)
    args = tuple(
        jnp.asarray(normal(s, n, scale)) for n, (s, scale) in enumerate(zip(shapes, scales, strict=True))
    )
    problem = Problem(function, args, tolerance=1e-4)
    reference: Any = jax_jit(problem)
    subject: Any = subject_jit(problem, Side.JSTITCH, jstitch.CompileOptions())
    require_equal(subject(*args), reference(*args), problem.tolerance, name)
    times = timing.interleaved(timing.JaxStep(reference, problem), timing.JaxStep(subject, problem), seconds)
    sides = {"xla": times.first.median * 1e6, "jstitch": times.second.median * 1e6}
    return {"name": name, "ratio": times.ratio, "microseconds": sides}


def _counted(name: str, target: str) -> Row:
    function, shapes = CASES[name]
    args = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes)
    found = jstitch.analyze(function, *args, target=target)
    sides = (("xla", found.plain), ("jstitch", found.stitched))
    return {"name": name, **{side: {"launches": x.launches, "bytes": x.bytes_moved} for side, x in sides}}


def _table(rows: list[Row], target: str) -> Table:
    table = Table(title=f"Loops, {target}")
    unit = "us" if target == "cpu" else "launches, MB"
    for head in ("loop", f"jax.jit, {unit}", f"jstitch.jit, {unit}", "ratio"):
        table.add_column(head, justify="left" if head == "loop" else "right")
    for row in rows:
        if "ratio" in row:
            times = row["microseconds"]
            table.add_row(
                row["name"], f"{times['xla']:.0f}", f"{times['jstitch']:.0f}", f"{row['ratio']:.2f}"
            )
        else:
            sides = (f"{row[s]['launches']}, {row[s]['bytes'] / 1e6:.2f}" for s in ("xla", "jstitch"))
            table.add_row(row["name"], *sides, "")
    ratios = [row["ratio"] for row in rows if "ratio" in row]
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        table.add_row("geometric mean, least", "", "", f"{mean:.2f}, {min(ratios):.2f}")
    return table
