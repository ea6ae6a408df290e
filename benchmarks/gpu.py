"""`python -m benchmarks gpu`: everything that needs a GPU, within nine minutes, as one JSON file and a table.

1. correctness: `pytest -m gpu`
2. the benchmarks against jax.jit, and torch.compile where it is installed
3. compute-sanitizer (memcheck, racecheck) on a sample, where it is installed
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from benchmarks import machine, runner, suite, table, twins
from benchmarks.device import ROOT, Device, NoGpuError, describe_gpu, use
from benchmarks.measure import Settings
from benchmarks.runner import Malloc
from benchmarks.sides import Side
from benchmarks.workload import Size

Row = dict[str, Any]
SECONDS = 540.0
TESTS = 0.35  # of the time
SANITIZER = 0.15
PER_WORKLOAD = 0.6  # seconds of timing, of each workload and size
TOOLS = ("memcheck", "racecheck")
SAMPLE = ("tests/gpu/test_on_device.py", "-k", "sample")


@click.command("gpu")
@click.option("--json", "json_path", type=click.Path(path_type=Path), default=Path("gpu.json"))
@click.option("--filter", "pattern", default="", help="Only workloads whose name matches this expression.")
@click.option("--seconds", default=SECONDS, help="Time for everything.")
def gpu_command(json_path: Path, pattern: str, seconds: float) -> None:
    """Correctness, benchmarks and compute-sanitizer on this machine's GPU."""
    console = Console()
    console.width = max(console.width, suite.TABLE_WIDTH)
    try:
        gpu = describe_gpu()
    except NoGpuError as error:
        raise click.ClickException(str(error)) from None
    use(Device.CUDA)
    end = time.monotonic() + seconds
    result: Row = {"machine": machine.describe() | gpu, "side": Side.JSTITCH.value}
    result["tests"] = run_tests(seconds * TESTS)
    console.print(f"{gpu['gpu']}: {result['tests']['summary']}")
    result |= measure(console, pattern, gpu, end - seconds * SANITIZER)
    result["sanitizer"] = run_sanitizer(end)
    console.print(f"compute-sanitizer: {result['sanitizer']}")
    json_path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    console.print(f"written to {json_path}")
    wrong = result["tests"]["status"] or any("error" in row for row in result["rows"])
    raise SystemExit(int(bool(wrong) or any(v["status"] for v in result["sanitizer"].values())))


def run_tests(seconds: float) -> Row:
    """The exit status of `pytest -m gpu` and its last line."""
    return _run([sys.executable, "-m", "pytest", "-q", "-m", "gpu", "tests/gpu"], seconds)


def run_sanitizer(end: float) -> dict[str, Row]:
    """What each tool says of the sample; a reason in place of a status where it did not run."""
    tool = shutil.which("compute-sanitizer")
    if tool is None:
        reason = "not run: compute-sanitizer is not on the PATH"
        return {name: {"status": 0, "summary": reason} for name in TOOLS}
    sample = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", *SAMPLE]
    found = {}
    for left, name in zip(range(len(TOOLS), 0, -1), TOOLS, strict=True):
        command = [tool, f"--tool={name}", "--error-exitcode=3", "--target-processes=all", *sample]
        found[name] = _run(command, max(1.0, (end - time.monotonic()) / left))
    return found


def _run(command: list[str], seconds: float) -> Row:
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return {"status": 124, "summary": f"not finished within {seconds:.0f} s"}
    lines = (done.stdout + done.stderr).strip().splitlines() or [""]
    return {"status": done.returncode, "summary": lines[-1], "output": lines[-40:] if done.returncode else []}


def measure(console: Console, pattern: str, gpu: Row, end: float) -> Row:
    """Rows of all workloads that fit into the time, and their geometric means."""
    settings = Settings(Side.JSTITCH, (Size.DRAM,), PER_WORKLOAD, interleaved=False, alone=True)
    no_torch = twins.why_unavailable(cuda=True)
    if no_torch:
        console.print(f"torch.compile twins skipped: {no_torch}")
    jobs = runner.jobs(runner.select(pattern), (Malloc.DEFAULT,), not no_torch)
    rows, twin_rows = suite.collect(console, jobs, settings, end)
    merged = runner.merge(rows, twin_rows)
    table.show(console, merged, gpu["copy"])
    means = {way: suite.mean(merged, way) for way in suite.WAYS}
    return {"copy_bytes_per_second": gpu["copy"], "geometric_means": means, "rows": merged}
