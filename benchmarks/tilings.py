"""`python -m benchmarks tilings`: how well MCFuser's model ranks the tilings of chains on this machine's CPU.

Chains drawn at random, each in every tiling that its search looks at, each kernel measured by itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

import click
import jax
from jax import Array
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy.stats import spearmanr

from benchmarks import machine
from benchmarks.chains import attention, chain, mlp
from benchmarks.lone_kernels import build, seconds_per_call
from jstitch.frontend.importer import import_module
from jstitch.frontend.mlir import parse_module
from jstitch.frontend.target import cpu_profile
from jstitch.ir.graph import Graph
from jstitch.options import CompileOptions
from jstitch.passes.base.context import Context
from jstitch.passes.base.plan import FusionPattern
from jstitch.passes.fuse.find_chains import find_chains
from jstitch.passes.fuse.tile_chains import templates_of, timed_tilings
from jstitch.passes.lower.apply_template import TemplateError
from jstitch.passes.lower.lower_kernel import lower_kernel
from jstitch.passes.pipeline import run
from jstitch.passes.schedule.kernel_passes import schedule_kernel

BAR = 0.85


@dataclass(frozen=True)
class Measured:
    """One tiling of a chain: rows of a step, columns of a block (0: all), seconds."""

    chain: str
    rows: int
    block: int
    modelled: float
    seconds: float


@click.command("tilings")
@click.option("--count", default=6, show_default=True, help="Chains to draw.")
@click.option("--seed", default=0, show_default=True)
@click.option("--budget", default=0.1, show_default=True, help="Seconds of measuring for each tiling.")
@click.option("--json", "path", type=click.Path(path_type=Path), help="Write all times here.")
def tilings_command(count: int, seed: int, budget: float, path: Path | None) -> None:
    """Spearman's correlation of MCFuser's model with measured times of chains' tilings."""
    options = CompileOptions(tune="off")
    context = Context(options, cpu_profile(options))
    found: list[Measured] = []
    for name, f, shapes in track(list(drawn(count, seed)), "chains", console=Console(stderr=True)):
        found += _measured(name, f, shapes, context, budget)
    Console().print(_table(found))
    if path:
        rows = [asdict(row) for row in found]
        result = {"machine": machine.describe(), "seed": seed, "spearman": correlation(found), "rows": rows}
        path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    raise SystemExit(int(correlation(found) < BAR))


Case = tuple[str, Callable[..., Array], list[tuple[int, ...]]]


def drawn(count: int, seed: int) -> Iterator[Case]:
    """Attention, MLPs and bare products, of sizes that people have."""
    random = Random(seed)
    for number in range(count):
        m, n = random.choice((196, 256, 384, 512, 1000, 2048)), random.choice((256, 512, 768, 1024, 2048))
        k, h, batch = *(random.choice((32, 64, 80, 128, 256)) for _ in range(2)), random.choice((1, 4, 12))
        name = f"{number} {{}} {batch}x{m}x{n}x{k}x{h}"
        match random.choice(("attention", "mlp", "chain")):
            case "attention":
                yield name.format("attention"), attention, [(batch, m, k), (batch, n, k), (batch, n, h)]
            case "mlp":
                yield name.format("mlp"), mlp, [(batch * m, k), (k, n), (n,), (n, h)]
            case _:
                yield name.format("chain"), chain, [(batch, m, k), (batch, k, n), (batch, n, h)]


def _measured(
    name: str, f: Callable[..., Any], shapes: list[tuple[int, ...]], context: Context, budget: float
) -> Iterator[Measured]:
    args = [jax.ShapeDtypeStruct(shape, "float32") for shape in shapes]
    graph = run(import_module(parse_module(jax.jit(f).lower(*args).as_text())), context)
    pattern = _chain_of(graph, context)
    templates = templates_of(pattern, context)
    if templates is None:
        raise click.ClickException(f"{name} has no tilings")
    for tile, modelled in timed_tilings(pattern, context):
        try:
            kernel = lower_kernel(
                "tiling",
                *(pattern.ops, pattern.inputs, pattern.outputs, context.profile),
                template=templates.template(tile),
            )
        except TemplateError:
            continue  # it finds no room
        call = build(schedule_kernel(kernel, context))
        yield Measured(name, tile.rows, tile.block, modelled, seconds_per_call(call, budget))


def _chain_of(graph: Graph, context: Context) -> FusionPattern:
    (pattern,) = find_chains(graph, context).patterns
    return pattern


def correlation(rows: list[Measured]) -> float:
    return float(spearmanr([row.modelled for row in rows], [row.seconds for row in rows]).statistic)


def _table(found: list[Measured]) -> Table:
    table = Table(title="MCFuser's model against measured times of tilings")
    table.add_column("chain", no_wrap=True)
    for head in ("tilings", "Spearman", "chosen, us", "best", "worst", "lost"):
        table.add_column(head, justify="right")
    for name in dict.fromkeys(row.chain for row in found):
        rows = [row for row in found if row.chain == name]
        chosen = min(rows, key=lambda row: row.modelled)
        best, worst = min(row.seconds for row in rows), max(row.seconds for row in rows)
        times = (f"{seconds * 1e6:.0f}" for seconds in (chosen.seconds, best, worst))
        lost = f"{chosen.seconds / best:.3f}"
        table.add_row(name, str(len(rows)), f"{correlation(rows):.3f}", *times, lost)
    table.add_row("all", str(len(found)), f"{correlation(found):.3f}")
    return table
