"""The memory that Python shares with the native handler: one process block, one descriptor per kernel."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from jstitch.runtime import ffi_layout as at

SERIAL_NS = 30_000
"""Of one core, below which a call is not worth waking a thread: that takes 10,000 to 30,000."""
AWAKE_NS = 4_000
"""The same, where the pool's threads are awake."""
_MESSAGES = {
    at.PROCESS_MESSAGE_COUNTS: b"jstitch: the custom call has another number of operands or results than its "
    b"kernel; the program was changed after stitching, stitch it again",
    at.PROCESS_MESSAGE_MEMORY: b"jstitch: no memory for a kernel's scratch space",
}
_keep: list[object] = []


def available_threads() -> int:
    """CPUs this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _c_function(library: ctypes.CDLL | ctypes.PyDLL, name: str) -> int:
    function = getattr(library, name, None)
    return 0 if function is None else ctypes.cast(function, ctypes.c_void_p).value or 0


def why_no_kernels() -> str | None:
    """Why this system runs no kernels of ours; None where it does."""
    return None if os.name == "posix" else f"{platform.system()}, which has no POSIX interface"


@cache
def process_block() -> ctypes.Array[ctypes.c_int64]:
    """The block, filled in except for the type id and the task; it lives as long as the process."""
    block = (ctypes.c_int64 * at.PROCESS_WORDS)()
    library = ctypes.CDLL(None)
    block[at.PROCESS_THREADS] = available_threads()
    block[at.PROCESS_SERIAL_NS] = SERIAL_NS
    block[at.PROCESS_AWAKE_NS] = AWAKE_NS
    block[at.PROCESS_CLOCK] = _c_function(library, "clock_gettime")
    block[at.PROCESS_CLOCK_ID] = getattr(time, "CLOCK_MONOTONIC", 0)
    block[at.PROCESS_MALLOC] = _c_function(library, "malloc")
    block[at.PROCESS_FREE] = _c_function(library, "free")
    block[at.PROCESS_MADVISE] = _c_function(library, "madvise") if sys.platform == "linux" else 0
    block[at.PROCESS_PYTHON_THREAD] = _c_function(ctypes.pythonapi, "PyGILState_GetThisThreadState")
    block[at.PROCESS_THREAD] = _c_function(library, "pthread_self")
    block[at.PROCESS_YIELD] = _c_function(library, "sched_yield")
    sizes = (ctypes.c_int64 * at.NUM_DTYPES)(*(at.ITEMSIZES.get(code, 0) for code in range(at.NUM_DTYPES)))
    block[at.PROCESS_ITEMSIZES] = ctypes.addressof(sizes)
    _keep.append(sizes)
    for word, text in _MESSAGES.items():
        message = ctypes.create_string_buffer(text)
        block[word] = ctypes.addressof(message)
        _keep.append(message)
    return block


def set_num_threads(count: int) -> int:
    """Use at most `count` threads per kernel from the next call on; returns the old limit.

    Raises ValueError when count < 1. The pool's own size and the CPU affinity still apply.
    """
    if count < 1:
        raise ValueError(f"expected at least 1 thread, found {count}")
    block = process_block()
    old = int(block[at.PROCESS_THREADS])
    block[at.PROCESS_THREADS] = count
    return old


def set_serial_ns(asleep: int, awake: int | None = None) -> tuple[int, int]:
    """Run phases of fewer nanoseconds than this on one thread; returns the old thresholds.

    awake: where the pool's threads are awake; the same unless it is given.
    """
    block = process_block()
    old = int(block[at.PROCESS_SERIAL_NS]), int(block[at.PROCESS_AWAKE_NS])
    block[at.PROCESS_SERIAL_NS] = asleep
    block[at.PROCESS_AWAKE_NS] = asleep if awake is None else awake
    return old


def set_in_place(in_place: bool) -> bool:
    """Whether calls are run to their end by the threads that make them, from the next one on; what was so.

    Else large ones leave threads that are not Python's, for XLA's pool: see native_threads.py.
    """
    block = process_block()
    old = bool(block[at.PROCESS_IN_PLACE])
    block[at.PROCESS_IN_PLACE] = in_place
    return old


@dataclass(frozen=True)
class LoadedPhase:
    """Machine code `void f(i64 bufs, i64 arena, i64 program)` at `address`, for program in [0, programs)."""

    address: int
    programs: int
    alone_ns: int


@dataclass(frozen=True, eq=False)
class LoadedKernel:
    """A kernel in memory. `descriptor` is what the handler reads, `leaving` the same for calls that may leave
    the thread which makes them; they are never freed.
    """

    num_args: int
    num_results: int
    scratch_bytes: int
    arena_bytes: int
    phases: tuple[LoadedPhase, ...]
    descriptor: int
    leaving: int


def load_kernel(
    num_args: int, num_results: int, scratch_bytes: int, arena_bytes: int, phases: Sequence[LoadedPhase]
) -> LoadedKernel:
    """Write the descriptor of a kernel whose code is loaded."""
    sizes = num_args, num_results, scratch_bytes, arena_bytes

    def descriptor(leaves: bool) -> int:
        words = [*sizes, len(phases), leaves]
        for phase in phases:
            words += [phase.address, phase.programs, phase.alone_ns]
        made = (ctypes.c_int64 * len(words))(*words)
        _keep.append(made)
        return ctypes.addressof(made)

    return LoadedKernel(*sizes, tuple(phases), descriptor(False), descriptor(True))
