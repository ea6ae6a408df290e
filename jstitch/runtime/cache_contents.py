"""What a kernel cache's folder holds, and how to empty it while other processes use it.

An entry is deleted as a whole; who wanted it builds it again. A file that a writer may still be busy with
stays.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from jstitch.runtime.cache import STALE_SECONDS, SUFFIX, Label, listing, read_label

UNKNOWN = Label("unknown", "another version's format")


@dataclass(frozen=True)
class Entry:
    """A file. used: when, to an hour, in seconds of the clock. label: UNKNOWN where it cannot be read."""

    path: Path
    nbytes: int
    used: float
    label: Label


def entries(directory: Path) -> list[Entry]:
    """In no order; [] for a folder that is not there."""
    files = ((path, stat) for path, stat in listing(directory) if path.suffix == SUFFIX)
    return [Entry(path, stat.st_size, stat.st_mtime, read_label(path) or UNKNOWN) for path, stat in files]


def leftovers(directory: Path) -> list[Entry]:
    """Files of writers that were killed."""
    now = time.time()
    return [
        Entry(path, stat.st_size, stat.st_mtime, UNKNOWN)
        for path, stat in listing(directory)
        if path.suffix == ".tmp" and now - stat.st_mtime > STALE_SECONDS
    ]


def delete(found: Iterable[Entry]) -> tuple[int, int]:
    """(files, bytes) that are gone. Raises OSError when one cannot be deleted."""
    files = nbytes = 0
    for entry in found:
        entry.path.unlink(missing_ok=True)
        files, nbytes = files + 1, nbytes + entry.nbytes
    return files, nbytes
