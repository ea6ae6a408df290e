"""PTX as text: what is changed of a compiler's output before a driver gets it.

.version 9.5                              .version 8.0
.visible .entry _ZN8kernel...v1B42()      .visible .entry softmax_phase0(.param .u64 param_0, ...)
.maxntid 256                              .reqntid 256, 1, 1
.common .global .u64 _ZN08NumbaEnv...     (gone)
"""

from __future__ import annotations

import re

_VERSION = re.compile(r"^\.version (\d+)\.(\d+)", re.M)
_ENTRY = re.compile(r"\.visible \.entry (\w+)\(\s*\)")
_BOUNDS = re.compile(r"^\.maxntid .*\n", re.M)
_THREADS = re.compile(r"^\.reqntid .*\n", re.M)
_NOISE = (".common", "//", "\t// .globl", "\t// begin inline asm", "\t// end inline asm")


def entry_name(kernel: str, function: str) -> str:
    """The name of a launch's kernel in its PTX."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", f"{kernel}_{function}")
    return name if name[0].isalpha() else f"k{name}"


MANY = 512
"""Pointers of a launch to whose threads ptxas, left to itself, gives too few registers."""
RESIDENT = 5  # CTAs of a multiprocessor that are enough to keep the memory busy


def parameter(number: int) -> str:
    """The name of a pointer in an entry's signature."""
    return f"param_{number}"


def finish(text: str, entry: str, block: int, ptx_version: tuple[int, int], parameters: int) -> str:
    """The text with one entry of that name, for `block` threads and drivers of that PTX version.

    parameters: pointers that it takes.

    Raises ValueError for text without an entry or a version.
    """
    lines = (line.rstrip() for line in text.rstrip("\0").splitlines() if not line.startswith(_NOISE))
    text = "\n".join(line for line in lines if line) + "\n"
    found, own = _ENTRY.search(text), _VERSION.search(text)
    if found is None or own is None:
        raise ValueError(f"expected PTX with a version and an entry, found {text[:200]!r}")
    pointers = ",\n".join(f".param .u64 {parameter(k)}" for k in range(parameters))
    text = text.replace(found[0], f".visible .entry {found[1]}(\n{pointers}\n)").replace(found[1], entry)
    text = _BOUNDS.sub(f".reqntid {block}, 1, 1\n", text)
    major, minor = min((int(own[1]), int(own[2])), ptx_version)
    return _VERSION.sub(f".version {major}.{minor}", text)


def with_resident(text: str, ctas: int) -> str:
    """The text of `finish`, to be assembled for so many CTAs on a multiprocessor.

    Left to itself, ptxas saves registers, and spills, where it hopes for more of them.
    """
    return _THREADS.sub(rf"\g<0>.minnctapersm {ctas}\n", text)


def parse_version(version: str) -> tuple[int, int]:
    """ "8.0" -> (8, 0)"""
    major, _, minor = version.partition(".")
    return int(major), int(minor or 0)
