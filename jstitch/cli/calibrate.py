"""`jstitch calibrate`: measure this machine for the cost models, once."""

from __future__ import annotations

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from jstitch.calibration import measure, store
from jstitch.cli.console import plain_console
from jstitch.passes.base.bandwidth_curve import BandwidthCurve
from jstitch.passes.base.machine import Machine


@click.command()
@click.option("--show", is_flag=True, help="Print what the cost models use, and measure nothing.")
@click.option("--clear", is_flag=True, help="Forget what was measured.")
@click.option("--seconds", default=25.0, show_default=True, help="Time to spend.")
def calibrate(show: bool, clear: bool, seconds: float) -> None:
    """Measure this machine's memory, arithmetic and calls, on an otherwise idle machine.

    The numbers are kept in the cache folder (JSTITCH_CACHE_DIR) for this processor, number of cores and
    version; from then on the cost models reckon with them. CompileOptions(calibrated=False) ignores them.
    """
    if show and clear:
        raise click.UsageError("--show and --clear are two things: give one of them")
    console, where = plain_console(), store.place()
    if clear:
        console.print("forgotten" if store.clear(where) else "nothing was measured")
        return
    if not show:
        _measure(where, seconds)
    _print(console, where)


def _measure(where: store.Place, seconds: float) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=measure.STEPS)
        done = -1

        def advance(name: str) -> None:
            nonlocal done
            done += 1
            progress.update(task, completed=done, description=name)

        machine = measure.calibrate(advance, seconds / measure.STEPS)
    try:
        store.save(machine, where)
    except OSError as error:
        raise click.ClickException(
            f"expected to write {where.path}, found: {error}. Set JSTITCH_CACHE_DIR to a writable folder."
        ) from None


def _print(console: Console, where: store.Place) -> None:
    machine = store.load(where)
    console.print(f"measured, {where.path}" if machine else "the shipped defaults: nothing was measured")
    machine = machine or Machine()
    table = Table()
    for name in ("", "default", "used"):
        table.add_column(name, justify="left" if not name else "right")
    for name, text in _numbers(machine).items():
        table.add_row(name, _numbers(Machine())[name], text)
    console.print(table)
    console.print(_curves(machine))


def _numbers(machine: Machine) -> dict[str, str]:
    return {
        "one core, a light op on one number": f"{machine.lane_cycle * machine.cores * 1e12:.1f} ps",
        "cores": f"{machine.cores:.0f}",
        "bytes of a vector": str(machine.vector_bytes),
        "a core's own cache": f"{machine.near_bytes // 1024} KiB",
        "a small kernel of XLA's": f"{machine.launch * 1e9:.0f} ns",
        "a call of ours": f"{machine.call_seconds * 1e9:.0f} ns",
        "a buffer of a call": f"{machine.operand * 1e9:.1f} ns",
        "a phase on all cores": f"{machine.fork * 1e9:.0f} ns",
    }


def _curves(machine: Machine) -> Table:
    table = Table(title="memory, bytes read and written")
    for name in ("in use", "one core GB/s", "all cores GB/s"):
        table.add_column(name, justify="right")
    sizes = sorted({size for curve in _both(machine) for size, _ in curve.points})
    for size in sizes:
        cells = (dict(curve.points).get(size) for curve in _both(machine))
        table.add_row(f"{size / 1024:.0f} KiB", *(f"{c / 1e9:.0f}" if c else "" for c in cells))
    return table


def _both(machine: Machine) -> tuple[BandwidthCurve, BandwidthCurve]:
    return machine.lone_bandwidths, machine.bandwidths
