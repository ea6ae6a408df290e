"""The performance library: measured times on disk, shared by processes (FS-2018 section 4.4).

    (opcode, shapes, dtypes, schedule, block size, warps)  ->  microseconds, measured or modelled
    text of a pattern, of its kernel, of its donations     ->  our seconds, XLA's, rounds, who runs it

both for one device and one set of versions; no entry of another is ever used. A key that is missing is
measured or, without a device, modelled; a modelled entry never replaces a measured one, and is measured as
soon as somebody can. SQLite in WAL mode (library_file.py). Nothing here raises for what is wrong with the
disk.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import astuple, dataclass, field
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any

from jstitch.ir.schedule import Schedule
from jstitch.runtime.cache import default_directory
from jstitch.runtime.library_file import open_database, warn
from jstitch.runtime.telemetry import VERDICTS, emit
from jstitch.runtime.trusted import open_folder

FILE = "performance.db"
_STORE = """
INSERT INTO times VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET microseconds = excluded.microseconds, measured = excluded.measured
WHERE excluded.measured >= times.measured
"""
_DECIDE = """
INSERT INTO verdicts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET ours = excluded.ours, xla = excluded.xla, rounds = excluded.rounds,
    choice = excluded.choice, date = excluded.date
WHERE excluded.rounds > 0 OR verdicts.rounds = 0
"""
_VERDICT = """
SELECT kind, ours, xla, rounds, choice, date FROM verdicts WHERE key = ? AND device = ? AND versions = ?
"""


@dataclass(frozen=True)
class PerformanceKey:
    """One op under one schedule. `shapes` and `dtypes`: operands, then results; `attrs`: what else decides
    the time (dimensions and the like), as text; `warps`: reduce or transpose warps of a block."""

    opcode: str
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    schedule: Schedule
    attrs: str = ""
    block_size: int = 1
    warps: int = 1

    @property
    def text(self) -> str:
        split_dim, sword, kind = astuple(self.schedule)
        fields = (self.opcode, self.shapes, self.dtypes, split_dim, sword, kind.value)
        return json.dumps((*fields, self.attrs, self.block_size, self.warps))


@dataclass(frozen=True)
class Timing:
    """A kernel time. `measured` is False when the analytic model answered."""

    microseconds: float
    measured: bool


def today() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


@dataclass(frozen=True)
class Verdict:
    """Who runs a pattern, or a whole function. ours, xla: seconds per run; rounds: of measuring, 0 when the
    cost model decided. kind: 'pattern', 'function' or 'race'. choice: what won."""

    kind: str
    ours: float
    xla: float
    rounds: int
    choice: str
    date: str = field(default_factory=today)

    @property
    def measured(self) -> bool:
        return self.rounds > 0


def verdict_key(*parts: str) -> str:
    """The key of a verdict: a hash of all that decides the two times besides device and versions."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


class PerformanceLibrary:
    """One file, one device, one set of versions. Safe for threads and for processes."""

    def __init__(self, path: str | Path, device: str, versions: str) -> None:
        """Open or create the file; without one that can be used, a warning, and a library of this process."""
        self._where = (device, versions)
        self._lock = threading.Lock()
        self._warned = False
        self._db = open_database(Path(path))
        self.lock = lock_path(Path(path))
        self._verdicts: dict[str, Verdict] = {}
        self._memory = self._load()

    def _load(self) -> dict[str, Timing]:
        query = "SELECT key, microseconds, measured FROM times WHERE device = ? AND versions = ?"
        return {key: Timing(us, bool(measured)) for key, us, measured in self._rows(query, self._where)}

    def _rows(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        """Rows of a query, or of a statement none; an error of the disk is one warning."""
        try:
            with closing(self._db.execute(query, values)) as rows:
                return rows.fetchall()
        except sqlite3.Error as error:
            if not self._warned:
                self._warned = True
                warn(f"{error}; what is measured is kept for this process only")
            return []

    # -- times of ops ------------------------------------------------------------------------------------

    def lookup(self, key: PerformanceKey) -> Timing | None:
        """The stored time, also one that another process stored since the file was opened."""
        with self._lock:
            known = self._memory.get(key.text)
            if known is not None and known.measured:
                return known
            return self._fetch(key) or known

    def _fetch(self, key: PerformanceKey) -> Timing | None:
        query = "SELECT microseconds, measured FROM times WHERE key = ? AND device = ? AND versions = ?"
        rows = self._rows(query, (key.text, *self._where))
        if not rows:
            return None
        self._memory[key.text] = timing = Timing(rows[0][0], bool(rows[0][1]))
        return timing

    def store(self, key: PerformanceKey, timing: Timing) -> None:
        """Keep a time; a modelled one does not replace a measured one."""
        row = (key.text, *self._where, timing.microseconds, int(timing.measured))
        with self._lock:
            known = self._memory.get(key.text)
            if known is None or timing.measured >= known.measured:
                self._memory[key.text] = timing
            self._rows(_STORE, row)
            self._fetch(key)

    def time(
        self,
        key: PerformanceKey,
        model: Callable[[PerformanceKey], float],
        measure: Callable[[PerformanceKey], float] | None = None,
    ) -> Timing:
        """The time of a key in microseconds: stored, else measured, else (no device) modelled."""
        known = self.lookup(key)
        if known is not None and (known.measured or measure is None):
            return known
        timing = Timing(model(key), False) if measure is None else Timing(measure(key), True)
        self.store(key, timing)
        return timing

    # -- verdicts on patterns and functions ----------------------------------------------------------------

    def verdict(self, key: str) -> Verdict | None:
        """The stored verdict (key: `verdict_key`), also one that another process has just stored."""
        with self._lock:
            known = self._verdicts.get(key)
            if known is not None and known.measured:
                return known
            rows = self._rows(_VERDICT, (key, *self._where))
            if rows:
                self._verdicts[key] = Verdict(*rows[0])
            return self._verdicts.get(key)

    def decide(self, key: str, verdict: Verdict) -> None:
        """Keep a verdict; a modelled one does not replace a measured one."""
        with self._lock:
            known = self._verdicts.get(key)
            if known is None or verdict.measured or not known.measured:
                self._verdicts[key] = verdict
            self._rows(_DECIDE, (key, *self._where, *astuple(verdict)))
        how = "measured" if verdict.measured else "modelled"
        emit(VERDICTS, kind=verdict.kind, choice=verdict.choice.partition(" ")[0], how=how)

    def __len__(self) -> int:
        """Entries of this device and these versions."""
        query = "SELECT count(*) FROM {} WHERE device = ? AND versions = ?"
        with self._lock:
            counts = (self._rows(query.format(table), self._where) for table in ("times", "verdicts"))
            return sum(int(rows[0][0]) for rows in counts if rows)

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def __enter__(self) -> PerformanceLibrary:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def lock_path(path: Path) -> Path | None:
    """The file whose lock says that somebody is measuring; None where there cannot be one."""
    lock = path.with_name("measuring.lock")
    try:
        with open_folder(path.parent, follow=True) as folder:
            folder.make(lock.name)
    except OSError:
        return None
    return lock


def library_path(cache_dir: str | None = None) -> Path:
    """The file in the cache folder (CompileOptions.cache_dir), beside the kernels. Raises OptionError."""
    return (default_directory().parent if cache_dir is None else Path(cache_dir)) / FILE


@cache
def shared_library(path: Path, device: str, versions: str) -> PerformanceLibrary:
    """The library that this process has open for a file, a device and versions."""
    return PerformanceLibrary(path, device, versions)


if hasattr(os, "register_at_fork"):  # a connection must not be used on both sides of a fork
    os.register_at_fork(after_in_child=shared_library.cache_clear)
