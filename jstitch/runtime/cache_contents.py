"""What a kernel cache's folder holds, and how to empty it while other processes use it.

An entry is deleted as a whole; who wanted it builds it again. A file that a writer may still be busy with
stays.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from jstitch.runtime.cache import STALE_SECONDS, SUFFIX, Label, is_apart, read_label
from jstitch.runtime.trusted import TEMPORARY, open_folder

UNKNOWN = Label("unknown", "another version's format")


@dataclass(frozen=True)
class Entry:
    """A file. used: when, to an hour, in seconds of the clock. label: UNKNOWN where it cannot be read."""

    path: Path
    nbytes: int
    used: float
    label: Label


def entries(directory: Path) -> list[Entry]:
    """In no order; [] for a folder that is not there. Raises UntrustedError, OSError."""
    files = ((path, found) for path, found in _files(directory) if path.suffix == SUFFIX)
    return [Entry(path, found.st_size, found.st_mtime, read_label(path) or UNKNOWN) for path, found in files]


def leftovers(directory: Path) -> list[Entry]:
    """Files of writers that were killed. Raises UntrustedError, OSError."""
    now = time.time()
    return [
        Entry(path, found.st_size, found.st_mtime, UNKNOWN)
        for path, found in _files(directory)
        if path.suffix == TEMPORARY and is_apart(found.st_mtime, now, STALE_SECONDS)
    ]


def delete(found: Iterable[Entry]) -> tuple[int, int]:
    """(files, bytes) that are gone. Raises OSError when one cannot be deleted."""
    files = nbytes = 0
    for entry in found:
        entry.path.unlink(missing_ok=True)
        files, nbytes = files + 1, nbytes + entry.nbytes
    return files, nbytes


def _files(directory: Path) -> list[tuple[Path, os.stat_result]]:
    with suppress(FileNotFoundError), open_folder(directory) as folder:
        return [(directory / name, found) for name, found in folder.files()]
    return []
