"""`python -m benchmarks gpu`: everything that needs a GPU, within nine minutes, as one JSON file and a table.

1. correctness: `pytest -m gpu`, and each case beside jax.jit
2. the time of each case's kernels, beside those of jax.jit
3. compute-sanitizer (memcheck, racecheck) on a sample, where it is installed and time is left
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from importlib import util
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks import machine, suite
from benchmarks.device import ROOT, Device, NoGpuError, describe_gpu, use
from benchmarks.gpu_times import WORKERS, case_names, check_all
from benchmarks.table import geometric_mean

Row = dict[str, Any]
SECONDS = 540.0
TESTS, CHECKS, TIMES = 0.32, 0.33, 0.35  # of the time
TOOLS = ("memcheck", "racecheck")
SAMPLE = ("tests/gpu/test_on_device.py", "-k", "sample")
LEAST_SECONDS = 20.0  # that compute-sanitizer needs to start
SLOWER = 0.95


@click.command("gpu")
@click.option("--json", "json_path", type=click.Path(path_type=Path), default=Path("gpu.json"))
@click.option("--filter", "pattern", default="", help="Only cases whose name matches this expression.")
@click.option("--seconds", default=SECONDS, help="Time for everything.")
def gpu_command(json_path: Path, pattern: str, seconds: float) -> None:
    """Correctness, kernel times and compute-sanitizer on this machine's GPU."""
    console = Console()
    console.width = max(console.width, suite.TABLE_WIDTH)
    try:
        gpu = describe_gpu()
    except NoGpuError as error:
        raise click.ClickException(str(error)) from None
    use(Device.CUDA)
    end = time.monotonic() + seconds
    names = [name for name in case_names() if re.search(pattern, name)]
    result: Row = {"machine": machine.describe() | gpu, "copy_bytes_per_second": gpu["copy"]}
    result["tests"] = run_tests(seconds * TESTS)
    console.print(f"{gpu['gpu']}: {result['tests']['summary']}")
    result["checks"] = list(check_all(names, seconds * CHECKS))
    wrong = [row for row in result["checks"] if "error" in row]
    console.print(f"{len(result['checks'])} of {len(names)} cases checked, {len(wrong)} are wrong")
    right = [row["name"] for row in result["checks"] if "error" not in row]
    result["rows"] = run_times(right, min(seconds * TIMES, end - time.monotonic()))
    result["geometric_mean"] = show(console, result["rows"])
    result["sanitizer"] = run_sanitizer(end)
    console.print(f"compute-sanitizer: {result['sanitizer']}")
    json_path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    console.print(f"written to {json_path}")
    failed = result["tests"]["status"] or wrong or any(v["status"] for v in result["sanitizer"].values())
    raise SystemExit(int(bool(failed)))


def run_tests(seconds: float) -> Row:
    """The exit status of `pytest -m gpu` and its last line; side by side where pytest-xdist is installed."""
    together = ("-n", str(WORKERS)) if util.find_spec("xdist") else ()
    return _run([sys.executable, "-m", "pytest", "-q", *together, "-m", "gpu", "tests/gpu"], seconds)


def run_times(names: list[str], seconds: float) -> list[Row]:
    """Rows of a process of its own, which has the GPU for itself."""
    with tempfile.TemporaryDirectory(prefix="jstitch-gpu-") as folder:
        path = Path(folder) / "rows.json"
        command = [sys.executable, "-m", "benchmarks", "gpu-times", "--seconds", str(max(1.0, seconds - 20))]
        done = _run([*command, "--json", str(path), *names], seconds + 60)
        if path.exists():
            rows: list[Row] = json.loads(path.read_text(encoding="utf-8"))
            return rows
        return [{"name": name, "error": done["summary"]} for name in names]


def show(console: Console, rows: list[Row]) -> float:
    """The table; the geometric mean of the ratios (nan of none)."""
    table = Table(title="microseconds of kernels, launches, and bytes of arguments and results a second")
    for head in ("case", "jax.jit", "jstitch.jit", "ratio", "launches", "GB/s"):
        table.add_column(head, justify="left" if head == "case" else "right")
    for row in rows:
        table.add_row(row["name"], *_cells(row))
    console.print(table)
    ratios = [row["ratio"] for row in rows if "ratio" in row]
    mean = geometric_mean(ratios) if ratios else math.nan
    console.print(
        f"{len(ratios)} cases, geometric mean {mean:.2f}x, {sum(r < SLOWER for r in ratios)} slower"
    )
    return mean


def _cells(row: Row) -> tuple[str, ...]:
    if "ratio" not in row:
        return row["error"][:40], "", "", "", ""
    theirs, ours = row["jax"], row["jstitch"]
    color = "red" if row["ratio"] < SLOWER else "green"
    return (
        f"{theirs['seconds'] * 1e6:,.1f}",
        f"{ours['seconds'] * 1e6:,.1f}",
        f"[{color}]{row['ratio']:.2f}[/]",
        f"{theirs['launches']:.0f} -> {ours['launches']:.0f}",
        f"{row['bytes_per_second'] / 1e9:,.0f}",
    )


def run_sanitizer(end: float) -> dict[str, Row]:
    """What each tool says of the sample; a reason in place of a status where it did not run."""
    tool = shutil.which("compute-sanitizer")
    reason = "not run: compute-sanitizer is not on the PATH" if tool is None else "not run: no time was left"
    found: dict[str, Row] = {}
    for left, name in zip(range(len(TOOLS), 0, -1), TOOLS, strict=True):
        seconds = (end - time.monotonic()) / left
        if tool is None or seconds < LEAST_SECONDS:
            found[name] = {"status": 0, "summary": reason}
            continue
        sample = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", *SAMPLE]
        command = [tool, f"--tool={name}", "--error-exitcode=3", "--target-processes=all", *sample]
        found[name] = _run(command, seconds)
    return found


def _run(command: list[str], seconds: float) -> Row:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=ROOT, timeout=seconds, check=False, env=os.environ
        )
    except subprocess.TimeoutExpired:
        return {"status": 124, "summary": f"not finished within {seconds:.0f} s"}
    said, complained = (text.strip().splitlines() for text in (done.stdout, done.stderr))
    summary = (said or complained or [""])[-1]
    output = [*said, *complained][-40:] if done.returncode else []
    return {"status": done.returncode, "summary": summary, "output": output}
