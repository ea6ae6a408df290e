"""Python's garbage collector waits while a program is compiled.

A pipeline makes many objects and hardly a cycle of them: a full collection, which looks at every object of
the process, takes a tenth of a second beside JAX alone, and finds nothing.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_pausing: list[int] = []  # a thread's number for each block that it is in
_resume = False


@contextmanager
def collector_paused() -> Iterator[None]:
    """No automatic collection until every such block, on any thread, has ended. `gc.collect()` still works.

    A collector that the user has switched off stays off.
    """
    global _resume
    with _lock:
        if not _pausing:
            _resume = gc.isenabled()
            gc.disable()
        _pausing.append(threading.get_ident())
    try:
        yield
    finally:
        with _lock:
            _pausing.remove(threading.get_ident())
            _resume_at_end()


def _resume_at_end() -> None:
    global _resume
    if not _pausing and _resume:
        _resume = False
        gc.enable()


def _keep_own_pauses() -> None:
    """A forked child has none of the parent's other threads: their pauses would never end there."""
    global _lock
    _lock = threading.Lock()
    _pausing[:] = [thread for thread in _pausing if thread == threading.get_ident()]
    _resume_at_end()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_keep_own_pauses)
