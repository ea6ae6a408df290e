"""Entries of a performance library as lines of JSON: counted, exported, imported, cleared.

{"jstitch": "performance library", "schema": 1}
{"table": "verdicts", "key": "5e1f...", "device": "cpu AMD EPYC ...", ..., "choice": "ours", "date": "..."}
{"table": "times", "key": "[\\"stablehlo.exponential\\", ...]", ..., "microseconds": 12.5, "measured": 1}
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

from jstitch.errors import ParseError
from jstitch.runtime.library_file import SCHEMA

HEADER = {"jstitch": "performance library", "schema": SCHEMA}
_COMMON = {"key": str, "device": str, "versions": str}
COLUMNS: Mapping[str, Mapping[str, type]] = {
    "times": {**_COMMON, "microseconds": float, "measured": int},
    "verdicts": {
        **_COMMON,
        **{"kind": str, "ours": float, "xla": float, "rounds": int, "choice": str, "date": str},
    },
}
_IMPORT = {
    "times": """
        INSERT INTO times VALUES (?, ?, ?, ?, ?)
        ON CONFLICT DO UPDATE SET microseconds = excluded.microseconds, measured = excluded.measured
        WHERE excluded.measured > times.measured
    """,
    "verdicts": """
        INSERT INTO verdicts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
        ON CONFLICT DO UPDATE SET ours = excluded.ours, xla = excluded.xla, rounds = excluded.rounds,
            choice = excluded.choice, date = excluded.date
        WHERE (excluded.rounds > 0) > (verdicts.rounds > 0)
            OR ((excluded.rounds > 0) = (verdicts.rounds > 0) AND excluded.date > verdicts.date)
    """,
}
_HINT = "import what `jstitch library export` wrote"


def count(database: sqlite3.Connection) -> list[dict[str, Any]]:
    """Entries by table, device and versions, and how many of them were measured."""
    measured = {"times": "measured", "verdicts": "rounds > 0"}
    found = []
    for table, condition in measured.items():
        query = f"SELECT device, versions, count(*), sum({condition}) FROM {table} GROUP BY device, versions"
        with closing(database.execute(query)) as rows:
            names = ("table", "device", "versions", "entries", "measured")
            found += [dict(zip(names, (table, *row), strict=True)) for row in rows]
    return found


def export_lines(database: sqlite3.Connection) -> Iterator[str]:
    """A header, then one line per entry."""
    yield json.dumps(HEADER)
    for table, columns in COLUMNS.items():
        with closing(database.execute(f"SELECT {', '.join(columns)} FROM {table} ORDER BY 1, 2, 3")) as rows:
            for row in rows:
                yield json.dumps({"table": table, **dict(zip(columns, row, strict=True))})


def import_lines(database: sqlite3.Connection, lines: Iterable[str]) -> int:
    """Add the entries of an export, all or none; how many there were.

    Of two entries with one key the measured one stays, then the later one. Raises ParseError with the line's
    number, and sqlite3.Error.
    """
    entries = list(_parse(lines))
    with _transaction(database):
        for table, row in entries:
            database.execute(_IMPORT[table], row)
    return len(entries)


def clear(database: sqlite3.Connection, keep: tuple[str, str] | None = None) -> int:
    """Delete entries: all, or all but those of this (device, versions); how many."""
    condition = "" if keep is None else " WHERE device != ? OR versions != ?"
    with _transaction(database):
        return sum(
            database.execute(f"DELETE FROM {table}{condition}", keep or ()).rowcount for table in COLUMNS
        )


@contextmanager
def _transaction(database: sqlite3.Connection) -> Iterator[None]:
    """All statements or none, on an autocommitting connection."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")


def _parse(lines: Iterable[str]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    numbered = ((n, line) for n, line in enumerate(lines, 1) if line.strip())
    number, first = next(numbered, (1, ""))
    header = _object(number, first)
    if header != HEADER:
        raise _error(number, f"the header {json.dumps(HEADER)}", first)
    for number, line in numbered:
        yield _entry(number, line)


def _object(number: int, line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        raise _error(number, "a JSON object", line) from None
    if not isinstance(found, dict):
        raise _error(number, "a JSON object", line)
    return found


def _entry(number: int, line: str) -> tuple[str, tuple[Any, ...]]:
    fields = _object(number, line)
    table = fields.pop("table", None)
    columns = COLUMNS.get(table) if isinstance(table, str) else None
    if columns is None:
        raise _error(number, f"a table that is one of {', '.join(COLUMNS)}", repr(table))
    if fields.keys() != columns.keys():
        raise _error(number, f"the fields {', '.join(columns)}", ", ".join(fields) or "none")
    for name, kind in columns.items():
        if not _is(fields[name], kind):
            what = "a number that is not negative" if kind is not str else "a text"
            raise _error(number, f"{name} to be {what}", repr(fields[name]))
    return str(table), tuple(fields[name] for name in columns)


def _is(value: object, kind: type) -> bool:
    if kind is str:
        return isinstance(value, str)
    allowed = (int, float) if kind is float else (int,)
    return isinstance(value, allowed) and not isinstance(value, bool) and 0 <= value < math.inf


def _error(number: int, expected: str, found: str) -> ParseError:
    shown = found if len(found) <= 80 else f"{found[:77]}..."
    return ParseError(expected, shown or "nothing", where=f"line {number}", hint=_HINT)
