"""Parse StableHLO from anywhere: MLIR reads it first in a process of its own, with limits.

MLIR's parsers end the process on deep nesting, and its bytecode reader on some damage. What a child of ours
has parsed, verified and written as bytecode is then safe to parse here.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from jstitch.errors import ParseError
from jstitch.frontend.mlir import ir, parse_module

CHILD = Path(__file__).with_name("parse_child.py")
BAD_INPUT = 3  # the child's exit status
LARGEST = 1 << 29  # bytes of a module
MEMORY = 2 << 30  # bytes of address space, and as many more as
MEMORY_PER_BYTE = 8  # of the module
SECONDS = 30  # and one more for
BYTES_PER_SECOND = 4 << 20

_EXPECTED = "a StableHLO module (text, MLIR bytecode or a portable artifact)"
_HINT = "print one with jax.jit(f).lower(*args).as_text()"


def safe_parse(source: bytes, *, memory: int = MEMORY, seconds: int = SECONDS) -> ir.Module:
    """The module. Costs a third of a second more than `parse_module`.

    memory, seconds: the child's limits for a small module. Raises ParseError when the source is too large,
    does not parse or verify, exceeds the limits, or makes MLIR end its process.
    """
    if len(source) > LARGEST:
        raise ParseError(
            f"a module of at most {LARGEST:,} bytes", "more", hint="pass large constants as arguments"
        )
    if not source.strip():
        raise ParseError(_EXPECTED, "nothing", hint=_HINT)
    memory, seconds = memory + MEMORY_PER_BYTE * len(source), seconds + len(source) // BYTES_PER_SECOND
    command = [sys.executable, "-P", str(CHILD), str(memory), str(seconds)]
    try:
        done = subprocess.run(command, input=source, capture_output=True, timeout=2 * seconds, check=False)
    except subprocess.TimeoutExpired:
        raise _error(source, f"MLIR takes more than {2 * seconds} s to parse it") from None
    if done.returncode:
        raise _error(source, _reason(done, seconds))
    return parse_module(done.stdout)


def _reason(done: subprocess.CompletedProcess[bytes], seconds: int) -> str:
    if done.returncode == BAD_INPUT:
        return done.stdout.decode(errors="replace")
    said = done.stderr.decode(errors="replace").strip().splitlines()
    if done.returncode > 0:
        return f"the parser ended with status {done.returncode}: {said[-1] if said else 'no message'}"
    try:
        name = signal.Signals(-done.returncode).name
    except ValueError:
        name = f"signal {-done.returncode}"
    if name in ("SIGXCPU", "SIGKILL"):
        return f"MLIR takes more than {seconds} s or too much memory to parse it ({name})"
    return f"MLIR's parser crashed on it ({name}): it is damaged, nested too deeply, or takes too much memory"


def _error(source: bytes, reason: str) -> ParseError:
    found = f"{len(source):,} bytes starting {source[:40]!r}: {reason.rstrip('.')}"
    return ParseError(_EXPECTED, found, hint=_HINT)
