"""The performance library on bad disks, in many processes, across kills, and its commands."""

from __future__ import annotations

import json
import math
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from jstitch.__main__ import main
from jstitch.errors import JstitchWarning
from jstitch.ir.schedule import SchedType, Schedule
from jstitch.runtime.device_name import cpu_device
from jstitch.runtime.file_lock import locked
from jstitch.runtime.library_file import SCHEMA
from jstitch.runtime.performance_library import (
    FILE,
    PerformanceKey,
    PerformanceLibrary,
    Timing,
    Verdict,
    verdict_key,
)
from jstitch.runtime.tuning_session import TuningSession, UnmeasuredError
from jstitch.runtime.versions import generators, measured_with

KEY = PerformanceKey("stablehlo.exponential", ((4, 8), (4, 8)), ("f32", "f32"), Schedule(0, 4, SchedType.ROW))
OURS = Verdict("pattern", 1e-5, 2e-5, 7, "ours", "2026-11-21T08:00:00+00:00")
MODELLED = Verdict("pattern", 3e-5, 1e-5, 0, "xla", "2026-11-21T09:00:00+00:00")

# Writes verdicts for ever; says each key once it is kept.
WRITER = """
import itertools, sys
from jstitch.runtime.performance_library import PerformanceLibrary, Verdict, verdict_key
with PerformanceLibrary(sys.argv[1], "cpu", "1") as library:
    for n in itertools.count():
        key = verdict_key(sys.argv[2], str(n))
        library.decide(key, Verdict("pattern", 1e-6, 2e-6, 5, "ours"))
        print(key, flush=True)
"""
# A disk that is full: no file of this process may grow past 64 KB.
FULL = """
import resource, signal, sys, warnings
from jstitch.runtime.performance_library import PerformanceLibrary, Verdict, verdict_key
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    with PerformanceLibrary(sys.argv[1], "cpu", "1") as library:
        verdict = Verdict("pattern", 1e-6, 2e-6, 5, "ours")
        for n in range(2000):
            library.decide(verdict_key(str(n)), verdict)
        assert all(library.verdict(verdict_key(str(n))) == verdict for n in range(2000))
print(len(caught), caught[0].category.__name__)
"""


@contextmanager
def our_warnings() -> Iterator[list[str]]:
    """The texts of the project's own warnings, every one of them."""
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield texts
    texts += [str(w.message) for w in caught if issubclass(w.category, JstitchWarning)]


def opened(path: Path) -> PerformanceLibrary:
    return PerformanceLibrary(path, "cpu", "1")


def test_a_verdict_is_found_by_the_next_opening(tmp_path: Path) -> None:
    with opened(tmp_path / FILE) as library:
        assert library.verdict("k") is None
        library.decide("k", OURS)
    with opened(tmp_path / FILE) as library:
        assert library.verdict("k") == OURS
        assert OURS.measured
        assert len(library) == 1


def test_a_modelled_verdict_gives_way_and_never_replaces_a_measured_one(tmp_path: Path) -> None:
    with opened(tmp_path / FILE) as library:
        library.decide("k", MODELLED)
        assert library.verdict("k") == MODELLED
        library.decide("k", OURS)
        library.decide("k", MODELLED)
        assert library.verdict("k") == OURS
    with opened(tmp_path / FILE) as library:
        library.decide("k", MODELLED)  # as a process that has not read the verdict yet
    with opened(tmp_path / FILE) as library:
        assert library.verdict("k") == OURS


@pytest.mark.parametrize(("device", "versions"), [("cuda H200", "1"), ("cpu", "2")])
def test_verdicts_of_other_devices_and_versions_are_not_used(
    tmp_path: Path, device: str, versions: str
) -> None:
    with opened(tmp_path / FILE) as library:
        library.decide("k", OURS)
    with PerformanceLibrary(tmp_path / FILE, device, versions) as other:
        assert other.verdict("k") is None


def test_keys_tell_their_parts_apart() -> None:
    assert verdict_key("ab", "c") != verdict_key("a", "bc")
    assert "cores" in cpu_device()
    assert "jaxlib=" in measured_with()
    assert len(generators()) == 16


def file_of_schema(path: Path, version: int) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE times (something TEXT)")
        database.execute(f"PRAGMA user_version={version}")


def test_a_damaged_file_is_moved_aside_with_one_warning(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"this is no database " * 500)
    with our_warnings() as caught, opened(tmp_path / FILE) as library:
        library.decide("k", OURS)
    assert len(caught) == 1
    assert "damaged" in caught[0]
    assert len(list(tmp_path.glob("*.damaged.*"))) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with opened(tmp_path / FILE) as library:
            assert library.verdict("k") == OURS


def test_a_file_damaged_in_the_middle_costs_a_warning_not_an_exception(tmp_path: Path) -> None:
    with opened(tmp_path / FILE) as library:
        for n in range(2000):
            library.decide(str(n), OURS)
    data = bytearray((tmp_path / FILE).read_bytes())
    data[4096 * 3 :] = b"\xa5" * (len(data) - 4096 * 3)
    (tmp_path / FILE).write_bytes(data)
    with our_warnings() as caught, opened(tmp_path / FILE) as library:
        for n in range(2000):
            library.verdict(str(n))
            library.decide(str(n), OURS)
        assert library.verdict("7") == OURS
    assert len(caught) == 1


def test_an_older_schema_is_moved_aside_and_a_newer_one_left_alone(tmp_path: Path) -> None:
    file_of_schema(tmp_path / "old.db", SCHEMA - 1)
    file_of_schema(tmp_path / "new.db", SCHEMA + 1)
    newer = (tmp_path / "new.db").read_bytes()
    for name, what in (("old.db", "moved aside"), ("new.db", "nothing is kept")):
        with our_warnings() as caught, opened(tmp_path / name) as library:
            library.decide("k", OURS)
            assert library.verdict("k") == OURS
        assert len(caught) == 1
        assert what in caught[0]
    assert (tmp_path / "new.db").read_bytes() == newer
    with opened(tmp_path / "old.db") as library:
        assert library.verdict("k") == OURS


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.warns(JstitchWarning, match="this process only"):
        library = opened(tmp_path / "file" / "inside" / FILE)
    library.decide("k", OURS)
    library.store(KEY, Timing(3.0, True))
    assert library.verdict("k") == OURS
    assert library.lookup(KEY) == Timing(3.0, True)
    with TuningSession(library, 5.0) as session:  # there is no lock to take either
        assert session.settle("other", "x", lambda seconds: OURS, 1.0) == (OURS, "measured")


def test_a_file_that_can_only_be_read_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path / FILE) as library:
        library.decide("k", OURS)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("read-only file system")

    monkeypatch.setattr("jstitch.runtime.library_file.locked", refuse)
    with our_warnings() as caught, opened(tmp_path / FILE) as library:
        assert library.verdict("k") == OURS
        library.decide("l", OURS)
        assert library.verdict("l") == OURS
    assert len(caught) == 1
    assert "read-only" in caught[0]


def test_a_full_disk(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FULL, str(tmp_path / FILE)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert found.stdout == "1 JstitchWarning\n", found.stderr
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 1 << 16


def test_eight_writers_killed_in_the_middle_lose_nothing(tmp_path: Path) -> None:
    path = str(tmp_path / FILE)
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, path, str(n)], stdout=subprocess.PIPE, text=True)
        for n in range(8)
    ]
    said: list[str] = []
    readers = [threading.Thread(target=lambda w=w: said.extend(w.stdout)) for w in writers]  # type: ignore[misc]
    for reader in readers:
        reader.start()
    end = time.monotonic() + 60
    while len(said) < 400 and time.monotonic() < end:
        time.sleep(0.05)
    for writer in writers:
        writer.send_signal(signal.SIGKILL)
    for writer, reader in zip(writers, readers, strict=True):
        writer.wait(timeout=60)
        reader.join(timeout=60)
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    keys = [line.strip() for line in said if line.endswith("\n")]
    assert len(keys) >= 400
    with opened(tmp_path / FILE) as library:
        assert all(library.verdict(key) is not None for key in keys)


def test_one_measurement_at_a_time_and_only_one(tmp_path: Path) -> None:
    """Eight threads with libraries of their own ask for one key: the lock's holder measures for all."""
    running, found = [], []

    def measure(seconds: float) -> Verdict:
        running.append(1)
        time.sleep(0.2)
        return OURS

    def tune() -> None:
        with opened(tmp_path / FILE) as library, TuningSession(library, 20.0) as session:
            found.append(session.settle("k", "x", measure, 1.0))

    threads = [threading.Thread(target=tune) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert sorted(how for _, how in found) == ["measured"] + ["stored"] * 7
    assert {verdict for verdict, _ in found} == {OURS}
    assert running == [1]


def test_a_budget_is_kept_also_while_others_measure(tmp_path: Path) -> None:
    with opened(tmp_path / FILE) as library:
        assert library.lock is not None
        with TuningSession(library, 0.0) as session, pytest.raises(UnmeasuredError, match="budget of 0 s"):
            session.settle("k", "x", lambda seconds: OURS, 1.0)
        with locked(library.lock) as mine, TuningSession(library, 0.3) as session:
            assert mine
            start = time.monotonic()
            with pytest.raises(UnmeasuredError, match="other processes"):
                session.settle("k", "x", lambda seconds: OURS, 1.0)
            assert 0.2 < time.monotonic() - start < 10


# -- the commands ----------------------------------------------------------------------------------------


def run(*args: str, folder: Path, text: str | None = None) -> Result:
    return CliRunner().invoke(main, ["library", *args, "--cache-dir", str(folder)], input=text)


def filled(folder: Path) -> Path:
    with PerformanceLibrary(folder / FILE, cpu_device(), measured_with()) as library:
        library.decide("k", OURS)
        library.store(KEY, Timing(3.0, True))
    with PerformanceLibrary(folder / FILE, "cuda H200", "old") as library:
        library.decide("k", MODELLED)
    return folder


def as_json(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def test_stats(tmp_path: Path) -> None:
    found = as_json(run("stats", "--json", folder=filled(tmp_path)))
    assert found["entries"] == 3
    groups = {
        (g["table"], g["device"]): (g["entries"], g["measured"], g["used_here"]) for g in found["groups"]
    }
    assert groups == {
        ("times", cpu_device()): (1, 1, True),
        ("verdicts", cpu_device()): (1, 1, True),
        ("verdicts", "cuda H200"): (1, 0, False),
    }
    assert "3 entries" in run("stats", folder=tmp_path).output


def test_export_and_import_carry_everything(tmp_path: Path) -> None:
    exported = run("export", folder=filled(tmp_path / "one")).output
    assert as_json(run("import", "--json", folder=tmp_path / "two", text=exported))["imported"] == 3
    assert run("export", folder=tmp_path / "two").output == exported
    assert as_json(run("import", "--json", folder=tmp_path / "two", text=exported))["imported"] == 3
    assert run("export", folder=tmp_path / "two").output == exported
    with PerformanceLibrary(tmp_path / "two" / FILE, cpu_device(), measured_with()) as library:
        assert library.verdict("k") == OURS


def test_import_keeps_what_was_measured_and_what_is_newer(tmp_path: Path) -> None:
    exported = run("export", folder=filled(tmp_path)).output.splitlines()
    (line,) = (line for line in exported if '"rounds": 7' in line)
    older, newer, modelled = (
        json.dumps(json.loads(line) | change)
        for change in (
            {"choice": "xla", "date": "2020"},
            {"choice": "newer", "date": "2027"},
            {"rounds": 0, "date": "2028"},
        )
    )
    for new in (older, newer, modelled):
        as_json(run("import", "--json", folder=tmp_path, text=f"{exported[0]}\n{new}\n"))
    with PerformanceLibrary(tmp_path / FILE, cpu_device(), measured_with()) as library:
        verdict = library.verdict("k")
    assert verdict is not None
    assert (verdict.choice, verdict.date, verdict.rounds) == ("newer", "2027", 7)


ENTRY = {"table": "times", "key": "k", "device": "d", "versions": "v", "microseconds": 1.0, "measured": 1}
BAD = {
    "": "JSON object",
    "not json": "JSON object",
    "[1]": "JSON object",
    '{"jstitch": "performance library", "schema": 99}': "header",
    "GOOD\n{}": "a table",
    'GOOD\n{"table": "times"}': "fields",
    f"GOOD\n{json.dumps(ENTRY | {'microseconds': -1})}": "microseconds",
    f"GOOD\n{json.dumps(ENTRY | {'microseconds': math.nan})}": "microseconds",
    f"GOOD\n{json.dumps(ENTRY | {'key': 3})}": "key",
}


@pytest.mark.parametrize("text", BAD)
def test_bad_imports_are_one_clear_line_and_change_nothing(tmp_path: Path, text: str) -> None:
    lines = run("export", folder=filled(tmp_path)).output.splitlines()
    good = "\n".join((lines[0], lines[1].replace("H200", "H300")))
    result = run("import", folder=tmp_path, text=text.replace("GOOD", good))
    assert result.exit_code == 1
    (message,) = result.output.strip().splitlines()
    assert "line" in message
    assert BAD[text] in message
    assert run("export", folder=tmp_path).output.splitlines() == lines


def test_clear(tmp_path: Path) -> None:
    filled(tmp_path)
    assert as_json(run("clear", "--stale", "--json", folder=tmp_path))["deleted"] == 1
    assert as_json(run("clear", "--json", folder=tmp_path))["deleted"] == 2
    assert as_json(run("stats", "--json", folder=tmp_path))["entries"] == 0


def test_commands_say_in_one_line_what_is_wrong_with_the_disk(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = run("stats", folder=tmp_path / "file")
    assert result.exit_code == 1
    assert result.output.startswith("Error: ")
    assert len(result.output.strip().splitlines()) == 1
