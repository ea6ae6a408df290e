"""What this machine is, and how fast it copies memory at each working-set size."""

from __future__ import annotations

import datetime
import importlib.metadata
import platform
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.workload import Size
from jstitch.runtime.process_block import available_threads

PACKAGES = ("jstitch", "jax", "jaxlib", "numba", "llvmlite", "numpy", "optax", "torch")
COPY_BYTES = {Size.L2: 512 * 1024, Size.L3: 12 * 2**20, Size.DRAM: 256 * 2**20}


def describe() -> dict[str, Any]:
    """CPU, Python, package versions and the date, as plain JSON values."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "cpu": cpu_name(),
        "cores": available_threads(),
        "system": platform.platform(),
        "python": sys.version.split()[0],
        "packages": {name: version for name in PACKAGES if (version := _version(name))},
    }


def cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown"
    )


def copy_bandwidth(size: Size, seconds: float = 0.2) -> float:
    """Bytes read plus bytes written per second by plain copies on all cores.

    Source and destination together, over all cores, fill `COPY_BYTES[size]`.
    """
    cores = available_threads()
    length = COPY_BYTES[size] // (2 * 8 * cores)
    pairs = [(np.ones(length), np.zeros(length)) for _ in range(cores)]
    with ThreadPoolExecutor(cores) as pool:
        copied = pool.map(lambda pair: _copy_for(pair[0], pair[1], seconds), pairs)
        return sum(copied)


def _copy_for(source: np.ndarray[Any, Any], target: np.ndarray[Any, Any], seconds: float) -> float:
    start, copies = time.perf_counter(), 0
    while (spent := time.perf_counter() - start) < seconds or copies == 0:
        for _ in range(8):
            np.copyto(target, source)
        copies += 8
    return copies * (source.nbytes + target.nbytes) / spent


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
