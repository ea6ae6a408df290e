"""What kernels of a program take on a GPU, by JAX's profiler: without what calls and their results cost.

kernel_times(step, calls=3)      {"layer_norm_row_0_phase0": KernelTime(launches=1.0, seconds=1.4e-4)}
"""

from __future__ import annotations

import statistics
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

CALLS = 3
PLANE, STREAM = "/device:GPU", "Stream"


@dataclass(frozen=True)
class KernelTime:
    """Of one kernel. launches: in each call. seconds: of all of them, the median of the calls."""

    launches: float
    seconds: float


class NoTimesError(Exception):
    """The profiler has seen no kernel."""


def kernel_times(step: Callable[[], Any], calls: int = CALLS) -> Mapping[str, KernelTime]:
    """By name, what each kernel takes in one call of `step`, copies too. Raises NoTimesError."""
    with tempfile.TemporaryDirectory(prefix="jstitch-times-") as folder:
        with jax.profiler.trace(folder):
            for _ in range(calls):
                jax.block_until_ready(step())  # type: ignore[no-untyped-call]
        found = _durations(next(Path(folder).rglob("*.xplane.pb")))
    if not found:
        raise NoTimesError
    return {name: _of_calls(seconds, calls) for name, seconds in found.items()}


def _of_calls(seconds: list[float], calls: int) -> KernelTime:
    launches = len(seconds) / calls
    return KernelTime(launches, launches * statistics.median(seconds))


def _durations(path: Path) -> dict[str, list[float]]:
    """Seconds of each kernel's launches, from a profile."""
    found: dict[str, list[float]] = defaultdict(list)
    for plane in jax.profiler.ProfileData.from_file(str(path)).planes:
        if not plane.name.startswith(PLANE):
            continue
        for line in plane.lines:
            if line.name.startswith(STREAM):
                for event in line.events:
                    found[event.name].append(event.duration_ns * 1e-9)
    return found
