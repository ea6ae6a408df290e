"""Devices as keys of measured times, and how much of their memory is free."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path
from typing import Any

from jstitch.runtime.native_object import host_processor
from jstitch.runtime.process_block import available_threads


@cache
def cpu_device() -> str:
    """Model, LLVM's name of it, usable cores: `cpu AMD EPYC 7763 znver3, 2 cores`."""
    return f"cpu {_model()} {host_processor().split()[1]}, {available_threads()} cores"


def gpu_device(kind: str) -> str:
    """kind: JAX's `device_kind`."""
    return f"cuda {kind}"


def _model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def free_bytes(device: Any) -> int | None:
    """Of a JAX device's memory; None where nobody says."""
    if device.platform != "cpu":
        stats = device.memory_stats() or {}
        return stats["bytes_limit"] - stats["bytes_in_use"] if "bytes_limit" in stats else None
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    kilobytes = (line.split()[1] for line in lines if line.startswith("MemAvailable:"))
    return next((int(found) * 1024 for found in kilobytes), None)
