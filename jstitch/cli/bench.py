"""`jstitch bench module:function|FILE.mlir`: jax.jit against jstitch.jit, on this machine."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import click
import jax
from rich.table import Table

from jstitch.calibration import store
from jstitch.cli.console import plain_console
from jstitch.cli.files import bad_input
from jstitch.cli.progress import progress
from jstitch.cli.side_by_side import Checked, Sides, Times, check, prepare, race_alone, race_both, times_of
from jstitch.cli.subjects import ARGS, SUBJECT, read_subject, their_code
from jstitch.options import PLANNERS, TUNES, CompileOptions
from jstitch.runtime.device_name import cpu_device

STEPS = 4


@click.command("bench")
@SUBJECT
@ARGS
@click.option("--seconds", type=click.FloatRange(min=0.1), default=8.0, help="To measure; default: 8.")
@click.option("--planner", type=click.Choice(PLANNERS), default="auto")
@click.option("--tune", type=click.Choice(TUNES), default="model")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def bench(subject: str, args: str | None, seconds: float, planner: str, tune: str, as_json: bool) -> None:
    """Check that jax.jit and jstitch.jit compute the same, then time them in turn, and each alone.

    Shapes without values are filled with numbers in [0.1, 1). Donated arguments are carried from call to
    call.

    Status 1 when results differ; nothing is timed then.
    """
    wanted = read_subject(subject, args)
    with progress(STEPS) as begin, bad_input(subject), their_code(subject):
        begin("compiling")
        sides = prepare(wanted, CompileOptions(planner=planner, tune=tune))
        begin("checking results")
        checked = check(sides)
        found: dict[str, Any] = {"subject": subject, **_about(sides, checked)}
        if checked.complaint is None:
            begin("in turn")
            found |= _in_turn(sides, seconds / 2)
            begin("alone")
            found["alone"] = _sides(race_alone(sides, seconds / 2))
    if as_json:
        click.echo(json.dumps(found, indent=1))
    else:
        _print(found)
    if not found["same"]:
        raise SystemExit(1)


def _about(sides: Sides, checked: Checked) -> dict[str, Any]:
    device = jax.devices()[0]
    return {
        "device": cpu_device() if device.platform == "cpu" else device.device_kind,
        "kernels": checked.kernels,
        "reasons": list(checked.reasons),
        "same": checked.complaint is None,
        "complaint": checked.complaint,
        "largest_difference": checked.worst,
        **_bandwidth(sum(a.nbytes for a in sides.given) + checked.result_bytes),
    }


def _bandwidth(nbytes: int) -> dict[str, Any]:
    """What must be moved, and how long that takes at the speed that `jstitch calibrate` measured."""
    machine = store.load(store.place()) if jax.default_backend() == "cpu" else None
    least = nbytes / machine.bandwidths.at(nbytes) if machine and nbytes else None
    return {"bytes": nbytes, "copy_seconds": least}


def _in_turn(sides: Sides, seconds: float) -> dict[str, Any]:
    found = race_both(sides, seconds)
    ratio = found.ratio(1, 0)
    verdict = "faster" if ratio.is_less else "slower" if ratio.is_more else "not told apart"
    fields = {"ratio": ratio.value, "error": ratio.error, "verdict": verdict}
    return {"in_turn": {**_sides(times_of(found)), **fields}}


def _sides(times: tuple[Times, Times]) -> dict[str, Any]:
    plain, stitched = times
    return {"jax": asdict(plain), "jstitch": asdict(stitched)}


# -- printed -----------------------------------------------------------------------------------------------


def _print(found: dict[str, Any]) -> None:
    console = plain_console()
    click.echo(f"{found['subject']} on {found['device']}: {found['kernels']} kernels stitched")
    for reason in found["reasons"]:
        click.echo(f"  left to XLA: {reason}")
    if not found["same"]:
        click.echo(f"results differ: {found['complaint']}; `jstitch run --bisect` finds out where")
        return
    click.echo(f"results are the same, to {found['largest_difference']:.0e} of an output's largest element")
    table = Table()
    for name in ("", "jax.jit", "", "jstitch.jit", "", "time over jax.jit's"):
        table.add_column(name, justify="right" if name else "left")
    turn = found["in_turn"]
    ratio = f"{turn['ratio']:.2f} +- {100 * turn['error']:.0f} %, {turn['verdict']}"
    table.add_row("in turn", *_cells(turn), ratio)
    alone = found["alone"]
    over = alone["jstitch"]["median"] / alone["jax"]["median"]
    table.add_row("each alone", *_cells(alone), f"{over:.2f}")
    console.print(table)
    _print_bandwidth(found)


def _cells(sides: dict[str, Any]) -> tuple[str, ...]:
    """Median, and the quartiles around it."""
    cells = []
    for name in ("jax", "jstitch"):
        times = sides[name]
        cells += [_seconds(times["median"]), f"{_seconds(times['low'])} to {_seconds(times['high'])}"]
    return tuple(cells)


def _seconds(value: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value * 1e9:.0f} ns"


def _print_bandwidth(found: dict[str, Any]) -> None:
    text = f"arguments and results: {found['bytes']:,} bytes"
    least = found["copy_seconds"]
    if least is None:
        click.echo(f"{text}; `jstitch calibrate` measures how long copying them takes")
        return
    best = min(found[way]["jstitch"]["median"] for way in ("in_turn", "alone"))
    click.echo(
        f"{text}, {_seconds(least)} at the calibrated bandwidth: {100 * least / best:.0f} % of it reached"
    )
