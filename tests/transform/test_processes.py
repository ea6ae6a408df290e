"""Several processes train what one does; each finds the other's kernels in the cache, or makes its own."""

from __future__ import annotations

import ast
import os
import socket
import subprocess
import sys
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from jstitch.runtime.cache import kernel_store
from jstitch.runtime.cache_contents import entries

SCRIPT = Path(__file__).parent / "one_process.py"
SECONDS = 240


def start(number: int, count: int, port: int, cache: Path, steps: int = 4) -> subprocess.Popen[str]:
    environment = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "JSTITCH_VERIFY")}
    environment |= {"JSTITCH_CACHE_DIR": str(cache)}
    command = [sys.executable, str(SCRIPT), *map(str, (number, count, port, steps))]
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


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return int(free.getsockname()[1])


def test_two_processes_train_what_one_does(tmp_path: Path) -> None:
    port = free_port()
    (alone,) = results([start(0, 1, 0, tmp_path / "alone")])
    both = results([start(number, 2, port, tmp_path / "both") for number in range(2)])
    assert alone[0] > 0
    for kernels, losses in both:
        assert kernels == alone[0]
        np.testing.assert_allclose(losses, alone[1], rtol=1e-5)
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("killed", [0, 1])
def test_a_killed_process_is_an_error_in_the_other(tmp_path: Path, killed: int) -> None:
    """Within JAX's own timeout, not a hang. Process 0 is also the one that coordinates."""
    port = free_port()
    both = [start(number, 2, port, tmp_path, steps=10**6) for number in range(2)]
    try:
        stream = both[killed].stdout
        assert stream is not None
        assert len([*islice((line for line in stream if line.startswith("loss")), 2)]) == 2
        both[killed].kill()
        _, said = both[1 - killed].communicate(timeout=SECONDS)
        assert both[1 - killed].returncode != 0
        assert "error" in said.lower(), said[-2000:]
    finally:
        for process in both:
            process.kill()


@pytest.mark.once
def test_four_processes_compile_at_once(tmp_path: Path) -> None:
    """One cache: nothing is lost or damaged, and a fifth process finds all that it needs."""
    found = results([start(0, 1, 0, tmp_path) for _ in range(4)])
    assert found[0][0] > 0
    assert found == found[:1] * 4
    cache = kernel_store(str(tmp_path))
    kept = {entry.path for entry in entries(cache.directory)}
    assert kept
    assert all(cache.get(path.stem) for path in kept)
    assert not [*tmp_path.rglob("*.tmp")]
    (again,) = results([start(0, 1, 0, tmp_path)])
    assert again == found[0]
    assert {entry.path for entry in entries(cache.directory)} == kept
