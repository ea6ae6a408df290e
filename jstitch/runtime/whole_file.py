"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO


def write_whole(file: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write beside the file, then rename: one sees the old file or all of the new. Raises OSError."""
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as opened:
            write(opened)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)
        os.replace(name, file)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def write_text(file: Path, text: str) -> None:
    """The same of text, as UTF-8. Raises OSError, and UnicodeEncodeError for what that cannot say."""
    data = text.encode("utf-8")
    write_whole(file, lambda opened: opened.write(data))
