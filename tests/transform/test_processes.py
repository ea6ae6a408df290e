"""Several processes train what one does; each finds the other's kernels in the cache, or makes its own."""

from __future__ import annotations

import ast
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np

SCRIPT = Path(__file__).parent / "one_process.py"
SECONDS = 240


def start(number: int, count: int, port: int, cache: Path) -> subprocess.Popen[str]:
    environment = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "JSTITCH_VERIFY")}
    environment |= {"JSTITCH_CACHE_DIR": str(cache)}
    command = [sys.executable, str(SCRIPT), str(number), str(count), str(port)]
    return subprocess.Popen(
        command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def results(processes: list[subprocess.Popen[str]]) -> list[tuple[int, list[float]]]:
    found = []
    for process in processes:
        out, err = process.communicate(timeout=SECONDS)
        assert process.returncode == 0, err[-2000:]
        said = next(line for line in out.splitlines() if line.startswith("kernels"))
        _, kernels, _, losses = said.split(maxsplit=3)
        found.append((int(kernels), ast.literal_eval(losses)))
    return found


def test_two_processes_train_what_one_does(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    (alone,) = results([start(0, 1, 0, tmp_path / "alone")])
    both = results([start(number, 2, port, tmp_path / "both") for number in range(2)])
    assert alone[0] > 0
    for kernels, losses in both:
        assert kernels == alone[0]
        np.testing.assert_allclose(losses, alone[1], rtol=1e-5)
    assert losses[-1] < losses[0]
