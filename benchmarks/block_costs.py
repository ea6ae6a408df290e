"""`python -m benchmarks blocks`: drawn transformer blocks on an H200 that is not here, products included.

Launches and bytes of each block by XLA:GPU's own compiler, as XLA compiles it alone and stitched, in both
ways to multiply matrices: XLA's kernels wherever it has some, its library alone. Neither number may be larger
than XLA's in either way; the command fails otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import click
import jax

import jstitch
from benchmarks.blocks import Block, draw
from jstitch.analysis.analyze import kernel_traffic
from jstitch.device_spec import find_spec
from jstitch.frontend.ask import WAYS, Cost, cost_of
from jstitch.frontend.jitted import Jitted
from jstitch.options import CompileOptions
from jstitch.runtime.report import last_report, record_count
from jstitch.xla.compile import AnalysisError, device_sharding

TARGET = "h200"
ASK_SECONDS = 600.0  # what is judged is the answer, not whether there was time for it


@dataclass(frozen=True)
class Row:
    """One block in one way: XLA's program and the stitched one."""

    block: Block
    way: str
    plain: Cost
    stitched: Cost

    @property
    def is_worse(self) -> bool:
        return self.stitched.excess(self.plain) > 0

    def __str__(self) -> str:
        launches = self.stitched.launches / self.plain.launches
        moved = self.stitched.nbytes / self.plain.nbytes
        shares = f"launches {launches:.3f}, bytes {moved:.3f}{' WORSE' if self.is_worse else ''}"
        return f"{self.block.name}, {self.way}: {self.stitched} against {self.plain}; {shares}"


def rows(block: Block, options: CompileOptions | None = None) -> Iterator[Row]:
    """In each way in which XLA compiles the block. Raises AnalysisError where it does so in none."""
    spec = find_spec(TARGET)
    chosen = (options or CompileOptions(ask_seconds=ASK_SECONDS)).replace(target=spec)
    function, args = block.problem()
    program = Jitted.of(function, device_sharding(spec))
    plain = program.lower(jax.jit, args, {}, "cuda")
    since = record_count()
    stitched = program.lower(lambda f, **more: jstitch.jit(f, options=chosen, **more), args, {}, "cuda")
    known = kernel_traffic(last_report(since))
    compiled = 0
    for way in WAYS:
        try:
            alone = cost_of(plain, spec, way, {})
        except AnalysisError:
            continue
        compiled += 1
        yield Row(block, way, alone, cost_of(stitched, spec, way, known))
    if not compiled:
        raise AnalysisError("a block that XLA:GPU compiles", block.name)


@click.command("blocks")
@click.option("--seed", default=0, show_default=True)
@click.option("--count", default=30, show_default=True, help="How many blocks, kinds in turn.")
@click.option("--first", default=0, show_default=True, help="The first of them that is counted.")
@click.option("--ask/--no-ask", default=True, help="Whether XLA is asked which kernels pay.")
def blocks_command(seed: int, count: int, first: int, ask: bool) -> None:
    """Launches and bytes of drawn transformer blocks, by XLA:GPU on a machine without a GPU."""
    options = CompileOptions(ask_seconds=ASK_SECONDS if ask else 0.0)
    found: list[Row] = []
    for block in draw(seed, count)[first:]:
        for row in rows(block, options):
            found.append(row)
            click.echo(str(row))
    worse = [row for row in found if row.is_worse]
    click.echo(f"{len(found)} programs, {len(worse)} with more launches or bytes than XLA's own")
    raise SystemExit(int(bool(worse)))
