"""A lock between processes and threads: an advisory lock on a file, given up when its holder dies.

with locked(folder / "measure.lock", seconds=5.0) as mine: ...
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jstitch.runtime.trusted import PRIVATE_FILE

try:
    import fcntl
except ImportError:  # not a POSIX system: no locks between processes
    fcntl = None  # type: ignore[assignment]

_POLL_SECONDS = 0.02
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)  # a lock of others' choosing is none


@contextmanager
def locked(path: Path, seconds: float = 30.0) -> Iterator[bool]:
    """Hold the file's lock inside the block; False when it was not to be had within `seconds`.

    Every `with` is a holder of its own, in one process too. Raises OSError when the file cannot be opened.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | _NO_LINK, PRIVATE_FILE)
    try:
        yield _acquire(handle, time.monotonic() + seconds)
    finally:
        os.close(handle)  # gives the lock up


def _acquire(handle: int, end: float) -> bool:
    if fcntl is None:
        return True
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
            time.sleep(_POLL_SECONDS)
