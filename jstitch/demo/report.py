"""What the demo prints: do the losses agree, how fast was each side, what was stitched."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from textwrap import shorten

from rich.console import Console
from rich.table import Table

from jstitch.demo.hlo import Kernel, ProgramCost, program_cost
from jstitch.demo.training import Side
from jstitch.runtime.report import Record

BARS = "▁▂▃▄▅▆▇█"
LARGEST = 8
LAYOUT = re.compile(r"\{[\d,]*\}")
TOLERANCE = 1e-4


def largest_difference(found: Sequence[float], expected: Sequence[float]) -> float:
    """The largest |found - expected| / |expected|; infinite where either is not a number."""
    differences = [abs(a - b) / abs(b) for a, b in zip(found, expected, strict=True)]
    return max((math.inf if math.isnan(d) else d for d in differences), default=0.0)


def sparkline(values: Sequence[float], width: int = 50) -> str:
    """The values as bars, thinned out to at most `width` of them."""
    shown = [values[i * len(values) // width] for i in range(width)] if len(values) > width else list(values)
    low, high = min(shown), max(shown)
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(BARS[round((value - low) * scale)] for value in shown)


def show(console: Console, reference: Side, stitched: Side, records: Sequence[Record]) -> bool:
    """Print everything; True when the losses agree within TOLERANCE."""
    before, after = program_cost(reference.hlo), program_cost(stitched.hlo)
    agree = _show_losses(console, reference, stitched)
    console.print(_sides(((reference, before), (stitched, after))))
    console.print(f"[bold]{reference.median_ms / stitched.median_ms:.2f}x[/] the speed of {reference.name}\n")
    if after.stitched:
        console.print(_largest(after.stitched))
    for reason in dict.fromkeys(record.reason for record in records if record.reason):
        console.print(f"left to XLA: {reason}", highlight=False)
    return agree


def _show_losses(console: Console, reference: Side, stitched: Side) -> bool:
    worst = largest_difference(stitched.losses, reference.losses)
    for side in (reference, stitched):
        console.print(
            f"{side.name:>12} loss {sparkline(side.losses)} {side.losses[0]:.5f} -> {side.losses[-1]:.5f}"
        )
    agree = worst <= TOLERANCE
    verdict = "[green]agree[/]" if agree else "[bold red]DISAGREE[/]"
    console.print(
        f"losses {verdict}: largest relative difference {worst:.1e} over {len(reference.losses)} steps\n"
    )
    return agree


def _sides(sides: Sequence[tuple[Side, ProgramCost]]) -> Table:
    table = Table(title="one training step")
    for name in ("", "ms per step", "compile s", "kernels", "of them stitched", "MB read and written"):
        table.add_column(name, justify="right")
    for side, cost in sides:
        table.add_row(
            side.name,
            f"{side.median_ms:.1f}",
            f"{side.compile_seconds:.1f}",
            str(len(cost.kernels)),
            str(len(cost.stitched)),
            f"{cost.nbytes / 1e6:.0f}",
        )
    return table


def _largest(kernels: Sequence[Kernel]) -> Table:
    table = Table(title=f"largest of {len(kernels)} stitched kernels")
    table.add_column("kernel", overflow="fold")
    table.add_column("MB", justify="right", no_wrap=True)
    table.add_column("results", overflow="fold")
    for kernel in sorted(kernels, key=lambda kernel: -kernel.nbytes)[:LARGEST]:
        table.add_row(kernel.name, f"{kernel.nbytes / 1e6:.2f}", _short(kernel.type))
    return table


def _short(hlo_type: str) -> str:
    """The type without its layouts, and only the first of many arrays."""
    return shorten(LAYOUT.sub("", hlo_type), width=60, placeholder=" ...")
