"""The performance library: kernel times on disk, shared by processes (FS-2018 section 4.4).

    (opcode, shapes, dtypes, schedule, block size, warps, device, versions)
        ->  microseconds, measured or modelled

A key that is missing is measured (`measure`) or, without a device, modelled (`model`); a modelled time never
replaces a measured one and is measured as soon as somebody can. SQLite in WAL mode; no entry of another
device or another version of the code generators is ever used.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import astuple, dataclass
from pathlib import Path
from types import TracebackType

from jstitch.ir.schedule import Schedule

_TABLE = """
CREATE TABLE IF NOT EXISTS times (
    key TEXT NOT NULL, device TEXT NOT NULL, versions TEXT NOT NULL,
    microseconds REAL NOT NULL, measured INTEGER NOT NULL,
    PRIMARY KEY (key, device, versions)
) WITHOUT ROWID
"""
_STORE = """
INSERT INTO times VALUES (?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET microseconds = excluded.microseconds, measured = excluded.measured
WHERE excluded.measured >= times.measured
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


class PerformanceLibrary:
    """One file, one device, one set of versions. Safe for threads and for processes."""

    def __init__(self, path: str | Path, device: str, versions: str) -> None:
        """Open or create the file. Raises sqlite3.Error when it cannot be opened or is not a database."""
        self._path, self._where = Path(path), (device, versions)
        self._lock = threading.Lock()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._db = sqlite3.connect(self._path, timeout=60.0, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.execute(_TABLE)
        self._memory = self._load()

    def _load(self) -> dict[str, Timing]:
        query = "SELECT key, microseconds, measured FROM times WHERE device = ? AND versions = ?"
        with closing(self._db.execute(query, self._where)) as rows:
            return {key: Timing(us, bool(measured)) for key, us, measured in rows}

    def lookup(self, key: PerformanceKey) -> Timing | None:
        """The stored time, also one that another process stored since the file was opened."""
        with self._lock:
            known = self._memory.get(key.text)
            if known is not None and known.measured:
                return known
            return self._fetch(key) or known

    def _fetch(self, key: PerformanceKey) -> Timing | None:
        query = "SELECT microseconds, measured FROM times WHERE key = ? AND device = ? AND versions = ?"
        row = self._db.execute(query, (key.text, *self._where)).fetchone()
        if row is None:
            return None
        self._memory[key.text] = timing = Timing(row[0], bool(row[1]))
        return timing

    def store(self, key: PerformanceKey, timing: Timing) -> None:
        """Keep a time; a modelled one does not replace a measured one."""
        row = (key.text, *self._where, timing.microseconds, int(timing.measured))
        with self._lock:
            self._db.execute(_STORE, row)
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

    def __len__(self) -> int:
        """Entries of this device and these versions."""
        query = "SELECT count(*) FROM times WHERE device = ? AND versions = ?"
        with self._lock:
            return int(self._db.execute(query, self._where).fetchone()[0])

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def __enter__(self) -> PerformanceLibrary:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
