"""What happened to each stitched call: an append-only log, bounded, safe with many threads.

with recording("softmax") as record:      # the lowering rule, once per lowered call
    note(kernels=2)                       # whoever knows, further down the same thread
last_report()[-1] == Record("softmax", kernels=2, reason=None, details={})
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

MAX_RECORDS = 4096


@dataclass(frozen=True)
class Record:
    """One lowered stitched call.

    name: the function, with the transformations applied to it (`transpose(jvp(f))`).
    kernels: generated kernels now in its place. reason: why there is none, None if there are.
    details: whatever the pipeline adds (patterns, bytes, file names).
    """

    name: str
    kernels: int = 0
    reason: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def backward(self) -> bool:
        """Whether the call is the transpose of something, that is, part of a backward pass."""
        return "transpose(" in self.name


class _Open(threading.local):
    """Records being written by this thread, innermost last."""

    def __init__(self) -> None:
        self.records: list[Record] = []


_open = _Open()
_lock = threading.Lock()
_log: deque[Record] = deque(maxlen=MAX_RECORDS)
_count = 0


@contextmanager
def recording(name: str) -> Iterator[None]:
    """Write one record when the block ends, also when it raises."""
    global _count
    _open.records.append(Record(name))
    try:
        yield
    finally:
        record = _open.records.pop()
        with _lock:
            _log.append(record)
            _count += 1


def note(*, kernels: int = 0, reason: str | None = None, **details: Any) -> None:
    """Add to the record this thread has open (kernels add up). Does nothing when there is none."""
    if not _open.records:
        return
    old = _open.records[-1]
    _open.records[-1] = replace(
        old,
        kernels=old.kernels + kernels,
        reason=old.reason if reason is None else reason,
        details={**old.details, **details},
    )


def last_report(since: int = 0) -> tuple[Record, ...]:
    """Records written after the first `since` ones (see `record_count`), oldest first.

    At most MAX_RECORDS are kept; older ones are gone.
    """
    with _lock:
        wanted = max(0, min(_count - since, len(_log)))
        return tuple(_log)[len(_log) - wanted :]


def record_count() -> int:
    """How many records this process has written so far."""
    with _lock:
        return _count


def stitch_count(since: int = 0) -> int:
    """Kernels in all records after the first `since`."""
    return sum(record.kernels for record in last_report(since))
