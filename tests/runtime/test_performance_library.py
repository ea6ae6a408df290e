"""A8: the performance library is shared by processes and never mixes devices or versions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from jstitch.ir.schedule import SchedType, Schedule
from jstitch.runtime.performance_library import PerformanceKey, PerformanceLibrary, Timing

KEY = PerformanceKey("stablehlo.exponential", ((4, 8), (4, 8)), ("f32", "f32"), Schedule(0, 4, SchedType.ROW))
WRITER = """
import sys
from jstitch.ir.schedule import SchedType, Schedule
from jstitch.runtime.performance_library import PerformanceKey, PerformanceLibrary, Timing
path, first = sys.argv[1], int(sys.argv[2])
with PerformanceLibrary(path, "cpu", "1") as library:
    for n in range(first, first + 100):
        key = PerformanceKey("op", ((n,),), ("f32",), Schedule(0, 1, SchedType.ROW))
        library.store(key, Timing(float(n), True))
"""


def never(key: PerformanceKey) -> float:
    raise AssertionError("measured again")


def test_a_time_is_measured_once_and_found_by_the_next_opening(tmp_path: Path) -> None:
    with PerformanceLibrary(tmp_path / "times.db", "cpu", "1") as library:
        assert library.lookup(KEY) is None
        assert library.time(KEY, never, lambda key: 12.5) == Timing(12.5, True)
        assert library.time(KEY, never, never) == Timing(12.5, True)
    with PerformanceLibrary(tmp_path / "times.db", "cpu", "1") as library:
        assert library.time(KEY, never, never) == Timing(12.5, True)


def test_a_second_process_needs_no_measurement(tmp_path: Path) -> None:
    path = tmp_path / "times.db"
    subprocess.run([sys.executable, "-c", WRITER, str(path), "0"], check=True, timeout=60)
    with PerformanceLibrary(path, "cpu", "1") as library:
        for n in range(100):
            key = PerformanceKey("op", ((n,),), ("f32",), Schedule(0, 1, SchedType.ROW))
            assert library.time(key, never, never) == Timing(float(n), True)


def test_a_modelled_time_is_marked_and_gives_way_to_a_measured_one(tmp_path: Path) -> None:
    with PerformanceLibrary(tmp_path / "times.db", "cpu", "1") as library:
        assert library.time(KEY, lambda key: 3.0) == Timing(3.0, False)
        assert library.time(KEY, never, lambda key: 7.0) == Timing(7.0, True)
        library.store(KEY, Timing(1.0, False))
        assert library.lookup(KEY) == Timing(7.0, True)


@pytest.mark.parametrize(("device", "versions"), [("gpu", "1"), ("cpu", "2")])
def test_other_devices_and_versions_are_not_used(tmp_path: Path, device: str, versions: str) -> None:
    with PerformanceLibrary(tmp_path / "times.db", "cpu", "1") as library:
        library.store(KEY, Timing(5.0, True))
    with PerformanceLibrary(tmp_path / "times.db", device, versions) as other:
        assert other.lookup(KEY) is None
        other.store(KEY, Timing(9.0, True))
    with PerformanceLibrary(tmp_path / "times.db", "cpu", "1") as library:
        assert library.lookup(KEY) == Timing(5.0, True)


def test_an_entry_of_another_open_process_is_seen(tmp_path: Path) -> None:
    with (
        PerformanceLibrary(tmp_path / "times.db", "cpu", "1") as one,
        PerformanceLibrary(tmp_path / "times.db", "cpu", "1") as two,
    ):
        assert two.lookup(KEY) is None
        one.store(KEY, Timing(5.0, True))
        assert two.lookup(KEY) == Timing(5.0, True)


def test_two_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    path = str(tmp_path / "times.db")
    command = [sys.executable, "-c", WRITER, path]
    writers = [subprocess.Popen([*command, first]) for first in ("0", "50")]
    assert [w.wait(timeout=60) for w in writers] == [0, 0]
    with PerformanceLibrary(path, "cpu", "1") as library:
        assert len(library) == 150
