"""`python -m benchmarks timeline`: how near the memory's speed kernels would run, by a model, without a GPU.

Norms, losses, optimizers and their gradients at sizes that fill a GPU, planned and compiled for it; each
launch's machine code is replayed on a model of a multiprocessor (jstitch/codegen/cuda/timeline). All of it is
estimated. `--zoo` compares the latency-evaluator, which chooses among kernels, with it.
"""

from __future__ import annotations

import json
import math
import re
import statistics
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import jax
import jax.numpy as jnp
from jax import Array
from rich.console import Console
from rich.table import Table
from scipy.stats import spearmanr

import jstitch
from benchmarks import machine
from benchmarks.lone_kernels import kernels_of
from benchmarks.zoo import cases
from jstitch.cli.files import InputError
from jstitch.cli.show_timeline import timelines
from jstitch.codegen.backend import CannotBuildError
from jstitch.codegen.cuda.build import build
from jstitch.codegen.cuda.emit import emit
from jstitch.codegen.cuda.homes import NoRoom
from jstitch.codegen.cuda.timeline.timeline import timeline
from jstitch.codegen.kernel_ir import Kernel
from jstitch.device_spec import DeviceSpec, find_spec
from jstitch.frontend.target import cuda_profile
from jstitch.inspection.dumps import read_dump
from jstitch.options import CompileOptions
from jstitch.passes.base.context import Context
from jstitch.passes.schedule.latency import kernel_latency

Row = dict[str, Any]
F32, BF16 = jnp.float32, jnp.bfloat16
SHORTEST = 9.0  # microseconds of a launch that its estimate is compared with


@dataclass(frozen=True)
class Program:
    """args: shapes and types. least: of the peak, that the estimate is to reach, in percent, or 0."""

    name: str
    function: Callable[..., Any]
    args: tuple[jax.ShapeDtypeStruct, ...]
    least: int = 0


def layer_norm(x: Array, g: Array, b: Array) -> Array:
    y = x.astype(F32)
    y = y - y.mean(-1, keepdims=True)
    return (y * jax.lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-5) * g + b).astype(x.dtype)


def rms_norm(x: Array, g: Array) -> Array:
    y = x.astype(F32)
    return (y * jax.lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-6) * g).astype(x.dtype)


def batch_norm(x: Array, g: Array, b: Array) -> Array:
    y = x - x.mean(0)
    return y * jax.lax.rsqrt((y * y).mean(0) + 1e-5) * g + b


def group_norm(x: Array, g: Array, b: Array) -> Array:
    n, positions, channels = x.shape
    y = x.reshape(n, positions, 32, channels // 32)
    y = y - y.mean((1, 3), keepdims=True)
    y = y * jax.lax.rsqrt((y * y).mean((1, 3), keepdims=True) + 1e-5)
    return y.reshape(x.shape) * g + b


def cross_entropy(x: Array, labels: Array) -> Array:
    logits = x.astype(F32)
    return (jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(logits, labels[:, None], -1)[:, 0]).mean()


def gelu_residual_norm(x: Array, r: Array, g: Array, b: Array) -> Array:
    y = jax.nn.gelu(x.astype(F32)) + r.astype(F32)
    return layer_norm(y, g, b).astype(x.dtype)


def rope(x: Array, cos: Array, sin: Array) -> Array:
    left, right = jnp.split(x.astype(F32), 2, -1)
    return jnp.concatenate([left * cos - right * sin, right * cos + left * sin], -1).astype(x.dtype)


def swiglu(x: Array, y: Array) -> Array:
    return (jax.nn.silu(x.astype(F32)) * y.astype(F32)).astype(x.dtype)


def int8_rows(x: Array) -> tuple[Array, Array]:
    scale = jnp.abs(x.astype(F32)).max(-1, keepdims=True) / 127
    return jnp.round(x / scale).astype(jnp.int8), scale


def adamw(p: Array, g: Array, m: Array, v: Array) -> tuple[Array, Array, Array]:
    m, v = 0.9 * m + 0.1 * g, 0.95 * v + 0.05 * g * g
    return p - 1e-3 * (m / (jnp.sqrt(v) + 1e-8) + 0.1 * p), m, v


def pulled(function: Callable[..., Any]) -> Callable[..., Any]:
    """(cotangent, *args) -> the gradients of the arguments that are floats."""
    return lambda d, *args: jax.vjp(function, *args)[1](d)


def entropy_grad(x: Array, labels: Array) -> Array:
    return jax.grad(cross_entropy)(x, labels)


def _programs() -> Iterator[Program]:
    S = jax.ShapeDtypeStruct
    for dtype in (F32, BF16):
        kind = jnp.dtype(dtype).name
        for rows, width in ((16384, 4096), (16384, 8192)):
            x, v = S((rows, width), dtype), S((width,), F32)
            at = f"{kind} {rows}x{width}"
            yield Program(f"layer norm {at}", layer_norm, (x, v, v), 90)
            yield Program(f"layer norm gradient {at}", pulled(layer_norm), (x, x, v, v), 85)
            yield Program(f"rms norm gradient {at}", pulled(rms_norm), (x, x, v), 85)
        for vocabulary, least in ((50257, (78, 60)), (128256, (75, 60))):
            x, labels = S((4096, vocabulary), dtype), S((4096,), jnp.int32)
            name = f"cross entropy gradient {kind} 4096x{vocabulary}"
            yield Program(name, entropy_grad, (x, labels), least[dtype == BF16])
        x, v = S((16384, 4096), dtype), S((4096,), F32)
        name = f"gelu residual layer norm gradient {kind}"
        yield Program(name, pulled(gelu_residual_norm), (x, x, x, v, v), 62 if dtype == BF16 else 80)
    yield Program("softmax float32 1024x50257", jax.nn.softmax, (S((1024, 50257), F32),), 82)
    for rows in (25088, 401408):
        x, v = S((rows, 256), F32), S((256,), F32)
        yield Program(f"batch norm {rows}x256", batch_norm, (x, v, v), 80)
        yield Program(f"batch norm gradient {rows}x256", pulled(batch_norm), (x, x, v, v), 80)
    columns = lambda x: jax.nn.softmax(x, 0)  # noqa: E731
    yield Program("softmax over axis 0, 8192x8192", columns, (S((8192, 8192), F32),), 80)
    x, v = S((32, 3136, 256), F32), S((256,), F32)
    yield Program("group norm 32x3136x256", group_norm, (x, v, v), 80)
    yield Program("group norm gradient 32x3136x256", pulled(group_norm), (x, x, v, v), 80)
    x, half = S((4, 32, 4096, 128), BF16), S((4096, 64), F32)
    yield Program("rope gradient bfloat16", lambda d, c, s: pulled(rope)(d, d, c, s)[0], (x, half, half), 85)
    x = S((16384, 11008), BF16)
    yield Program("swiglu gradient bfloat16", pulled(swiglu), (x, x, x), 90)
    yield Program("int8 rows bfloat16", int8_rows, (S((16384, 4096), BF16),), 90)
    yield Program("adamw float32", adamw, (S((1 << 25,), F32),) * 4, 90)


PROGRAMS = tuple(_programs())


@click.command("timeline")
@click.option("--filter", "pattern", default="", help="Only programs whose name matches this expression.")
@click.option("--target", default="h200", show_default=True, help="The GPU to compile for.")
@click.option("--zoo", default=0, help="Compare the latency-evaluator on so many kernels of the zoo.")
@click.option(
    "--measured",
    type=click.Path(path_type=Path, exists=True),
    help="What `benchmarks gpu` wrote, to compare.",
)
@click.option("--json", "path", type=click.Path(path_type=Path), help="Write the rows to this file.")
def timeline_command(pattern: str, target: str, zoo: int, measured: Path | None, path: Path | None) -> None:
    """Estimated time and share of the peak of kernels at a GPU's sizes, without a GPU."""
    console, spec = Console(), find_spec(target)
    console.width = max(console.width, 150)
    rows = [row for p in PROGRAMS if re.search(pattern, p.name) for row in estimate(p, spec)]
    if measured is not None:
        rows = [row | _beside(row, json.loads(measured.read_text(encoding="utf-8"))) for row in rows]
    console.print(_table(rows, spec))
    if measured is not None:
        console.print(_errors(rows))
    result: Row = {"machine": machine.describe(), "target": target, "estimated": rows}
    if zoo:
        result["zoo"] = compare(spec, zoo)
        console.print(
            f"Spearman's correlation over {len(result['zoo'])} kernels: {correlation(result['zoo']):.3f}"
        )
    if path is not None:
        path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def estimate(program: Program, spec: DeviceSpec) -> list[Row]:
    """A row for each launch of the program's kernels."""
    with tempfile.TemporaryDirectory(prefix="jstitch-timeline-") as folder:
        options = CompileOptions(target=spec.name, tune="off", calibrated=False, dump_dir=folder)
        stitched = jax.jit(jstitch.stitch(program.function, options=options))
        stitched.trace(*program.args).lower(lowering_platforms=("cuda",))
        kernels = [kernel for call in read_dump(Path(folder)) for kernel in call.kernels.values()]
        return [row for kernel in kernels for row in _rows(program, kernel)]


def _rows(program: Program, kernel: Any) -> Iterator[Row]:
    base = {"program": program.name, "kernel": kernel.name, "least": program.least}
    try:
        for launch, found, _ in timelines(kernel):
            yield base | {
                "launch": launch.function,
                "grid": launch.grid,
                "block": launch.block,
                "registers": found.resources.registers,
                "spills": found.resources.spills,
                "ctas_per_sm": found.ctas_per_sm,
                "us": found.seconds * 1e6,
                "peak": found.peak,
                "bound": found.bound,
                "bytes": found.dram_bytes,
                "followed": found.followed,
            }
    except InputError as error:
        yield base | {"error": str(error)}


def _beside(row: Row, found: Row) -> Row:
    """What the launch took on a device, where it was measured there: its name ends as ours does."""
    of_program = [r for r in found["rows"] if r["name"] == row["program"] and "jstitch" in r]
    kernels = {n: k for r in of_program for n, k in r["jstitch"]["kernels"].items()}
    named = [k for n, k in kernels.items() if n.endswith(f"_{row.get('launch')}")]
    return {"measured": named[0]["seconds"] * 1e6} if len(named) == 1 else {}


def _errors(rows: list[Row]) -> str:
    """Of launches that take long enough for their own start not to count."""
    logs = [math.log(r["us"] / r["measured"]) for r in rows if r.get("measured", 0.0) >= SHORTEST]
    if len(logs) < 2:
        return "fewer than two launches were measured"
    mean, spread = math.exp(statistics.mean(logs)), math.exp(statistics.stdev(logs))
    return (
        f"{len(logs)} launches of at least {SHORTEST:.0f} us were measured:"
        f" estimates are {mean:.2f} of that in the geometric mean, with a standard deviation of {spread:.2f}x"
    )


def _table(rows: list[Row], spec: DeviceSpec) -> Table:
    table = Table(title=f"{spec.title}: estimated", title_justify="left")
    heads = (
        "program",
        "launch",
        "CTAs",
        "of an SM",
        "registers",
        "us",
        "measured",
        "of peak",
        "wanted",
        "bound by",
    )
    for head in heads:
        table.add_column(head, justify="left" if head in ("program", "launch", "bound by") else "right")
    for row in rows:
        if "error" in row:
            table.add_row(row["program"], row["error"][:40])
            continue
        spills = f" +{row['spills']}" if row["spills"] else ""
        cells = f"{row['grid']:,} x {row['block']}", str(row["ctas_per_sm"]), f"{row['registers']}{spills}"
        wanted = f"{row['least']}%" if row["least"] else ""
        color = "red" if 100 * row["peak"] < row["least"] else "green"
        measured = f"{row['measured']:,.1f}" if "measured" in row else ""
        times = f"{row['us']:,.1f}", measured, f"[{color}]{row['peak']:.0%}", wanted, row["bound"]
        table.add_row(row["program"], row["launch"], *cells, *times)
    return table


def compare(spec: DeviceSpec, count: int) -> list[Row]:
    """The first kernels of the zoo, spread over all of it: both models' seconds."""
    context = Context(CompileOptions(tune="off", calibrated=False), cuda_profile(spec))
    chosen, rows = cases(), list[Row]()
    for case in chosen[:: max(1, len(chosen) // count)]:
        for name, kernel in kernels_of(case, context.profile).items():
            replayed = _replayed(kernel, spec)
            if replayed is not None:
                modelled = kernel_latency(kernel, context).seconds
                rows.append({"kernel": name, "replayed": replayed, "modelled": modelled})
    return rows[:count]


def _replayed(kernel: Kernel, spec: DeviceSpec) -> float | None:
    """Of all launches; None for what cannot be built."""
    try:
        source = emit(kernel, spec.shared_optin).source
        texts = build(source, spec)
    except (NoRoom, CannotBuildError):
        return None
    pairs = zip(source.launches, texts, strict=True)
    return sum(timeline(text, source.name, launch, spec).seconds for launch, text in pairs)


def correlation(rows: list[Row]) -> float:
    """Spearman's, of the two models."""
    return float(spearmanr([r["replayed"] for r in rows], [r["modelled"] for r in rows]).statistic)
