"""What others may have written is never read (kernels, verdicts, calibrations), and one warning says so."""

from __future__ import annotations

import json
import os
import stat
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jstitch.calibration import store as calibrations
from jstitch.errors import JstitchWarning
from jstitch.passes.base.machine import Machine
from jstitch.runtime import cpu_handler, trusted
from jstitch.runtime.cache import STALE_SECONDS, SUFFIX, KernelCache
from jstitch.runtime.file_lock import locked
from jstitch.runtime.library_file import open_database
from jstitch.runtime.trusted import UntrustedError, open_folder

pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no owners on this system")
KEY, DATA = "ab" * 32, bytes(range(256)) * 8
OTHER = 65534
Spoil = Callable[[Path], None]


@pytest.fixture
def cache(tmp_path: Path) -> KernelCache:
    found = KernelCache(tmp_path / "kernels")
    found.put(KEY, DATA)
    return found


@pytest.fixture
def given_away(monkeypatch: pytest.MonkeyPatch) -> Spoil:
    """Makes a file somebody else's; whoever is not root becomes somebody else."""

    def give(path: Path) -> None:
        if os.geteuid() == 0:
            os.chown(path, OTHER, -1)
        else:
            monkeypatch.setattr(os, "geteuid", lambda: OTHER)

    return give


@contextmanager
def warned_once(match: str) -> Iterator[None]:
    with pytest.warns(JstitchWarning, match=match) as caught:
        yield
    assert len(caught) == 1


def entry(cache: KernelCache) -> Path:
    return cache.directory / f"{KEY}{SUFFIX}"


def refuse(cache: KernelCache, said: str) -> None:
    """A miss, each time, with one warning in all."""
    with warned_once(said):
        assert cache.get(KEY) is None
        assert cache.get(KEY) is None


# -- kernels -----------------------------------------------------------------------------------------------


def test_new_folders_and_files_are_the_users_alone(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        KernelCache(tmp_path / "a" / "b" / "kernels").put(KEY, DATA)
        open_database(tmp_path / "c" / "performance.db").close()
        calibrations.save(Machine(), calibrations.place(str(tmp_path / "d")))
    finally:
        os.umask(old)
    found = [path for path in tmp_path.rglob("*")]
    assert len(found) >= 9
    for path in found:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


@pytest.mark.parametrize("part", ["folder", "file"])
def test_what_belongs_to_others(cache: KernelCache, part: str, given_away: Spoil) -> None:
    given_away(cache.directory if part == "folder" else entry(cache))
    refuse(cache, "belongs to user .*set JSTITCH_CACHE_DIR")


@pytest.mark.parametrize("part", ["folder", "file"])
@pytest.mark.parametrize(("more", "who"), [(0o002, "everybody"), (0o020, "group")])
def test_what_others_may_write(
    cache: KernelCache, part: str, more: int, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = cache.directory if part == "folder" else entry(cache)
    path.chmod(path.stat().st_mode | more)
    monkeypatch.setattr(trusted, "_is_own_group", lambda group: False)
    refuse(KernelCache(cache.directory), f"written by {who}.*chmod -R go-w")
    if more == 0o020:  # as a umask of 002 leaves it, where users have groups of their own
        monkeypatch.setattr(trusted, "_is_own_group", lambda group: True)
        assert cache.get(KEY) == DATA


def test_nothing_is_written_where_others_may(tmp_path: Path) -> None:
    cache = KernelCache(tmp_path / "kernels")
    cache.directory.mkdir()
    cache.directory.chmod(0o777)
    with warned_once("cannot write to .*everybody"):
        cache.put(KEY, DATA)
        cache.sweep()
    assert not list(cache.directory.iterdir())


def test_links_lead_nowhere(cache: KernelCache, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    os.rename(entry(cache), outside)
    entry(cache).symlink_to(outside)
    refuse(cache, "is a symbolic link.*remove")
    cache.put(KEY, b"new")
    assert (KernelCache(cache.directory).get(KEY), outside.stat().st_size > len(DATA)) == (b"new", True)
    os.rename(cache.directory, tmp_path / "elsewhere")
    cache.directory.symlink_to(tmp_path / "elsewhere")
    refuse(KernelCache(cache.directory), "is a symbolic link")


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_file_makes_nobody_wait(cache: KernelCache, make: Spoil) -> None:
    entry(cache).unlink()
    make(entry(cache))
    open_files = len(os.listdir("/dev/fd"))
    refuse(cache, "is not a plain file")
    assert len(os.listdir("/dev/fd")) == open_files


def test_a_sticky_folder_is_fine_and_its_files_are_judged(cache: KernelCache, given_away: Spoil) -> None:
    cache.directory.chmod(0o1777)
    assert cache.get(KEY) == DATA
    if os.geteuid() == 0:
        given_away(entry(cache))
        refuse(cache, "belongs to user")


def test_a_folder_that_is_exchanged_after_it_was_judged(cache: KernelCache, tmp_path: Path) -> None:
    """By somebody who may rename it: its handle stays what was judged."""
    with open_folder(cache.directory) as folder:
        os.rename(cache.directory, tmp_path / "aside")
        cache.directory.mkdir()
        entry(cache).write_bytes(b"planted")
        assert DATA in folder.read(entry(cache).name).data
        folder.write("new", b"mine")
    assert (tmp_path / "aside" / "new").read_bytes() == b"mine"
    assert not (cache.directory / "new").exists()


def test_no_code_is_loaded_from_what_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole entry, of the right key: only its folder says that it may be anybody's."""
    cache = KernelCache(tmp_path / "kernels")
    cache.put(cpu_handler.handler_key(), b"planted")
    monkeypatch.setattr(cpu_handler, "_compile_handler", lambda: b"ours")
    assert cpu_handler._handler_object(cache) == b"planted"
    cache.directory.chmod(0o777)
    with warned_once("cannot read"):
        assert cpu_handler._handler_object(cache) == b"ours"


# -- the clock, and the limit ------------------------------------------------------------------------------


def test_times_in_the_future_are_not_kept_for_ever(cache: KernelCache) -> None:
    future = time.time() + 10 * STALE_SECONDS
    left = cache.directory / f"{KEY}.1.tmp"
    left.write_bytes(b"part")
    for path in (entry(cache), left):
        os.utime(path, (future,) * 2)
    assert cache.get(KEY) == DATA
    assert abs(entry(cache).stat().st_mtime - time.time()) < STALE_SECONDS
    cache.put("cd" * 32, DATA)
    os.utime(cache.directory / f"{'cd' * 32}{SUFFIX}", (future,) * 2)
    cache.limit = len(DATA) + 200
    cache.sweep()
    assert [p.name for p in cache.directory.iterdir()] == [entry(cache).name]


def test_many_writers_share_one_limit(tmp_path: Path) -> None:
    """Each looks again after a share of it."""
    limit, writers = 1 << 18, [KernelCache(tmp_path / "kernels", 1 << 18) for _ in range(4)]
    for n in range(400):
        writers[n % 4].put(f"{n:064x}", DATA)
    total = sum(path.stat().st_size for path in writers[0].directory.iterdir())
    assert limit / 2 < total <= limit * (1 + 5 / 16)


# -- verdicts, calibrations, locks -------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["owner", "mode", "link", "folder"])
def test_a_library_of_others_is_left_alone(tmp_path: Path, fault: str, given_away: Spoil) -> None:
    path = tmp_path / "cache" / "performance.db"
    with open_database(path) as database:
        database.execute("INSERT INTO times VALUES ('k', 'd', 'v', 1.0, 1)")
    database.close()
    match fault:
        case "owner":
            given_away(path)
        case "mode":
            path.chmod(0o666)
        case "link":
            os.rename(path, tmp_path / "aside.db")
            path.symlink_to(tmp_path / "aside.db")
        case "folder":
            path.parent.chmod(0o777)
    before = {p: p.stat().st_size for p in sorted(tmp_path.rglob("*"))}
    with warned_once("performance library.*kept for this process only"):
        database = open_database(path)
    assert database.execute("SELECT count(*) FROM times").fetchone() == (0,)
    database.execute("INSERT INTO times VALUES ('k', 'd', 'v', 1.0, 1)")
    assert {p: p.stat().st_size for p in sorted(tmp_path.rglob("*"))} == before


def test_a_calibration_of_others_is_not_read(tmp_path: Path, given_away: Spoil) -> None:
    where = calibrations.place(str(tmp_path / "cache"))
    calibrations.save(Machine(), where)
    assert json.loads(where.path.read_text())["schema"] == calibrations.SCHEMA
    given_away(where.path)
    calibrations._remembered.pop(where.path)
    with warned_once("cannot use the calibration .*belongs to user"):
        assert calibrations.load(where) is None


def test_a_lock_goes_through_no_link(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="lock"), locked(tmp_path / "lock"):
        pass
    assert not (tmp_path / "target").exists()


def test_a_folder_that_is_not_there_and_no_warning(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert KernelCache(tmp_path / "none").get(KEY) is None
        KernelCache(tmp_path / "none").sweep()
    assert not (tmp_path / "none").exists()
    with pytest.raises(FileNotFoundError), open_folder(tmp_path / "none"):
        pass
    assert issubclass(UntrustedError, OSError)
