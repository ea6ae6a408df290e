"""The persistent cache of compiled kernels: one small file per entry, safe for many processes.

    entry ::= magic, payload length, label length, SHA-256 of (key, label, payload), label, payload

A file is written under a temporary name and renamed, so a reader sees a whole entry or none. An entry that
is truncated, corrupt or of another format is deleted and built again. Nothing is read that others may have
written (trusted.py). A cache that cannot be read or written, or must not (missing rights, full disk, somebody
else's), costs one warning and is otherwise as if it were empty. When the sum of sizes passes the bound, the
entries used longest ago go first.
"""

from __future__ import annotations

import hashlib
import json
import struct
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
from jstitch.runtime.trusted import TEMPORARY, Folder, Found, UntrustedError, open_folder, open_unlinked

MAGIC = b"jstitch\x02"
SUFFIX = ".kernel"
_OLD = (b"jstitch\x01",)
_HEADER = struct.Struct("<8sQI32s")
STALE_SECONDS = 3600.0  # temporary files older than this belong to a writer that was killed
_TOUCH_SECONDS = 3600.0  # an entry's time of last use is kept to this accuracy
DEFAULT_LIMIT = 1 << 30
_LONGEST_LABEL = 1 << 12
_SHARES = 16  # of the limit: what a process writes before it looks again at what others have written
_WRITABLE = "set JSTITCH_CACHE_DIR to a writable folder"


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
    _left: int = field(default=0, init=False)
    _since: int | None = field(default=None, init=False)

    def get(self, key: str) -> bytes | None:
        """The payload stored under `key` (a hexadecimal digest), or None."""
        name = f"{key}{SUFFIX}"
        try:
            with open_folder(self.directory) as folder:
                return self._taken(folder, name, key, folder.read(name))
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn(f"cannot read {self.directory / name}", error)
            return None

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
        data = _encode(key, payload, label)
        try:
            with open_folder(self.directory, make=True) as folder:
                folder.write(f"{key}{SUFFIX}", data)
        except OSError as error:
            self._warn(f"cannot write to {self.directory}", error)
            return
        self._account(len(data))

    def sweep(self) -> int:
        """Delete leftovers of killed writers, then the oldest entries beyond the limit; the bytes left."""
        try:
            with open_folder(self.directory) as folder:
                return self._sweep(folder)
        except FileNotFoundError:
            return 0
        except OSError as error:
            self._warn(f"cannot clean {self.directory}", error)
            return 0

    def _sweep(self, folder: Folder) -> int:
        entries, now = [], time.time()
        for name, found in folder.files():
            if name.endswith(TEMPORARY) and is_apart(found.st_mtime, now, STALE_SECONDS):
                folder.remove(name)
            elif name.endswith(SUFFIX):
                entries.append((last_use(found.st_mtime, now), found.st_size, name))
        total = sum(size for _, size, _ in entries)
        for _, size, name in sorted(entries):
            if total <= self.limit:
                break
            folder.remove(name)
            total -= size
        return total

    def _taken(self, folder: Folder, name: str, key: str, found: Found) -> bytes | None:
        """The payload of what was read; what is damaged goes."""
        payload = _decode(key, found.data)
        if payload is None:
            if not found.data.startswith(_OLD):
                self._warn(f"found a damaged entry, building it again: {self.directory / name}")
            folder.remove(name)
        elif is_apart(found.used, time.time(), _TOUCH_SECONDS):
            folder.touch(name)
        return payload

    def _account(self, written: int) -> None:
        """Sweep at this process's first write, and when it has written a share of the limit since."""
        since = None if self._since is None else self._since + written
        if since is None or self._left + since > self.limit or since > self.limit // _SHARES:
            self._left, since = self.sweep(), 0
        self._since = since

    def _warn(self, message: str, error: OSError | None = None) -> None:
        if self._warned:
            return
        self._warned = True
        if error is not None:
            remedy = error.remedy if isinstance(error, UntrustedError) else _WRITABLE
            message = f"{message}: {error}. Kernels still work; {remedy}"
        warnings.warn(f"jstitch kernel cache: {message}.", JstitchWarning, stacklevel=4)


def is_apart(then: float, now: float, seconds: float) -> bool:
    """Whether a file's time is that far from now, in the past or, after the clock was set, in the future."""
    return abs(now - then) > seconds


def last_use(then: float, now: float) -> float:
    """For the order of eviction. Of times in the future nothing is known: they are the oldest."""
    return then if then <= now + _TOUCH_SECONDS else 0.0


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
        with open(path, "rb", opener=open_unlinked) as file:
            magic, _, noted, _ = _HEADER.unpack(file.read(_HEADER.size))
            if magic != MAGIC or noted > _LONGEST_LABEL:
                return None
            target, made_with = json.loads(file.read(noted))
    except (OSError, ValueError, TypeError, struct.error):
        return None
    return Label(str(target), str(made_with))


@cache
def kernel_store(folder: str | None = None) -> KernelCache:
    """The kernel cache of this process in `folder`/kernels, or in the default place. Raises OptionError."""
    return KernelCache() if folder is None else KernelCache(Path(folder) / "kernels")
