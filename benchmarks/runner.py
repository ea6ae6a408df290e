"""Run the suite: each family and each malloc setting in a process of its own, rows collected.

The C library reads its malloc settings when a process starts, and one workload's heap is the next one's luck:
hence the processes.
"""

from __future__ import annotations

import enum
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.measure import Settings
from benchmarks.workload import Workload
from benchmarks.workloads import ENVIRONMENT, SUITE

Row = dict[str, Any]


class Malloc(enum.Enum):
    """The C library's defaults, or memory that is never given back to the system (no page faults)."""

    DEFAULT = "default"
    TUNED = "tuned"

    @property
    def environment(self) -> dict[str, str]:
        if self is Malloc.DEFAULT:
            return {}
        most = str(2**31 - 1)
        return {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": most, "MALLOC_TRIM_THRESHOLD_": most}


@dataclass(frozen=True)
class Job:
    """One child process: the workloads of one family, in one malloc setting; the twins in another process."""

    family: str
    workloads: tuple[Workload, ...]
    malloc: Malloc
    twins: bool = False

    def __str__(self) -> str:
        return f"{self.family}{' (torch)' if self.twins else ''}, {self.malloc.value} malloc"


def select(pattern: str) -> dict[str, tuple[Workload, ...]]:
    """Families with the workloads whose name contains a match of the regular expression."""
    matching = {
        family: tuple(w for w in workloads if re.search(pattern, w.name))
        for family, workloads in SUITE.items()
    }
    return {family: workloads for family, workloads in matching.items() if workloads}


def jobs(families: dict[str, tuple[Workload, ...]], mallocs: tuple[Malloc, ...], twins: bool) -> list[Job]:
    compared = [Job(name, workloads, malloc) for malloc in mallocs for name, workloads in families.items()]
    with_twin = {n: tuple(w for w in ws if w.torch is not None) for n, ws in families.items()}
    torch = [Job(n, ws, malloc, True) for malloc in mallocs for n, ws in with_twin.items() if ws and twins]
    return compared + torch


def run_job(job: Job, settings: Settings) -> Iterator[Row]:
    """Rows as the child prints them; one error row per measurement that a dead child still owed."""
    owed = [(w.name, size.value) for w in job.workloads for size in settings.sizes]
    child = subprocess.Popen(
        _command(job, settings),
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).resolve().parents[1],
        env={**os.environ, **ENVIRONMENT.get(job.family, {}), **job.malloc.environment},
    )
    with child:
        assert child.stdout is not None
        for line in child.stdout:
            if not line.startswith("{"):
                print(line, end="", file=sys.stderr)
                continue
            row = json.loads(line)
            owed.remove((row["workload"], row["size"]))
            yield row | {"malloc": job.malloc.value, "family": job.family}
    for workload, size in owed:
        error = f"the process of {job} ended with status {child.returncode}"
        yield {"workload": workload, "size": size, "malloc": job.malloc.value, "error": error}


def _command(job: Job, settings: Settings) -> list[str]:
    ways = ["--interleaved"] * settings.interleaved + ["--alone"] * settings.alone
    return [
        *(sys.executable, "-m", "benchmarks", "child", job.family),
        *(f"--workload={w.name}" for w in job.workloads),
        f"--sizes={','.join(size.value for size in settings.sizes)}",
        f"--seconds={settings.seconds}",
        f"--side={settings.side.value}",
        *(["--twins"] if job.twins else []),
        *(["--only", ways[0].removeprefix("--")] if len(ways) == 1 else []),
    ]


def merge(rows: list[Row], twins: list[Row]) -> list[Row]:
    """Rows with the torch times (or the reason there are none) of the same workload, size and malloc."""
    found = {_key(row): row for row in twins}
    return [row | _twin_fields(found.get(_key(row), {})) for row in rows]


def _twin_fields(twin: Row) -> Row:
    if "torch" in twin:
        return {"torch": twin["torch"]}
    return {"torch_error": twin["error"]} if "error" in twin else {}


def _key(row: Row) -> tuple[str, str, str]:
    return row["workload"], row["size"], row["malloc"]
