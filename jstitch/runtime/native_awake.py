"""Whether the threads of XLA's pool are awake: they look for work for some microseconds, then sleep.

To wake one takes the time of a small kernel, mostly this thread's. So small phases run on all threads only
where those are awake, since they have just run a phase. They are woken where Python has called one kernel
after another, and is likely to go on: the next calls find them awake. Between XLA's own kernels nobody is
woken for small phases: there threads would take cores from the one that runs the program.
"""

from __future__ import annotations

from jstitch.runtime import ffi_layout as at
from jstitch.runtime import native_ops as op
from jstitch.runtime.native_function import helper


@helper
def _now(process: int) -> int:
    """Nanoseconds of a clock that never goes back; 0 where there is none."""
    clock = op.word(process, at.PROCESS_CLOCK)
    words = op.stack_words()
    if clock == 0 or op.ask_clock(clock, op.word(process, at.PROCESS_CLOCK_ID), words) != 0:
        return 0
    return op.word(words, 0) * 1_000_000_000 + op.word(words, 1)


@helper
def serial_ns(process: int, alone: int) -> int:
    """Nanoseconds below which a phase runs on this thread. alone: of all of the call's phases: who is woken
    for one is awake for the next.
    """
    serial = op.word(process, at.PROCESS_SERIAL_NS)
    awake = op.word(process, at.PROCESS_AWAKE_NS)
    if alone < awake:
        return serial
    if alone >= serial:
        return awake
    now = _now(process)
    if now == 0:
        return serial
    if now - op.atomic_word(process, at.PROCESS_SEEN) <= at.STAY_AWAKE_NS:
        return awake
    if now - op.atomic_word(process, at.PROCESS_CALLED) <= at.STAY_AWAKE_NS:
        if op.atomic_word(process, at.PROCESS_STREAK) >= at.STREAK:
            return awake
    return serial


@helper
def note_awake(process: int) -> None:
    """The pool's threads have just run a phase."""
    op.atomic_swap(process, at.PROCESS_SEEN, _now(process))


@helper
def note_call(process: int, alone: int) -> None:
    """This thread has just run a call, alone: if it is Python's, it counts for the streak."""
    python = op.word(process, at.PROCESS_PYTHON_THREAD)
    if alone < op.word(process, at.PROCESS_AWAKE_NS) or python == 0 or op.ask0(python) == 0:
        return
    now = _now(process)
    before = op.atomic_swap(process, at.PROCESS_CALLED, now)
    if now - before > 2 * at.STAY_AWAKE_NS + alone:
        op.atomic_swap(process, at.PROCESS_STREAK, 0)
    op.atomic_add(process, at.PROCESS_STREAK, 1)
