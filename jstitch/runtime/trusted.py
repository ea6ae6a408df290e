"""Folders whose files are ours: opened once, judged by their handle, and used through it.

    with open_folder(Path("~/.cache/jstitch/kernels")) as folder:
        data = folder.read("ab12.kernel").data         # raises UntrustedError for somebody else's
        folder.write("ab12.kernel", data)              # mode 0600; whole, or not at all

What is read from here becomes machine code of this process, so this user or root must have written it, where
nobody else can: the rule of OpenSSH for its keys. A folder in a place of others (/tmp) will do. It is the
folder's own handle that is judged, and all is done through that, so nobody can put another in its place in
between. Links are not followed. Where the system has no owners (not POSIX), nothing is judged.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

try:
    import grp
    import pwd
except ImportError:  # not a POSIX system
    grp = pwd = None  # type: ignore[assignment]

_BY_HANDLE = {os.open, os.unlink, os.rename, os.stat, os.mkdir} <= os.supports_dir_fd
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_PLAIN = _NO_LINK | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)  # a pipe makes nobody wait
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)
PRIVATE_FILE, PRIVATE_FOLDER = 0o600, 0o700
TEMPORARY = ".tmp"


class UntrustedError(PermissionError):
    """A folder or file that somebody else may have written. fault: what was found; remedy: what to do."""

    def __init__(self, path: Path, fault: str, remedy: str) -> None:
        super().__init__(f"{path} {fault}")
        self.path, self.fault, self.remedy = path, fault, remedy


@dataclass(frozen=True)
class Found:
    """A file's bytes, and when it was last used, in seconds of the clock."""

    data: bytes
    used: float


@dataclass(frozen=True)
class Folder:
    """handle: None where the system works by paths only."""

    path: Path
    handle: int | None

    def read(self, name: str) -> Found:
        """Raises FileNotFoundError, UntrustedError, OSError."""
        handle = self._open(name, os.O_RDONLY)
        found = self._judged(handle, name)
        with os.fdopen(handle, "rb") as file:
            return Found(file.read(), found.st_mtime)

    def write(self, name: str, data: bytes) -> None:
        """All of it, or nothing. Raises OSError."""
        temporary = f"{name}.{secrets.token_hex(8)}{TEMPORARY}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        try:
            write_all(self._open(temporary, flags), data)
            os.replace(self._at(temporary), self._at(name), src_dir_fd=self.handle, dst_dir_fd=self.handle)
        except BaseException:
            self.remove(temporary)
            raise

    def make(self, name: str) -> None:
        """An empty file, where there is none. Raises UntrustedError for one that is not ours, OSError."""
        try:
            handle = self._open(name, os.O_RDWR | os.O_CREAT)
        except PermissionError:
            handle = self._open(name, os.O_RDONLY)  # one that may be read is there
        self._judged(handle, name)
        os.close(handle)

    def check(self, name: str) -> None:
        """Raises UntrustedError for a file that is there and not ours."""
        try:
            found = os.stat(self._at(name), dir_fd=self.handle, follow_symlinks=False)
        except FileNotFoundError:
            return
        _require(self.path / name, found, stat.S_ISREG, "a plain file")

    def touch(self, name: str) -> None:
        """It was used now; best effort."""
        try:
            os.utime(self._at(name), dir_fd=self.handle, follow_symlinks=False)
        except (OSError, NotImplementedError):
            pass

    def remove(self, name: str) -> None:
        """Best effort."""
        try:
            os.unlink(self._at(name), dir_fd=self.handle)
        except OSError:
            pass

    def files(self) -> Iterator[tuple[str, os.stat_result]]:
        """Plain files that are there now, links left out."""
        with os.scandir(self.path if self.handle is None else self.handle) as items:
            for item in items:
                try:
                    found = item.stat(follow_symlinks=False)
                except OSError:  # another process deleted it
                    continue
                if stat.S_ISREG(found.st_mode):
                    yield item.name, found

    def _open(self, name: str, flags: int) -> int:
        try:
            return os.open(self._at(name), flags | _PLAIN, PRIVATE_FILE, dir_fd=self.handle)
        except OSError as error:
            raise _link(self.path / name) or error from None

    def _judged(self, handle: int, name: str) -> os.stat_result:
        """What is open. Raises UntrustedError, with it closed."""
        try:
            found = os.fstat(handle)
            _require(self.path / name, found, stat.S_ISREG, "a plain file")
        except BaseException:
            os.close(handle)
            raise
        return found

    def _at(self, name: str) -> str:
        return name if self.handle is not None else str(self.path / name)


@contextmanager
def open_folder(path: Path, *, make: bool = False, follow: bool = False) -> Iterator[Folder]:
    """The folder, if it is ours. make: it and what it lies in, for this user only, where there is none.

    follow: a link in its own place may lead to it. Raises UntrustedError, FileNotFoundError, OSError.
    """
    if make:
        _make(path)
    if not _BY_HANDLE:
        if not path.is_dir():
            raise FileNotFoundError(f"{path} is no folder")
        yield Folder(path, None)
        return
    try:
        handle = os.open(path, _FOLDER | (0 if follow else _NO_LINK))
    except OSError as error:
        raise (None if follow else _link(path)) or error from None
    try:
        _require(path, os.fstat(handle), stat.S_ISDIR, "a folder")
        yield Folder(path, handle)
    finally:
        os.close(handle)


def write_all(handle: int, data: bytes) -> None:
    with os.fdopen(handle, "wb") as file:
        file.write(data)


def open_unlinked(path: str, flags: int) -> int:
    """An opener for `open`: with the user's own rights, but not through a link in the file's place."""
    return os.open(path, flags | _NO_LINK, 0o666)


def _make(path: Path) -> None:
    for folder in reversed((path, *path.parents)):
        try:
            os.mkdir(folder, PRIVATE_FOLDER)
        except OSError:
            if not folder.is_dir():
                raise


def _link(path: Path) -> UntrustedError | None:
    """Why a path cannot be opened, if it is a link."""
    if not path.is_symlink():
        return None
    return UntrustedError(
        path, "is a symbolic link", f"remove {path}, or set JSTITCH_CACHE_DIR to its target"
    )


def _require(path: Path, found: os.stat_result, kind: object, named: str) -> None:
    """Raises UntrustedError for what others may have written, or is of another kind."""
    assert callable(kind)
    if not kind(found.st_mode):
        raise UntrustedError(path, f"is not {named}", f"remove {path}")
    if not hasattr(os, "geteuid"):
        return
    if found.st_uid not in (0, os.geteuid()):
        fault = f"belongs to user {found.st_uid}, and this process to user {os.geteuid()}"
        raise UntrustedError(path, fault, "set JSTITCH_CACHE_DIR to a folder of your own")
    if who := _writers(found):
        fault = f"can be written by {who} (mode {stat.S_IMODE(found.st_mode):04o})"
        raise UntrustedError(
            path, fault, f"delete it, or run `chmod -R go-w {path}` if you trust what is there"
        )


def _writers(found: os.stat_result) -> str:
    """Who else may write. In a sticky folder others make files, which are judged one by one."""
    if stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX:
        return ""
    if found.st_mode & stat.S_IWOTH:
        return "everybody"
    if found.st_mode & stat.S_IWGRP and not _is_own_group(found.st_gid):
        return f"group {found.st_gid}"
    return ""


def _is_own_group(group: int) -> bool:
    """Whether it is the user's private group, of the same name, as a umask of 002 goes with."""
    if grp is None:
        return True
    try:
        entry, me = grp.getgrgid(group), pwd.getpwuid(os.geteuid())
    except KeyError:
        return False
    return entry.gr_name == me.pw_name and entry.gr_gid == me.pw_gid and set(entry.gr_mem) <= {me.pw_name}
