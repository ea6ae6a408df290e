"""Versions that compiled code depends on."""

from __future__ import annotations

from functools import cache
from importlib import metadata
from pathlib import Path

COMPILER_FILE = Path(__file__).with_name("numba_compiler.py")
"""Its text is part of the key of compiled code; finding it must not import Numba."""


@cache
def toolchain() -> str:
    """jstitch, Numba and llvmlite with their versions: part of the key of compiled code."""
    return " ".join(f"{name}={_version(name)}" for name in ("jstitch", "numba", "llvmlite"))


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # run from a source tree
        return "source"
