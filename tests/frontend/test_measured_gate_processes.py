"""Processes that measure at once, one after another, and are killed: what the library then knows."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent


def start(folder: Path, *args: str) -> subprocess.Popen[str]:
    paths = [str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")]
    variables = {
        "JSTITCH_CACHE_DIR": str(folder),
        "PYTHONPATH": os.pathsep.join(paths),
        "JSTITCH_STRICT": "1",
    }
    command = [sys.executable, str(HERE / "tuned.py"), *args]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | variables)


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


def test_a_bad_kernel_is_rejected_and_stays_rejected_in_the_next_process(tmp_path: Path) -> None:
    first = finish(start(tmp_path, "bad", "256"))
    assert first["races"] == 2  # the pattern; then the model's plan, which has the same kernel
    assert first["decisions"] == [["soft_row_0", "xla", "measured"], ["function", "xla", "measured"]]
    second = finish(start(tmp_path, "bad", "256"))
    assert second["races"] == 0
    assert second["decisions"] == [["soft_row_0", "xla", "stored"], ["function", "xla", "stored"]]
    good = finish(start(tmp_path, "good", "256"))  # another kernel: what is known of the bad one is not used
    assert good["races"] == 2


def tune_at_once(folder: Path, processes: int, kill: int, shapes: list[str]) -> None:
    """Kill some of the processes at some moment; the others finish, and the next one measures nothing."""
    running = [start(folder, "good", *shapes) for _ in range(processes)]
    library = folder / "performance.db"
    end = time.monotonic() + 200
    while not library.exists() and time.monotonic() < end:
        time.sleep(0.02)
    for n, process in enumerate(running[:kill]):
        time.sleep(0.1 + 0.2 * n)
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=60)
    for process in running[kill:]:
        found = finish(process)
        assert {how for *_, how in found["decisions"]} <= {"measured", "stored"}
    last = finish(start(folder, "good", *shapes))
    assert last["races"] == 0
    assert {how for *_, how in last["decisions"]} == {"stored"}


def test_processes_that_tune_at_once_and_are_killed(tmp_path: Path) -> None:
    tune_at_once(tmp_path, processes=3, kill=1, shapes=["48", "80"])


@pytest.mark.slow
def test_eight_processes_that_tune_at_once_and_are_killed(tmp_path: Path) -> None:
    tune_at_once(tmp_path, processes=8, kill=4, shapes=["32", "64", "96", "128", "160"])
