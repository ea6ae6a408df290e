"""Python's garbage collector, told that a command is over soon.

The graph and plans of a large module are millions of objects that live as long as the command does; looking
for garbage among them again and again is a third of the time of `jstitch plan`.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

THRESHOLDS = (100_000, 50, 100)  # Python's own: (700, 10, 10) or near it


@contextmanager
def rare_collection() -> Iterator[None]:
    """Garbage in cycles is looked for seldom, and not among what was there before."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
