"""`jstitch cache`: what is counted, and that only what was asked for is deleted."""

from __future__ import annotations

import json
import os
import threading
import time
import warnings
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from jstitch.__main__ import main
from jstitch.codegen.cpu import build
from jstitch.runtime.cache import KernelCache, Label, read_label

CURRENT = Label("cpu test", build.versions())
OLD = Label("cpu test", "jstitch=0.0.1 cpu=0")


@pytest.fixture
def cache(tmp_path: Path) -> KernelCache:
    found = KernelCache(tmp_path / "kernels")
    for n, label in enumerate((CURRENT, CURRENT, OLD, Label())):
        found.put(f"{n:064x}", bytes(100 * (n + 1)), label)
    (found.directory / f"{9:064x}.kernel").write_bytes(b"jstitch\x01" + bytes(300))
    return found


def run(cache: KernelCache, *arguments: str, status: int = 0) -> Result:
    folder = str(cache.directory.parent)
    result = CliRunner().invoke(main, ["cache", *arguments, "--cache-dir", folder])
    assert result.exit_code == status, result.output
    return result


def left(cache: KernelCache) -> list[int]:
    return sorted(int(p.stem, 16) for p in cache.directory.glob("*.kernel"))


def test_stats(cache: KernelCache) -> None:
    stats = json.loads(run(cache, "stats", "--json").stdout)
    assert stats["entries"] == 5
    assert stats["bytes"] == sum(p.stat().st_size for p in cache.directory.iterdir())
    groups = sorted((g["target"], g["entries"], g["used_here"]) for g in stats["groups"])
    assert groups == [
        ("cpu test", 1, False),
        ("cpu test", 2, True),
        ("unknown", 1, False),  # without a label
        ("unknown", 1, False),  # of an older format
    ]
    assert "5 entries" in run(cache, "stats").stdout


def test_labels_come_back_and_damage_does_not(cache: KernelCache) -> None:
    (first,) = cache.directory.glob(f"{0:064x}*")
    assert read_label(first) == CURRENT
    first.write_bytes(first.read_bytes()[:30])
    assert read_label(first) is None
    assert read_label(cache.directory / "none") is None


def test_entries_of_an_older_format_are_built_again_silently(cache: KernelCache) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache.get(f"{9:064x}") is None
    assert left(cache) == [0, 1, 2, 3]


def test_clear_stale(cache: KernelCache) -> None:
    assert json.loads(run(cache, "clear", "--stale", "--json").stdout)["deleted"] == 3
    assert left(cache) == [0, 1]
    assert cache.get(f"{1:064x}") == bytes(200)


def test_clear_older_than(cache: KernelCache) -> None:
    for n in (1, 2):
        os.utime(cache.directory / f"{n:064x}.kernel", (time.time() - 3 * 86400,) * 2)
    run(cache, "clear", "--older-than", "2", "--stale")
    assert left(cache) == [0, 1, 3, 9]
    run(cache, "clear", "--older-than", "2")
    assert left(cache) == [0, 3, 9]


def test_clear_leaves_files_that_are_being_written(cache: KernelCache) -> None:
    busy, killed = cache.directory / "x.1.1.tmp", cache.directory / "y.2.2.tmp"
    for path in (busy, killed):
        path.write_bytes(b"part")
    os.utime(killed, (time.time() - 7200,) * 2)
    (cache.directory / "mine.txt").write_text("foreign")
    assert "6 files" in run(cache, "clear").stdout
    assert sorted(p.name for p in cache.directory.iterdir()) == ["mine.txt", busy.name]


def test_clear_while_others_read_and_write(cache: KernelCache) -> None:
    stop, problems = threading.Event(), []

    def work() -> None:
        mine = KernelCache(cache.directory)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                while not stop.is_set():
                    mine.put(f"{5:064x}", bytes(1000), CURRENT)
                    assert mine.get(f"{5:064x}") in (None, bytes(1000))
            except BaseException as error:
                problems.append(error)

    workers = [threading.Thread(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    for _ in range(10):
        run(cache, "clear")
    stop.set()
    for worker in workers:
        worker.join()
    assert not problems


def test_no_cache_and_a_file_in_its_place(tmp_path: Path) -> None:
    none = KernelCache(tmp_path / "kernels")
    assert json.loads(run(none, "stats", "--json").stdout)["entries"] == 0
    assert json.loads(run(none, "clear", "--json").stdout)["deleted"] == 0
    (tmp_path / "kernels").write_text("")
    assert "found a file" in run(none, "stats", status=2).stderr


def test_a_cache_that_others_may_write_is_refused(cache: KernelCache) -> None:
    cache.directory.chmod(0o777)
    for command in ("stats", "clear"):
        said = run(cache, command, status=2).stderr
        assert "can be written by everybody" in said
    assert left(cache) == [0, 1, 2, 3, 9]
