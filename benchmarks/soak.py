"""`python -m benchmarks soak`: hours of compilations in minutes, and everything that goes wrong around them.

    share of the time   what runs
    0.50                one process with jstitch.jit: how large it becomes
    0.25                the same programs with jax.jit, for comparison: XLA and JAX keep some of each, too
    0.25                troubles, a process each: a cache too small, a full disk, no cache, somebody else's, a
                        clock that jumps, and writers that are killed while files are damaged

Results are compared with those of `jax.jit` throughout. The slopes are of the second half of each series.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import machine
from benchmarks.soak_worker import TROUBLES, Row
from jstitch.runtime.cache import SUFFIX

ROOT = Path(__file__).resolve().parents[1]
SIDES = {"jstitch": 0.5, "jax": 0.25}
MEASURES = ("resident", "open_files", "native_threads", "objects", "temporary")
EIGHT_HOURS = 8 * 3600.0
DAMAGED = "found a damaged entry"


@click.command("soak")
@click.option("--seconds", default=900.0, show_default=True, help="How long in all.")
@click.option("--threads", default=2, show_default=True, help="That compile, in each process.")
@click.option("--seed", default=0, show_default=True)
@click.option("--json", "path", type=click.Path(path_type=Path), help="Write all rows here.")
def soak_command(seconds: float, threads: int, seed: int, path: Path | None) -> None:
    """Compile programs for a long time, in bad weather, and see what grows. Status 1 for wrong results."""
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        found = soak(seconds, threads, seed, Path(folder))
    _show(found)
    if path:
        text = json.dumps({"machine": machine.describe(), "seed": seed, **found}, indent=1)
        path.write_text(text + "\n", encoding="utf-8")
    if found["problems"]:
        raise SystemExit(1)


def soak(seconds: float, threads: int, seed: int, folder: Path) -> dict[str, Any]:
    """All series, what they grow by, and what was wrong."""
    series = {
        side: list(_rows(folder / side, side, seconds * share, threads, seed))
        for side, share in SIDES.items()
    }
    left = seconds * (1 - sum(SIDES.values())) / len(TROUBLES)
    bad = {t: list(_rows(folder / t, "jstitch", left, threads, seed + 1, t)) for t in TROUBLES if t != "none"}
    bad["killed writers"] = list(_killed(folder / "killed", left, threads, seed + 1))
    all_rows = [row for rows in (*series.values(), *bad.values()) for row in rows]
    return {
        "seconds": seconds,
        "threads": threads,
        "growth": {side: growth(rows) for side, rows in series.items()},
        "troubles": {trouble: _told(rows) for trouble, rows in bad.items()},
        "problems": [problem for row in all_rows for problem in row["problems"]],
        "series": series,
    }


def growth(rows: Sequence[Row]) -> dict[str, float]:
    """Of each measure, per program, in the second half; and what that is in eight hours of this pace."""
    late = rows[len(rows) // 2 :]
    if len(late) < 3:
        return {}
    programs = np.array([row["programs"] for row in late], float)
    found = {name: float(np.polyfit(programs, [row[name] for row in late], 1)[0]) for name in MEASURES}
    pace = (programs[-1] - programs[0]) / max(late[-1]["seconds"] - late[0]["seconds"], 1e-9)
    kernels = (late[-1]["kernels"] - late[0]["kernels"]) / max(programs[-1] - programs[0], 1)
    eight = found["resident"] * pace * EIGHT_HOURS
    return {**found, "programs_per_second": pace, "kernels": kernels, "eight_hours": eight}


def _told(rows: Sequence[Row]) -> dict[str, Any]:
    """Of one trouble: how much was checked, what jstitch said of it, what it left."""
    last = rows[-1] if rows else {}
    said = list(dict.fromkeys(text for row in rows for text in row["said"]))
    kept = {name: last.get(name, 0) for name in ("cache_files", "cache_bytes", "temporary")}
    return {
        "programs": last.get("programs", 0),
        **kept,
        "said": said,
        "warnings": sum(len(row["said"]) for row in rows),
    }


def _rows(
    folder: Path, side: str, seconds: float, threads: int, seed: int, trouble: str = "none"
) -> Iterator[Row]:
    """What a worker says until it ends by itself; that it does not is a problem."""
    worker = _start(folder, side, seconds, threads, seed, trouble)
    with worker:
        assert worker.stdout is not None
        yield from map(json.loads, worker.stdout)
    if worker.returncode:
        yield {"programs": 0, "said": [], "problems": [f"{side}, {trouble}: status {worker.returncode}"]}


def _start(
    folder: Path, side: str, seconds: float, threads: int, seed: int, trouble: str = "none"
) -> subprocess.Popen[str]:
    folder.mkdir(exist_ok=True)
    values = {"side": side, "seconds": seconds, "threads": threads, "seed": seed, "trouble": trouble}
    options = [f"--{name}={value}" for name, value in values.items()]
    around = {"JSTITCH_CACHE_DIR": str(folder), "TMPDIR": str(folder), "JSTITCH_ASK_SECONDS": "0"}
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks", "soak-child", *options],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, **around},
    )


def _killed(folder: Path, seconds: float, threads: int, seed: int) -> Iterator[Row]:
    """Workers that share a cache and are killed at any moment, entries that are damaged; then a quiet one."""
    numbers, end = random.Random(seed), time.monotonic() + 0.6 * seconds
    while time.monotonic() < end:
        pair = [_start(folder, "jstitch", seconds, threads, seed) for _ in range(2)]
        for worker in pair:
            with worker:
                assert worker.stdout is not None
                worker.stdout.readline()  # it has begun to write
                time.sleep(numbers.uniform(0, 1))
                worker.kill()
        _damage(folder / "kernels", numbers)
    yield from _rows(folder, "jstitch", 0.4 * seconds, threads, seed)


def _damage(directory: Path, numbers: random.Random) -> None:
    """A third of the entries: cut, or with another byte."""
    for path in sorted(directory.glob(f"*{SUFFIX}")):
        data = bytearray(path.read_bytes())
        match numbers.randrange(6):
            case 0:
                path.write_bytes(data[: len(data) // 2])
            case 1 if data:
                data[numbers.randrange(len(data))] ^= 0x40
                path.write_bytes(data)


def _show(found: dict[str, Any]) -> None:
    console, table = Console(width=130), Table(title="growth for each program, in the second half")
    for name in ("", *MEASURES, "kernels", "programs/s", "8 hours, MB"):
        table.add_column(name, justify="right")
    for side, grown in found["growth"].items():
        if grown:
            cells = [f"{grown[name]:,.3g}" for name in (*MEASURES, "kernels", "programs_per_second")]
            table.add_row(side, *cells, f"{grown['eight_hours'] / 1e6:,.0f}")
    console.print(table)
    for trouble, told in found["troubles"].items():
        console.print(f"{trouble}: {told['programs']} programs, {told['warnings']} warnings", markup=False)
    for problem in found["problems"]:
        console.print(problem, markup=False)
