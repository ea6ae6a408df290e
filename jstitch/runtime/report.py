"""What happened to each stitched call: an append-only log, bounded, safe with many threads.

with recording("softmax") as record:      # the lowering rule, once per lowered call
    note(kernels=2)                       # whoever knows, further down the same thread
last_report()[-1] == Record("softmax", kernels=2, reason=None, details={})
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from jstitch.runtime.telemetry import BACKGROUND, CALLS, FALLBACKS, KERNELS, STITCHING, emit, logger

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
    """Write one record when the block ends, also when it raises, and tell it to those who monitor."""
    global _count
    start = time.perf_counter()
    _open.records.append(Record(name))
    try:
        yield
    finally:
        record = _open.records.pop()
        with _lock:
            _log.append(record)
            _count += 1
        _emit(record, time.perf_counter() - start)
        _write(record)


def _emit(record: Record, seconds: float) -> None:
    """seconds: that the recorded block took."""
    if "background_seconds" in record.details:
        emit(BACKGROUND, record.details["background_seconds"], function=record.name)
        return
    emit(STITCHING, seconds, function=record.name)
    if record.kernels:
        emit(CALLS, function=record.name)
        emit(KERNELS, record.kernels, function=record.name)
    elif record.reason is not None:
        emit(FALLBACKS, function=record.name, reason=record.reason)


def _write(record: Record) -> None:
    """The record as lines of the log."""
    name, details, tune = record.name, record.details, logger("tune")
    for decision in details.get("tuning", ()):
        tune.info("%s: %s", name, decision)
    if "asked" in details:
        tune.info("%s: asked XLA: %s", name, details["asked"])
    if "unasked" in details:
        tune.info("%s: could not ask XLA: %s", name, details["unasked"])
    if record.kernels and "ops" in details:
        inside, ops = details["ops"]
        before, after = (nbytes / 1e6 for nbytes in details["moved"])
        kernels = f"{record.kernels} kernel{'s' if record.kernels > 1 else ''}"
        what = "%s: %s of %d of %d ops, %.2f -> %.2f MB (modelled)"
        logger("fusion").info(what, name, kernels, inside, ops, before, after)
    elif record.reason is not None:
        where = details.get("where", "")
        logger("fusion").info(
            "%s: XLA's own kernels: %s%s", name, record.reason, f" (at {where})" if where else ""
        )


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


def noted() -> Mapping[str, Any]:
    """Details of the record that this thread has open."""
    return _open.records[-1].details if _open.records else {}


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
