"""The demo's command line."""

from __future__ import annotations

from collections.abc import Sequence

import click
import jax
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from jstitch.api import jit
from jstitch.demo.corpus import load_corpus
from jstitch.demo.model import ModelConfig
from jstitch.demo.report import show
from jstitch.demo.training import Side, TrainingConfig, prepare, train
from jstitch.runtime.report import Record, last_report, record_count

SMALL = ModelConfig(vocabulary=512, length=32, width=32, heads=2, layers=2)


@click.command()
@click.option("--steps", type=click.IntRange(min=1), default=100, show_default=True, help="Training steps.")
@click.option("--small", is_flag=True, help="A tiny model, for a quick look.")
def demo(steps: int, small: bool) -> None:
    """Train a small language model on the standard library's sources, under jax.jit and jstitch.jit in turn.

    Exits with status 1 when the two loss curves differ by more than 1e-4, relatively, or when no kernel was
    stitched.
    """
    console = Console()
    config = TrainingConfig(SMALL if small else ModelConfig(), steps=steps)
    corpus = load_corpus(config.model.vocabulary, 200_000 if small else 1_000_000)
    console.print(
        f"{len(corpus.ids):,} tokens of {corpus.vocabulary:,} kinds, from {corpus.files} files"
        " of Python's standard library"
    )
    since = record_count()
    with console.status("compiling under jax.jit and jstitch.jit"):
        sides = prepare("jax.jit", jax.jit, config), prepare("jstitch.jit", jit, config)
    records = last_report(since)
    columns = (TextColumn("training"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.description}"), console=console) as progress:
        task = progress.add_task("", total=steps)
        train(
            sides,
            config,
            corpus,
            lambda: progress.update(task, advance=1, description=_losses(sides)),
        )
    agree = show(console, *sides, records)
    _require_kernels(records)
    if not agree:
        raise SystemExit(1)


def _require_kernels(records: Sequence[Record]) -> None:
    """Raises ClickException (status 1) when jstitch.jit left everything to XLA."""
    if any(record.kernels for record in records):
        return
    reasons = "; ".join(dict.fromkeys(record.reason for record in records if record.reason))
    raise click.ClickException(
        f"expected stitched kernels in the training step, found none: {reasons or 'no reason was noted'}."
        " Set JSTITCH_STRICT=1 for the traceback, JSTITCH_DUMP_DIR=<folder> for the stages."
    )


def _losses(sides: tuple[Side, ...]) -> str:
    return ", ".join(f"{side.name} {side.losses[-1]:.3f}" for side in sides)
