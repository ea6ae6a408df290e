"""The kernel cache: what is stored comes back, whatever is wrong with the disk."""

from __future__ import annotations

import errno
import os
import time
import warnings
from pathlib import Path

import pytest

from jstitch.errors import JstitchWarning
from jstitch.runtime import trusted
from jstitch.runtime.cache import SUFFIX, KernelCache

KEY = "ab" * 32
DATA = bytes(range(256)) * 8


@pytest.fixture
def cache(tmp_path: Path) -> KernelCache:
    return KernelCache(tmp_path / "kernels")


def entry(cache: KernelCache, key: str = KEY) -> Path:
    return cache.directory / f"{key}{SUFFIX}"


def test_returns_what_was_stored(cache: KernelCache) -> None:
    assert cache.get(KEY) is None
    cache.put(KEY, DATA)
    assert cache.get(KEY) == DATA
    assert KernelCache(cache.directory).get(KEY) == DATA
    assert [p.name for p in cache.directory.iterdir()] == [f"{KEY}{SUFFIX}"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:20],
        lambda data: data[:-1],
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: b"other\x00\x00\x01" + data[8:],
        lambda data: b"not a cache entry at all" * 10,
    ],
    ids=["empty", "half header", "truncated", "flipped bit", "foreign magic", "garbage"],
)
def test_damaged_entry_is_dropped_with_one_warning(cache: KernelCache, damage: object) -> None:
    cache.put(KEY, DATA)
    entry(cache).write_bytes(damage(entry(cache).read_bytes()))  # type: ignore[operator]
    with pytest.warns(JstitchWarning, match="damaged entry"):
        assert cache.get(KEY) is None
    assert cache.get(KEY) is None
    cache.put(KEY, DATA)
    assert cache.get(KEY) == DATA


def test_entry_under_another_name_is_refused(cache: KernelCache) -> None:
    cache.put(KEY, DATA)
    other = "cd" * 32
    os.rename(entry(cache), entry(cache, other))
    with pytest.warns(JstitchWarning, match="damaged"):
        assert cache.get(other) is None


def test_unwritable_directory_warns_once(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("a file where the folder should be")
    cache = KernelCache(blocker / "kernels")
    with pytest.warns(JstitchWarning, match="JSTITCH_CACHE_DIR"):
        cache.put(KEY, DATA)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # one warning is enough
        cache.put(KEY, DATA)
        assert cache.get(KEY) is None


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_read_only_directory(cache: KernelCache) -> None:
    cache.put(KEY, DATA)
    cache.directory.chmod(0o500)
    try:
        with pytest.warns(JstitchWarning, match="cannot write"):
            cache.put("cd" * 32, DATA)
        assert cache.get(KEY) == DATA
    finally:
        cache.directory.chmod(0o700)


def test_full_disk_leaves_nothing_behind(cache: KernelCache, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.put("cd" * 32, DATA)

    def half_written(handle: int, data: bytes) -> None:
        with os.fdopen(handle, "wb") as file:
            file.write(data[: len(data) // 2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(trusted, "write_all", half_written)
    with pytest.warns(JstitchWarning, match="No space left"):
        cache.put(KEY, DATA)
    assert cache.get(KEY) is None
    assert [p.name for p in cache.directory.iterdir()] == [f"{'cd' * 32}{SUFFIX}"]


def test_sweep_removes_leftovers_of_killed_writers_only(cache: KernelCache) -> None:
    cache.put(KEY, DATA)
    old, new = cache.directory / "x.1.1.tmp", cache.directory / "y.2.2.tmp"
    for path in (old, new):
        path.write_bytes(b"partial")
    os.utime(old, (time.time() - 7200,) * 2)
    KernelCache(cache.directory).put("cd" * 32, DATA)
    assert not old.exists()
    assert new.exists()
    assert cache.get(KEY) == DATA


def test_oldest_entries_go_when_the_limit_is_passed(tmp_path: Path) -> None:
    cache = KernelCache(tmp_path, limit=5 * (len(DATA) + 100))
    keys = [f"{i:064x}" for i in range(12)]
    for age, key in zip(range(12, 0, -1), keys, strict=True):
        cache.put(key, DATA)
        os.utime(entry(cache, key), (time.time() - age * 10,) * 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kept = [key for key in keys if cache.get(key) is not None]
    assert kept == keys[-len(kept) :]
    assert sum(p.stat().st_size for p in tmp_path.iterdir()) <= cache.limit
    assert len(kept) >= 4


def test_use_protects_from_eviction(tmp_path: Path) -> None:
    cache = KernelCache(tmp_path, limit=3 * (len(DATA) + 100))
    first, second, third, fourth = (f"{i:064x}" for i in range(4))
    for key in (first, second, third):
        cache.put(key, DATA)
        os.utime(entry(cache, key), (time.time() - 90000,) * 2)
    assert cache.get(first) == DATA
    cache.put(fourth, DATA)
    cache.sweep()
    assert cache.get(first) == DATA
    assert cache.get(fourth) == DATA
