"""The persistent cache of compiled kernels: one small file per entry, safe for many processes.

    entry ::= magic, payload length, label length, SHA-256 of (key, label, payload), label, payload

A file is written under a temporary name and renamed, so a reader sees a whole entry or none. An entry that
is truncated, corrupt or of another format is deleted and built again. A cache that cannot be read or written
(missing rights, full disk) costs one warning and is otherwise as if it were empty. When the sum of sizes
passes the bound, the entries used longest ago go first.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import platformdirs

from jstitch.errors import JstitchWarning
from jstitch.options import CompileOptions
from jstitch.runtime.telemetry import COMPILATION, HITS, MISSES, emit, logger

MAGIC = b"jstitch\x02"
SUFFIX = ".kernel"
_OLD = (b"jstitch\x01",)
_HEADER = struct.Struct("<8sQI32s")
STALE_SECONDS = 3600.0  # temporary files older than this belong to a writer that was killed
_TOUCH_SECONDS = 3600.0  # an entry's time of last use is kept to this accuracy
DEFAULT_LIMIT = 1 << 30
_LONGEST_LABEL = 1 << 12


def default_directory() -> Path:
    """`kernels` in the option `cache_dir` (JSTITCH_CACHE_DIR), or in the user's cache folder."""
    chosen = CompileOptions().cache_dir or platformdirs.user_cache_dir("jstitch", appauthor=False)
    return Path(chosen) / "kernels"


@dataclass(frozen=True)
class Label:
    """What an entry is: for which target, and which versions and sources it depends on."""

    target: str = ""
    made_with: str = ""


NO_LABEL = Label()


@dataclass
class KernelCache:
    """Bytes by key in `directory`. `get` and `put` never raise for what is wrong with the disk."""

    directory: Path = field(default_factory=default_directory)
    limit: int = DEFAULT_LIMIT
    _warned: bool = field(default=False, init=False)
    _written: int | None = field(default=None, init=False)

    def get(self, key: str) -> bytes | None:
        """The payload stored under `key` (a hexadecimal digest), or None."""
        path = self._path(key)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn(f"cannot read {path}: {error}")
            return None
        payload = _decode(key, data)
        if payload is None:
            if not data.startswith(_OLD):
                self._warn(f"found a damaged entry, building it again: {path}")
            _remove(path)
            return None
        self._touch(path)
        return payload

    def obtain(self, key: str, name: str, label: Label, make: Callable[[], bytes]) -> bytes:
        """The payload under `key`, which is made and stored where it is missing. name: for those who watch.

        Raises what `make` does.
        """
        found = self.get(key)
        if found is not None:
            emit(HITS, target=label.target)
            logger("cache").debug("%s for %s: found, %d bytes", name, label.target, len(found))
            return found
        emit(MISSES, target=label.target)
        logger("cache").info("%s for %s: not in %s", name, label.target, self.directory)
        start = time.perf_counter()
        made = make()
        seconds = time.perf_counter() - start
        emit(COMPILATION, seconds, target=label.target)
        logger("compile").info("%s for %s: %.2f s", name, label.target, seconds)
        self.put(key, made, label)
        return made

    def put(self, key: str, payload: bytes, label: Label = NO_LABEL) -> None:
        """Store `payload`; a failure is one warning."""
        path = self._path(key)
        temporary = path.with_name(f"{key}.{os.getpid()}.{threading.get_ident()}.tmp")
        data = _encode(key, payload, label)
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(data)
            os.replace(temporary, path)
        except OSError as error:
            _remove(temporary)
            self._warn(f"cannot write to {self.directory}: {error}")
            return
        self._account(len(data))

    def sweep(self) -> int:
        """Delete leftovers of killed writers, then the oldest entries beyond the limit; the bytes left."""
        entries = []
        now = time.time()
        for path, stat in listing(self.directory):
            if path.suffix == ".tmp" and now - stat.st_mtime > STALE_SECONDS:
                _remove(path)
            elif path.suffix == SUFFIX:
                entries.append((stat.st_mtime, stat.st_size, path))
        total = sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries):
            if total <= self.limit:
                break
            _remove(path)
            total -= size
        return total

    def _path(self, key: str) -> Path:
        return self.directory / f"{key}{SUFFIX}"

    def _touch(self, path: Path) -> None:
        """Remember the use, for the eviction order; not on every hit, and best effort."""
        try:
            if time.time() - path.stat().st_mtime > _TOUCH_SECONDS:
                os.utime(path)
        except OSError:
            pass

    def _account(self, written: int) -> None:
        """Sweep at this process's first write and whenever what it knows of passes the limit."""
        known = None if self._written is None else self._written + written
        if known is None or known > self.limit:
            known = self.sweep()
        self._written = known

    def _warn(self, message: str) -> None:
        if not self._warned:
            self._warned = True
            advice = "Kernels still work; set JSTITCH_CACHE_DIR to a writable folder."
            warnings.warn(f"jstitch kernel cache: {message}. {advice}", JstitchWarning, stacklevel=3)


def _encode(key: str, payload: bytes, label: Label) -> bytes:
    note = json.dumps([label.target, label.made_with]).encode()
    header = _HEADER.pack(MAGIC, len(payload), len(note), _checksum(key, note + payload))
    return header + note + payload


def _checksum(key: str, rest: bytes) -> bytes:
    return hashlib.sha256(key.encode() + rest).digest()


def _decode(key: str, data: bytes) -> bytes | None:
    """The payload of a whole and genuine entry for `key`, else None."""
    if len(data) < _HEADER.size:
        return None
    magic, size, noted, checksum = _HEADER.unpack_from(data)
    rest = data[_HEADER.size :]
    good = magic == MAGIC and size + noted == len(rest) and checksum == _checksum(key, rest)
    return rest[noted:] if good else None


def read_label(path: Path) -> Label | None:
    """Of the entry in a file; None for another format, or when it is gone. Does not check the payload."""
    try:
        with path.open("rb") as file:
            magic, _, noted, _ = _HEADER.unpack(file.read(_HEADER.size))
            if magic != MAGIC or noted > _LONGEST_LABEL:
                return None
            target, made_with = json.loads(file.read(noted))
    except (OSError, ValueError, TypeError, struct.error):
        return None
    return Label(str(target), str(made_with))


def listing(directory: Path) -> list[tuple[Path, os.stat_result]]:
    """Files of a cache's folder that are there now."""
    found = []
    try:
        with os.scandir(directory) as items:
            for item in items:
                try:
                    found.append((Path(item.path), item.stat()))
                except OSError:  # another process deleted it
                    continue
    except OSError:
        pass
    return found


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        pass


@cache
def kernel_store(folder: str | None = None) -> KernelCache:
    """The kernel cache of this process in `folder`/kernels, or in the default place. Raises OptionError."""
    return KernelCache() if folder is None else KernelCache(Path(folder) / "kernels")
