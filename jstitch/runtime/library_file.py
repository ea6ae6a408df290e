"""The SQLite file of the performance library: opened so that nothing on the disk can fail a user's call.

    whole file of this schema    ->  open, WAL: readers never wait for the writer
    older schema, or damaged     ->  moved aside with one warning, and begun anew
    newer schema                 ->  left alone with one warning; this process remembers what it measures
    folder cannot be written     ->  what can be read is read; the rest is remembered by this process
    others may have written it   ->  left alone with one warning (trusted.py), as if it were empty

Files are created and moved under a lock file, so processes that start together agree on one file.
"""

from __future__ import annotations

import os
import sqlite3
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from jstitch.errors import JstitchWarning
from jstitch.runtime.file_lock import locked
from jstitch.runtime.trusted import PRIVATE_FILE, UntrustedError, open_folder

SCHEMA = 1
"""Counted up with every change of the tables; `PRAGMA user_version` of the file."""

_TABLES = """
CREATE TABLE IF NOT EXISTS times (
    key TEXT NOT NULL, device TEXT NOT NULL, versions TEXT NOT NULL,
    microseconds REAL NOT NULL, measured INTEGER NOT NULL,
    PRIMARY KEY (key, device, versions)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS verdicts (
    key TEXT NOT NULL, device TEXT NOT NULL, versions TEXT NOT NULL, kind TEXT NOT NULL,
    ours REAL NOT NULL, xla REAL NOT NULL, rounds INTEGER NOT NULL, choice TEXT NOT NULL, date TEXT NOT NULL,
    PRIMARY KEY (key, device, versions)
) WITHOUT ROWID;
"""
_WAIT_SECONDS = 60.0
_SIDE_FILES = ("-wal", "-shm")


class _OtherSchemaError(Exception):
    """The file is whole and was written by another release."""

    def __init__(self, version: int) -> None:
        super().__init__(f"schema {version}, this release writes {SCHEMA}")
        self.version = version


def open_database(path: Path) -> sqlite3.Connection:
    """A connection with both tables, autocommitting, for any thread; never raises for what is on the disk."""
    try:
        with _creating(path):
            try:
                return _open(path)
            except _OtherSchemaError as error:
                if error.version > SCHEMA:
                    warn(f"{path} has {error}; nothing is kept beyond this process")
                    return _in_memory()
                warn(f"{path} has {error}; it is moved aside to {_move_aside(path, 'old')}")
                return _open(path)
            except sqlite3.DatabaseError as error:
                if isinstance(error, sqlite3.OperationalError):  # locked, read-only, full: nothing is damaged
                    raise
                warn(f"{path} is damaged ({error}); it is moved aside to {_move_aside(path, 'damaged')}")
                return _open(path)
    except UntrustedError as error:
        warn(f"{error}; what is measured is kept for this process only: {error.remedy}")
        return _in_memory()
    except (OSError, sqlite3.Error) as error:
        warn(f"cannot write {path} ({error}); what is measured is kept for this process only")
        return _copied(path)


def warn(message: str) -> None:
    warnings.warn(f"jstitch performance library: {message}.", JstitchWarning, stacklevel=3)


@contextmanager
def _creating(path: Path) -> Iterator[None]:
    """SQLite opens files by their names: nobody else can change them where the folder is ours."""
    lock = path.with_name(path.name + ".lock")
    with open_folder(path.parent, make=True, follow=True) as folder:
        folder.make(lock.name)
        for suffix in ("", *_SIDE_FILES):
            folder.check(f"{path.name}{suffix}")
        with locked(lock):
            yield


def _open(path: Path) -> sqlite3.Connection:
    path.touch(PRIVATE_FILE)  # what SQLite puts beside it gets its mode
    connection = sqlite3.connect(path, timeout=_WAIT_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        fresh = connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
        if not fresh and version != SCHEMA:
            raise _OtherSchemaError(version)
        connection.execute("PRAGMA trusted_schema=OFF")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        if fresh:
            connection.executescript(f"BEGIN; {_TABLES} PRAGMA user_version={SCHEMA}; COMMIT;")
        for table in ("times", "verdicts"):  # raises when the file lacks one, or is damaged
            connection.execute(f"SELECT * FROM {table} LIMIT 1").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def _in_memory() -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    connection.executescript(_TABLES)
    return connection


def _copied(path: Path) -> sqlite3.Connection:
    """In memory, with the entries of a file that can be read but not written."""
    connection = _in_memory()
    with suppress(OSError, sqlite3.Error):
        address = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
        with closing(sqlite3.connect(address, uri=True)) as source:
            if source.execute("PRAGMA user_version").fetchone() == (SCHEMA,):
                source.backup(connection)
    return connection


def _move_aside(path: Path, why: str) -> Path:
    """Rename the file and what SQLite keeps beside it; the new name."""
    target = path.with_name(f"{path.name}.{why}.{os.getpid()}")
    for suffix in ("", *_SIDE_FILES):
        with suppress(FileNotFoundError):
            os.replace(f"{path}{suffix}", f"{target}{suffix}")
    return target
